/**
 * The `scale` subresource: serves a workload as the `autoscaling/v1` Scale that `scale-view.ts` maps it to. Writes go through
 * the resource's own update with only the desired replicas changed.
 */
import { cloneJson } from '../../api/meta/json-equality.ts';
import { isJsonObject } from '../../api/meta/json-object.ts';
import { apiVersionOf, type JsonObject, type KubeObject } from '../../api/meta/object.ts';
import { newConflict, newErrorWithoutReason, newInvalid, type StatusError } from '../../api/meta/status-error.ts';
import type { Schema, SubresourceInfo } from '../../api/schema/schema.ts';
import { builtInReader, type ExpectedKind } from './object-decoding.ts';
import { patchObject } from './object-patching.ts';
import { atOnce } from '../../api/machinery/pausing.ts';
import { manageBy, writeOptionsObject } from './resource-rest.ts';
import { type ServedVersion, VersionCodec } from './version-codec.ts';
import type { Body, Entry, Patch, RequestContext, Rest, WriteOptions } from '../model/rest.ts';
import { disownReplicas, withOwners, workloadScale, type Scale, type ScaleView } from './scale-view.ts';
import { getEntry } from './store-read.ts';
import { changeEntry, type Change } from './store-write.ts';
import type { AdmissionView } from './write-admission.ts';
import type { ManagedWrite } from './field-management.ts';
import { readApplied } from './managed-fields.ts';
import { unstoredEntry, type Endpoint } from './store.ts';
import { matchName, matchNamespace } from './object-identity.ts';

interface Target {
  readonly namespace: string;
  readonly name: string;
}

/** Writes a Scale by writing its workload. */
class ScaleWrites {
  readonly #version: ServedVersion;
  readonly #shape: ScaleView;
  readonly #endpoint: Endpoint;
  readonly #admissionView: AdmissionView;
  /** The API version of the workload in managed fields. */
  readonly #apiVersion: string;
  readonly expected: ExpectedKind;

