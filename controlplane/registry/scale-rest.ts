/**
 * The `scale` subresource: `autoscaling/v1` Scale as a view on `spec.replicas`, `status.replicas` and the selector of a
 * workload. Writes go through the resource's own update with only `spec.replicas` changed.
 */
import type { V1LabelSelector, V1Scale } from '@kubernetes/client-node';
import type { Kind } from '../../api/kinds/wire.ts';
import { cloneJson } from '../../api/meta/json-equality.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { formatLabelSelector } from '../../api/meta/selector.ts';
import { invalid, type FieldError } from '../../api/meta/field-error.ts';
import { newInvalid } from '../../api/meta/status-error.ts';
import type { Schema, SubresourceInfo } from '../../api/schema/schema.ts';
import { validateMetadata } from '../../api/meta/validation.ts';
import { nameIsSubdomain } from '../../api/meta/names.ts';
import { builtInReader, type ExpectedKind } from './object-decoding.ts';
import { patchObject } from './object-patching.ts';
import { writeOptionsObject } from './resource-rest.ts';
import type { ServedVersion } from './version-edge.ts';
import type { Entry, Patch, RequestContext, Rest, WriteOptions, Written } from '../model/rest.ts';
import { getEntry } from './store-read.ts';
import { changeEntry, type AdmissionView, type Change } from './store-write.ts';
import type { ManagedWrite } from './field-management.ts';
import { looseEntry, type Endpoint } from './store.ts';
import { matchName, matchNamespace } from './object-identity.ts';

export type Scale = Kind<Pick<V1Scale, 'spec' | 'status'>>;

interface Workload {
  readonly spec?: { readonly replicas?: number; readonly selector?: unknown };
  readonly status?: { readonly replicas?: number };
}

