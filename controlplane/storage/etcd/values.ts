/**
 * Translates between the values of the storage (`object-bytes.ts`) and those that kube-apiserver 1.36 writes to etcd: protobuf
 * in an envelope that begins with `k8s\0` for built-in kinds, and JSON for API services, definitions and custom resources.
 *
 * Built-in kinds have the bytes of kube-apiserver. JSON has the same members in another order, and definitions are written in
 * `apiextensions.k8s.io/v1`, which every kube-apiserver since 1.16 reads, instead of `v1beta1`.
 */
import { encodeJson, parseExactJson } from '../../../api/codec/json.ts';
import type { ProtobufCodec } from '../../../api/codec/protobuf.ts';
import { parseApiVersion, type JsonObject, type KubeObject } from '../../../api/meta/object.ts';
import { decodeStruct } from '../../../api/schema/decode.ts';
import { builtinResources } from '../../../api/schema/resources.ts';
import type { Schema } from '../../../api/schema/schema.ts';
import { encodeObject, parseObject } from '../object-bytes.ts';
import { WRITTEN_VERSIONS } from '../written-versions.ts';
import { definitionToV1 } from './definition-to-v1.ts';

/** The translation, for objects of any kind. */
export interface EtcdValues {
  /** Converts the stored form of an object, with or without its resource version. */
  toEtcd(value: Buffer): Buffer;
  /** Converts a value of etcd. Throws if the value is no object, or is an object in a version that has another shape. */
  fromEtcd(value: Buffer): Buffer;
}

/**
 * Returns the translation of values. `codec` writes the zero values, as kube-apiserver does. With `isJson`, built-in kinds are
 * written in JSON as well.
 */
export function etcdValues(
  schema: Schema,
  codec: ProtobufCodec,
  { isJson = false }: { readonly isJson?: boolean } = {},
): EtcdValues {
  return {
    toEtcd(value) {
      const object = parseObject(value);
      delete object.metadata.resourceVersion;
      if (isNewClaim(object)) object['status'] = {};
      const { group, version, kind } = typeOf(object);
      const written = codec.has(group, version, kind) ? WRITTEN_VERSIONS.get(kind) : undefined;
      const versioned = written === undefined ? object : { ...object, apiVersion: `${group}/${written}` };
      if (isJson || !codec.has(group, version, kind) || IN_JSON.has(group))
        return Buffer.concat([encodeJson(versioned), Buffer.from('\n')]);
      return codec.encodeEnveloped(versioned);
    },
    fromEtcd(value) {
      const read = value[0] === OPENING_BRACE ? parseExactJson(value.toString()) : codec.decode(value);
      const object = inStoredVersion(read as unknown as KubeObject);
      const { group, version, kind } = typeOf(object);
      const struct = storedVersions().has(`${group}/${kind}`) ? schema.kind(group, version, kind) : undefined;
      if (struct === undefined) return encodeObject(object);
      return encodeObject(completed(decodeStruct(struct, object).value as unknown as KubeObject));
    },
  };
}

const OPENING_BRACE = 0x7b;

/** Whether the object is a new claim. kube-apiserver writes it without its phase, and adds the phase when it reads. */
function isNewClaim({ kind, status }: KubeObject & { readonly status?: JsonObject }): boolean {
  return kind === 'PersistentVolumeClaim' && status?.['phase'] === 'Pending' && Object.keys(status).length === 1;
}

/** Adds what kube-apiserver adds when it reads, because this or an older release does not write it. Modifies the object. */
function completed(object: KubeObject): KubeObject {
  if (object.kind === 'StatefulSet') {
    const { spec } = object as KubeObject & { spec?: { volumeClaimTemplates?: JsonObject[] } };
    // Protobuf has no kinds of objects within objects.
    for (const claim of spec?.volumeClaimTemplates ?? [])
      Object.assign(claim, { kind: 'PersistentVolumeClaim', apiVersion: 'v1', ...claim });
  } else if (object.kind === 'PersistentVolumeClaim') {
    const claim = object as KubeObject & { status?: { phase?: string } };
    claim.status = { ...claim.status, phase: claim.status?.phase ?? 'Pending' };
  }
  return object;
}

/** The groups of the aggregator and of definitions, whose servers write JSON. */
const IN_JSON: ReadonlySet<string> = new Set(['apiregistration.k8s.io', 'apiextensions.k8s.io']);

/** Kinds whose versions differ in their name alone. */
const SAME_SHAPE: ReadonlySet<string> = new Set([
  ...WRITTEN_VERSIONS.keys(),
  'ClusterTrustBundle',
  'IPAddress',
  'LeaseCandidate',
  'ServiceCIDR',
  'VolumeAttributesClass',
]);

let versions: ReadonlyMap<string, string> | undefined;

/** Returns the version that this project stores, by `group/kind`: the first one that discovery lists. */
function storedVersions(): ReadonlyMap<string, string> {
  versions ??= new Map(
    builtinResources()
      .toReversed()
      .map(({ group, kind, version }) => [`${group}/${kind}`, version]),
  );
  return versions;
}

function inStoredVersion(object: KubeObject): KubeObject {
  const { group, version, kind } = typeOf(object);
  const stored = storedVersions().get(`${group}/${kind}`);
  if (stored === undefined || stored === version) return object;
  const apiVersion = `${group}/${stored}`;
  if (kind === 'CustomResourceDefinition' && version === 'v1beta1')
    return { ...(definitionToV1(object as unknown as JsonObject) as unknown as KubeObject), apiVersion };
  if (SAME_SHAPE.has(kind)) return { ...object, apiVersion };
  throw new Error(
    `a ${kind} is stored in ${group}/${version}, and only ${apiVersion} can be read: write it again first`,
  );
}

function typeOf({ apiVersion, kind, metadata }: Partial<KubeObject>): {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
} {
  const parsed = typeof apiVersion === 'string' ? parseApiVersion(apiVersion) : undefined;
  if (parsed === undefined || typeof kind !== 'string' || typeof metadata !== 'object')
    throw new Error('the value is no object with kind, apiVersion and metadata');
  return { ...parsed, kind };
}