  constructor(version: ServedVersion, subresource: SubresourceInfo, schema: Schema, shape: ScaleView) {
    const { group, version: scaleVersion, kind } = subresource;
    const struct = schema.kind(group, scaleVersion, kind);
    if (struct === undefined) throw new Error('the schema lacks Scale');
    this.#version = version;
    this.#shape = shape;
    this.expected = { group, version: scaleVersion, kind, struct, reader: builtInReader, applyDefaults: undefined };
    this.#endpoint = {
      info: version.info,
      subresource: subresource.name,
      kind: { group, version: scaleVersion, kind },
      strategy: version.store.strategy,
    };
    this.#admissionView = {
      show: (object) => shape.scaleBefore?.(object) ?? shape.scaleOf(object),
      take: (shown, object) => shape.setReplicas(object, (shown as Scale).spec?.replicas ?? 0),
    };
    this.#apiVersion = apiVersionOf(version.info);
  }

  /** Writes the workload, while admission gets the Scale. Returns the entry of the workload. */
  async write(
    context: RequestContext,
    { namespace, name, options }: Target & { readonly options: WriteOptions },
    kind: 'UpdateOptions' | 'PatchOptions',
    change: Pick<Change, 'compute' | 'uid'>,
  ): Promise<Entry> {
    const how = { options, optionsObject: writeOptionsObject(kind, options), isPatch: kind === 'PatchOptions' };
    const written = await changeEntry(
      this.#version.store,
      context,
      { endpoint: this.#endpoint, namespace, name, ...how, admissionView: this.#admissionView },
      { creates: false, ...change },
    );
    return written.entry;
  }

  /**
   * Returns the change that sets the replicas of the workload to those of the Scale that `scaleFrom` computes from the current
   * Scale. The change throws a 422 for an invalid Scale.
   */
  rescale(context: RequestContext, scaleFrom: (current: Scale) => Scale): Change['compute'] {
    return (current) => {
      const object = cloneJson(current ?? { metadata: {} });
      const before = this.#shape.scaleBefore?.(object) ?? this.#shape.scaleOf(object);
      const scale = scaleFrom(withOwners(before, object, this.#shape.replicasPath));
      this.#check(scale);
      const live = cloneJson(object);
      const replicas = scale.spec?.replicas ?? 0;
      const isEmptied = replicas === 0 && before.spec?.replicas !== undefined;
      this.#shape.setReplicas(object, replicas);
      setVersion(object, scale.metadata.resourceVersion);
      if (isEmptied) {
        disownReplicas(object, this.#shape.replicasPath);
        return object;
      }
      const manage = manageBy({ version: this.#version }, 'update');
      return this.#version.fieldManagement[manage](live, object, this.#managedWrite(context));
    };
  }

  /**
   * Returns the change that applies a patch of the Scale, as an apply patch of the workload that contains the replicas alone.
   * Throws a 400, a 422 or a 500 for an invalid patch. The change throws a 409 for conflicts, and a 500 if it changes the
   * replicas of a custom resource.
   */
  apply(
    context: RequestContext,
    target: Target,
    patch: Extract<Patch, { type: 'apply' }>,
    options: WriteOptions,
  ): Change['compute'] {
    const { info, fieldManagement } = this.#version;
    const { fieldValidation } = options;
    const config = readApplied(this.expected, patch.body);
    const metadata = { name: target.name, ...(config['metadata'] as JsonObject | undefined) };
    const isCustom = info.custom !== undefined;
    if (isCustom && metadata.name !== target.name) throw notConverted(String(metadata.name));
    const body = { value: { ...config, metadata }, duplicates: patch.duplicates };
    const scale = this.decode(context, target, body, options);
    this.#check(scale);
    const applied: KubeObject = { apiVersion: this.#apiVersion, kind: info.kind, metadata: { name: target.name } };
    // Decoding drops a zero, which the applier owns nevertheless.
    const spec = config['spec'];
    if (isJsonObject(spec) && spec['replicas'] !== undefined)
      this.#shape.setReplicas(applied, scale.spec?.replicas ?? 0);
    return async (current) => {
      const object = await fieldManagement[manageBy({ version: this.#version }, 'apply')](
        current,
        { ...patch, body: applied, duplicates: [] },
        {
          ...this.#managedWrite(context),
          target,
          validation: fieldValidation,
          shownAs: { version: apiVersionOf(this.expected), field: '.spec.replicas' },
          warn: (text) => context.warn(text),
        },
      );
      if (isCustom && this.#replicasOf(object) !== this.#replicasOf(current)) throw notConverted(target.name);
      setVersion(object, scale.metadata.resourceVersion);
      return object;
    };
  }

  /** Decodes a Scale that a client sent for `target`. Throws a 400 if it names another object. */
  decode(context: RequestContext, target: Target, body: Body, options: WriteOptions): Scale {
    const { decoder, info } = this.#version;
    const scale = atOnce(decoder.decodeBody(context, body, this.expected, options.fieldValidation)) as Scale;
    matchName(scale, target.name);
    matchNamespace(scale, info, target.namespace);
    return scale;
  }

  /** Returns a patched Scale. Throws a 400 if the patch has changed name or namespace, and a 409 if it has changed the UID. */
  sameObject(scale: Scale, target: Target, uid: string | undefined): Scale {
    const { info } = this.#version;
    matchName(scale, target.name);
    matchNamespace(scale, info, target.namespace);
    const patchedUid = scale.metadata.uid ?? '';
    if (patchedUid === '' || patchedUid === uid) return scale;
    const subject = { group: info.group, resource: `${info.resource}/scale` };
    const why = `Precondition failed: UID in precondition: ${patchedUid}, UID in object meta: ${uid ?? ''}`;
    throw newConflict(subject, target.name, why);
  }

  #replicasOf(object: KubeObject | undefined): number | undefined {
    return object === undefined ? undefined : this.#shape.scaleOf(object).spec?.replicas;
  }

  #check(scale: Scale): void {
    const errors = this.#shape.errorsOf(scale);
    if (errors.length > 0)
      throw newInvalid({ group: 'autoscaling', resource: 'Scale' }, scale.metadata.name ?? '', errors);
  }

  #managedWrite(context: RequestContext): ManagedWrite {
    return {
      manager: context.fieldManager,
      apiVersion: this.#apiVersion,
      subresource: 'scale',
      isUntimed: true,
      resetFields: this.#version.store.strategy.resetFields ?? [],
    };
  }
}

/** Creates the `scale` subresource of a version. `shape` says where the workload has its replicas and its selector. */
export function createScaleRest(
  version: ServedVersion,
  subresource: SubresourceInfo,
  schema: Schema,
  shape: ScaleView = workloadScale,
): Rest {
  const { store, decoder } = version;
  const codec = new VersionCodec(version);
  const writes = new ScaleWrites(version, subresource, schema, shape);
  const views = new WeakMap<Entry, Entry>();
  const shownAs = (entry: Entry): Entry => {
    let shown = views.get(entry);
    if (shown === undefined) {
      shown = unstoredEntry(shape.scaleOf(entry.object));
      views.set(entry, shown);
    }
    return shown;
  };
  const view = (stored: Entry): Entry | Promise<Entry> => {
    const served = codec.servedEntry(stored);
    return served instanceof Promise ? served.then(shownAs) : shownAs(served);
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
      const target = { namespace, name };
      const scale = writes.decode(context, target, body, options);
      const { uid = '' } = scale.metadata;
      const entry = await writes.write(context, { ...target, options }, 'UpdateOptions', {
        compute: writes.rescale(context, () => scale),
        ...(uid === '' ? {} : { uid }),
      });
      return { entry: await view(entry), created: false };
    },
    async patch(context, namespace, name, patch, options) {
      const target = { namespace, name };
      const compute =
        patch.type === 'apply'
          ? writes.apply(context, target, patch, options)
          : writes.rescale(context, (current) => {
              const patched = atOnce(patchObject(current, patch, writes.expected));
              const scale = atOnce(
                decoder.decodePatched(context, patched, writes.expected, options.fieldValidation),
              ) as Scale;
              return writes.sameObject(scale, target, current.metadata.uid);
            });
      const entry = await writes.write(context, { ...target, options }, 'PatchOptions', { compute });
      return { entry: await view(entry), created: false };
    },
  };
}

/**
 * Builds kube-apiserver's error for the apply of a custom resource's Scale, which it cannot convert to the version of the
 * resource.
 */
function notConverted(name: string): StatusError {
  const why = 'request to convert CR to an invalid group/version: autoscaling/v1';
  const subject = `/${name}; autoscaling/v1, Kind=Scale`;
  return newErrorWithoutReason(`failed to convert new object (${subject}) to proper version: ${why}`);
}

function setVersion(object: KubeObject, resourceVersion: string | undefined): void {
  // A Scale without a resourceVersion overwrites the workload unconditionally.
  if (resourceVersion !== undefined) object.metadata.resourceVersion = resourceVersion;
}
