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
import type { Entry, RequestContext, Rest, WriteOptions, Written } from './rest.ts';
import { getEntry } from './store-read.ts';
import { changeEntry } from './store-write.ts';
import { looseEntry, type Endpoint } from './store.ts';
import { matchName, matchNamespace } from './object-identity.ts';

export type Scale = Kind<Pick<V1Scale, 'spec' | 'status'>>;

interface Workload {
  readonly spec?: { readonly replicas?: number; readonly selector?: unknown };
  readonly status?: { readonly replicas?: number };
}

/** Zero replicas are left out of `spec`, and no selector out of `status`, as the reference does. */
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
  /** What a write is made from, where that may lack what a read must have. */
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

  function write(
    context: RequestContext,
    target: { readonly namespace: string; readonly name: string },
    options: WriteOptions,
    optionsKind: 'UpdateOptions' | 'PatchOptions',
    scaleFrom: (current: Scale) => Scale,
  ): Promise<Written> {
    const compute = (current: KubeObject | undefined): KubeObject => {
      const object = cloneJson(current ?? { metadata: {} });
      const scale = scaleFrom(shape.scaleBefore?.(object) ?? shape.scaleOf(object));
      const errors = shape.errorsOf(scale);
      if (errors.length > 0)
        throw newInvalid({ group: 'autoscaling', resource: 'Scale' }, scale.metadata.name ?? '', errors);
      const live = cloneJson(object);
      shape.setReplicas(object, scale.spec?.replicas ?? 0);
      setVersion(object, scale.metadata.resourceVersion);
      return version.fieldManagement.update(live, object, {
        manager: context.fieldManager,
        apiVersion: `${version.info.group === '' ? '' : `${version.info.group}/`}${version.info.version}`,
        subresource: 'scale',
        resetFields: store.strategy.resetFields ?? [],
      });
    };
    const optionsObject = writeOptionsObject(optionsKind, options);
    return changeEntry(
      store,
      context,
      { endpoint, ...target, options, optionsObject },
      { creates: false, compute },
    ).then((written) => ({ entry: view(written.entry), created: false }));
  }

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
    subresource,
    get: (context, namespace, name, options) => {
      const entry = getEntry(store, context, { namespace, name }, options);
      return entry instanceof Promise ? entry.then(view) : view(entry);
    },
    update: (context, namespace, name, body, options) =>
      write(context, { namespace, name }, options, 'UpdateOptions', () => {
        const scale = version.decoder.decodeBody(context, body, expected, options.fieldValidation) as Scale;
        matchName(scale, name);
        matchNamespace(scale, version.info, namespace);
        return scale;
      }),
    patch: (context, namespace, name, patch, options) =>
      write(context, { namespace, name }, options, 'PatchOptions', (current) => {
        if (patch.type === 'apply') {
          const applied = version.decoder.decodeBody(
            context,
            { value: patch.body, duplicates: patch.duplicates },
            expected,
            options.fieldValidation,
          ) as Scale;
          return { ...current, spec: { ...current.spec, ...applied.spec } };
        }
        const patched = patchObject(current, patch, expected);
        return version.decoder.decodePatched(context, patched, expected, options.fieldValidation) as Scale;
      }),
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