/** Leaves zero replicas out of `spec` and an empty selector out of `status`, as kube-apiserver does. */
export function newScale(
  { metadata }: KubeObject,
  numbers: { readonly wanted: number; readonly current: number; readonly selector: string },
): Scale {
  const { name, namespace, uid, resourceVersion, creationTimestamp } = metadata;
  const { wanted, current, selector } = numbers;
  return {
    kind: 'Scale',
    apiVersion: 'autoscaling/v1',
    metadata: {
      ...(name === undefined ? {} : { name }),
      ...(namespace === undefined ? {} : { namespace }),
      ...(uid === undefined ? {} : { uid }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
      ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
    },
    spec: wanted === 0 ? {} : { replicas: wanted },
    status: { replicas: current, ...(selector === '' ? {} : { selector }) },
  };
}

export function scaleOf(object: KubeObject): Scale {
  const { spec, status } = object as unknown as Workload;
  return newScale(object, {
    wanted: spec?.replicas ?? 0,
    current: status?.replicas ?? 0,
    selector: selectorText(spec?.selector),
  });
}

/** Selectors of replication controllers are plain labels, of all others label selectors. */
function selectorText(selector: unknown): string {
  if (typeof selector !== 'object' || selector === null) return '';
  if ('matchLabels' in selector || 'matchExpressions' in selector)
    return formatLabelSelector(selector as V1LabelSelector);
  return formatLabelSelector({ matchLabels: selector as Record<string, string> });
}

/** Where an object keeps what its Scale shows. */
export interface ScaleView {
  scaleOf(object: KubeObject): Scale;
  /** The Scale that a write starts from, where the object may still lack what a read requires. */
  scaleBefore?(object: KubeObject): Scale;
  setReplicas(object: KubeObject, replicas: number): void;
  errorsOf(scale: Scale): FieldError[];
}

const workloadScale: ScaleView = {
  scaleOf,
  setReplicas(object, replicas) {
    const spec = (object['spec'] ??= {}) as { replicas?: number };
    spec.replicas = replicas;
  },
  errorsOf: scaleErrors,
};

interface Target {
  readonly namespace: string;
  readonly name: string;
}

export function createScaleRest(
  version: ServedVersion,
  subresource: SubresourceInfo,
  schema: Schema,
  shape: ScaleView = workloadScale,
): Rest {
  const { store } = version;
  const struct = schema.kind(subresource.group, subresource.version, subresource.kind);
  if (struct === undefined) throw new Error('the schema lacks Scale');
  const expected: ExpectedKind = {
    group: subresource.group,
    version: subresource.version,
    kind: subresource.kind,
    struct,
    reader: builtInReader,
    applyDefaults: undefined,
  };
  const endpoint: Endpoint = {
    info: version.info,
    subresource: subresource.name,
    kind: { group: subresource.group, version: subresource.version, kind: subresource.kind },
    strategy: store.strategy,
  };

  /** Runs one write of the Scale through the workload; admission sees the Scale. */
  async function write(
    context: RequestContext,
    target: Target,
    options: WriteOptions,
    kind: 'UpdateOptions' | 'PatchOptions',
    change: Pick<Change, 'compute' | 'uid'>,
  ): Promise<Written> {
    const optionsObject = writeOptionsObject(kind, options);
    const written = await changeEntry(
      store,
      context,
      { endpoint, ...target, options, optionsObject, admissionView },
      { creates: false, ...change },
    );
    return { entry: view(written.entry), created: false };
  }

  /** The workload with the replicas of the Scale that `scaleFrom` makes of the current one. */
  function rescale(context: RequestContext, scaleFrom: (current: Scale) => Scale): Change['compute'] {
    return (current) => {
      const object = cloneJson(current ?? { metadata: {} });
      const scale = scaleFrom(shape.scaleBefore?.(object) ?? shape.scaleOf(object));
      checkScale(scale);
      const live = cloneJson(object);
      shape.setReplicas(object, scale.spec?.replicas ?? 0);
      setVersion(object, scale.metadata.resourceVersion);
      return version.fieldManagement.update(live, object, managedWrite(context));
    };
  }

  /** An apply patch of the Scale is an apply patch of the workload that names the replicas alone. */
  function applyScale(
    context: RequestContext,
    target: Target,
    patch: Extract<Patch, { type: 'apply' }>,
    options: WriteOptions,
  ): Change['compute'] {
    const { fieldValidation } = options;
    const body = { value: patch.body, duplicates: patch.duplicates };
    const scale = version.decoder.decodeBody(context, body, expected, fieldValidation) as Scale;
    matchName(scale, target.name);
    matchNamespace(scale, version.info, target.namespace);
    checkScale(scale);
    const applied: KubeObject = { apiVersion, kind: version.info.kind, metadata: { name: target.name } };
    if (scale.spec?.replicas !== undefined) shape.setReplicas(applied, scale.spec.replicas);
    return (current) => {
      const object = version.fieldManagement.apply(
        current,
        { ...patch, body: applied, duplicates: [] },
        { ...managedWrite(context), target, validation: fieldValidation, warn: (text) => context.warn(text) },
      );
      setVersion(object, scale.metadata.resourceVersion);
      return object;
    };
  }

  function checkScale(scale: Scale): void {
    const errors = shape.errorsOf(scale);
    if (errors.length > 0)
      throw newInvalid({ group: 'autoscaling', resource: 'Scale' }, scale.metadata.name ?? '', errors);
  }

  const { group } = version.info;
  const apiVersion = `${group === '' ? '' : `${group}/`}${version.info.version}`;
  const managedWrite = (context: RequestContext): ManagedWrite => ({
    manager: context.fieldManager,
    apiVersion,
    subresource: 'scale',
    resetFields: store.strategy.resetFields ?? [],
  });
  const admissionView: AdmissionView = {
    show: (object) => shape.scaleBefore?.(object) ?? shape.scaleOf(object),
    take: (shown, object) => shape.setReplicas(object, (shown as Scale).spec?.replicas ?? 0),
  };

  const views = new WeakMap<Entry, Entry>();
  const view = (entry: Entry): Entry => {
    let shown = views.get(entry);
    if (shown === undefined) {
      shown = looseEntry(shape.scaleOf(entry.object));
      views.set(entry, shown);
    }
    return shown;
  };

  return {
    info: version.info,
    tableInfo: { ...version.info, group: 'autoscaling', version: 'v1', kind: 'Scale' },
    subresource,
    get: (context, namespace, name, options) => {
      const entry = getEntry(store, context, { namespace, name }, options);
      return entry instanceof Promise ? entry.then(view) : view(entry);
    },
    async update(context, namespace, name, body, options) {
      const scale = version.decoder.decodeBody(context, body, expected, options.fieldValidation) as Scale;
      matchName(scale, name);
      matchNamespace(scale, version.info, namespace);
      const { uid = '' } = scale.metadata;
      return await write(context, { namespace, name }, options, 'UpdateOptions', {
        compute: rescale(context, () => scale),
        ...(uid === '' ? {} : { uid }),
      });
    },
    async patch(context, namespace, name, patch, options) {
      const target = { namespace, name };
      const compute =
        patch.type === 'apply'
          ? applyScale(context, target, patch, options)
          : rescale(context, (current) => {
              const patched = patchObject(current, patch, expected);
              return version.decoder.decodePatched(context, patched, expected, options.fieldValidation) as Scale;
            });
      return await write(context, target, options, 'PatchOptions', { compute });
    },
  };
}

function setVersion(object: KubeObject, resourceVersion: string | undefined): void {
  // Without one the Scale is written whatever the object's version is: the newest one's stays.
  if (resourceVersion !== undefined) object.metadata.resourceVersion = resourceVersion;
}

function scaleErrors(scale: Scale): FieldError[] {
  const errors = validateMetadata(scale.metadata, { namespaced: true, nameRule: nameIsSubdomain, builtIn: true });
  const replicas = scale.spec?.replicas ?? 0;
  if (replicas < 0) errors.push(invalid('spec.replicas', replicas, 'must be greater than or equal to 0'));
  return errors;
}
