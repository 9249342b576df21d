/**
 * Reads static pods from the text of a manifest: decodes, defaults and validates them, adds the node's name to their names, and
 * derives the uid from the content if the manifest has none, so that a changed manifest is another pod.
 */
import { PlainError } from '../../api/component/plain-error.ts';
import { createHash } from 'node:crypto';
import { lineOf } from '../../api/codec/field-lines.ts';
import { canonicalJson } from '../../api/codec/structured-merge/path-element.ts';
import type { YamlParser } from '../../api/codec/yaml-thread.ts';
import { initAndMainContainers } from '../../api/kinds/pod-containers.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import type { JsonValue } from '../../api/meta/object.ts';
import type { FieldError } from '../../api/meta/field-error.ts';
import { ANNOTATION_CONFIG_HASH } from '../base/model/pod-kinds.ts';
import type { Pod } from '../base/model/pod.ts';
import type { PodSourceName } from './pod-source.ts';
import { identityFault } from './pod-identity.ts';
import { isStaticObject, readStaticObject, type StaticObject } from './static-objects.ts';
import { SOURCE_ANNOTATION } from '../../api/kinds/pod-annotations.ts';

/** The error of an invalid manifest. `message` names the origin, the line and the field. */
export class ManifestError extends PlainError {
  override readonly name = 'ManifestError';
}

/** Decodes, defaults and validates a pod as the API server does. */
export interface PodReader {
  /**
   * Returns the pod, warnings such as those of unknown fields, and the errors for which the pod is rejected. Throws an error
   * for a value that cannot be decoded.
   */
  read(value: unknown): {
    readonly pod: Pod;
    readonly warnings: readonly string[];
    readonly errors: readonly FieldError[];
  };
}

interface StaticPodOptions {
  readonly source: PodSourceName;
  /** The file name or URL. It appears in messages and is part of the uid. */
  readonly origin: string;
  readonly nodeName: string;
  readonly yaml: YamlParser;
  readonly reader: PodReader;
  /** ConfigMaps and Secrets may lie beside pods, and pods may use them. */
  readonly withObjects?: boolean;
}

interface ReadManifest {
  readonly pods: readonly Pod[];
  /** The objects that the manifests contain beside pods. It is empty without `withObjects`. */
  readonly objects: readonly StaticObject[];
  readonly warnings: readonly string[];
}

/** Reads one object, several YAML documents, or a list. Throws `ManifestError`. */
export async function readManifest(text: Buffer, options: StaticPodOptions): Promise<ReadManifest> {
  const pods: Pod[] = [];
  const objects: StaticObject[] = [];
  const warnings: string[] = [];
  for (const value of await manifestValues(text, options)) {
    if (options.withObjects === true && isStaticObject(value)) {
      objects.push(readObject(value, options));
      continue;
    }
    const read = readPod(value, text, options);
    pods.push(read.pod);
    warnings.push(...read.warnings);
  }
  return { pods, objects, warnings };
}

function readObject(value: unknown, { origin }: StaticPodOptions): StaticObject {
  try {
    return readStaticObject(value);
  } catch (error) {
    throw new ManifestError(`${origin}: ${errorMessage(error)}`, { cause: error });
  }
}

async function manifestValues(text: Buffer, { origin, yaml }: StaticPodOptions): Promise<unknown[]> {
  let values: unknown[];
  try {
    const isMany = /^---(?:\s|$)/m.test(text.toString('latin1'));
    values = isMany ? await yaml.all(text) : [(await yaml.first(text)).value];
  } catch (error) {
    throw new ManifestError(`${origin}: ${errorMessage(error)}`, { cause: error });
  }
  const manifests = values
    .filter((value) => value !== null && value !== undefined)
    .flatMap((value) => {
      const kind = (value as { kind?: unknown }).kind;
      if (kind === 'PodList' || kind === 'List') return (value as { items?: unknown[] }).items ?? [];
      return [value];
    });
  // A file that is being written begins empty: that is not the same as a list of no pods.
  if (values.every((value) => value === null || value === undefined))
    throw new ManifestError(`${origin}: the manifest is empty`);
  return manifests;
}

function readPod(value: unknown, text: Buffer, options: StaticPodOptions): { pod: Pod; warnings: string[] } {
  const { origin, nodeName, source, reader } = options;
  const kind = (value as { kind?: unknown } | null)?.kind;
  if (typeof value !== 'object' || value === null || (kind !== undefined && kind !== 'Pod')) {
    throw new ManifestError(
      `${origin}: a Pod is expected, not ${kind === undefined ? typeof value : `a ${String(kind)}`}`,
    );
  }
  const prepared = prepare(value as Record<string, unknown>, options);
  let result: ReturnType<PodReader['read']>;
  try {
    result = reader.read(prepared);
  } catch (error) {
    throw new ManifestError(`${origin}: ${errorMessage(error)}`, { cause: error });
  }
  if (result.errors.length > 0) {
    const lines = text.toString('utf8').split('\n');
    const reported = result.errors.slice(0, MAX_SHOWN_ERRORS);
    const places = reported.map((error) => `${lineOf(lines, error.field)}${String(error)}`);
    const more = result.errors.length - reported.length;
    throw new ManifestError(
      `${origin}: invalid pod: ${places.join('; ')}${more === 0 ? '' : `; and ${more} more errors`}`,
    );
  }
  const refused = referencesToApi(result.pod, options);
  if (refused.length > 0) throw new ManifestError(`${origin}: a static pod may not use ${refused.join(', ')}`);
  const pod = result.pod;
  const hasUid = (pod.metadata.uid ?? '') !== '';
  const content = canonicalJson(value as JsonValue);
  const uid = hasUid ? pod.metadata.uid : digest([nodeName, source, origin, content]);
  const annotations = {
    ...pod.metadata.annotations,
    // The hash is the uid, as in the kubelet. A uid of the manifest stays when the content changes, so it is no hash.
    [ANNOTATION_CONFIG_HASH]: hasUid ? digest([content]) : uid,
    [SOURCE_ANNOTATION]: source,
  };
  const identified = { ...pod, metadata: { ...pod.metadata, uid, annotations } };
  const fault = identityFault(identified);
  if (fault !== '') throw new ManifestError(`${origin}: invalid pod: ${fault}`);
  return {
    pod: identified,
    warnings: result.warnings.map((warning) => `${origin}: ${warning}`),
  };
}

/** The maximum number of errors that are reported with their lines, because finding a line takes a pass through the text. */
const MAX_SHOWN_ERRORS = 20;

/** Sets the fields of a static pod that the agent decides before defaulting, such as name, namespace, node and tolerations. */
function prepare(value: Record<string, unknown>, options: StaticPodOptions): Record<string, unknown> {
  const metadata = asRecord(value['metadata']);
  const spec = asRecord(value['spec']);
  const { status: _status, ...fields } = value;
  const { name } = metadata;
  return {
    ...fields,
    apiVersion: value['apiVersion'] ?? 'v1',
    kind: 'Pod',
    metadata: {
      ...metadata,
      // A pod without a name must fail the validation. With the suffix `-<node>` it would pass.
      ...(typeof name === 'string' && name !== '' ? { name: `${name}-${options.nodeName.toLowerCase()}` } : {}),
      namespace:
        typeof metadata['namespace'] === 'string' && metadata['namespace'] !== '' ? metadata['namespace'] : 'default',
      uid: typeof metadata['uid'] === 'string' ? metadata['uid'] : '',
    },
    spec: {
      ...spec,
      nodeName: options.nodeName,
      // Pods of a URL do not get the toleration, as in the kubelet.
      ...(options.source === 'http' ? {} : { tolerations: withToleration(spec['tolerations']) }),
    },
  };
}

/** Returns the tolerations with one for all taints of the effect NoExecute, so that taints do not evict the static pod. */
function withToleration(stated: unknown): unknown[] {
  const tolerations = Array.isArray(stated) ? (stated as unknown[]) : [];
  const isThere = tolerations.some((each) => {
    const { key = '', operator, value = '', effect } = asRecord(each);
    return key === '' && operator === 'Exists' && value === '' && effect === 'NoExecute';
  });
  return isThere ? tolerations : [...tolerations, { operator: 'Exists', effect: 'NoExecute' }];
}

function asRecord(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

/**
 * Returns the references to API objects, which a static pod must not have because it may run before there is an API server.
 * Pods of a folder may use ConfigMaps and Secrets, which lie beside them.
 */
function referencesToApi(pod: Pod, { withObjects = false }: Pick<StaticPodOptions, 'withObjects'>): string[] {
  const found = new Set<string>();
  if ((pod.spec.resourceClaims ?? []).length > 0) found.add('resource claims (spec.resourceClaims)');
  if ((pod.spec.serviceAccountName ?? '') !== '') found.add('service accounts (spec.serviceAccountName)');
  if ((pod.spec.imagePullSecrets ?? []).length > 0 && !withObjects) found.add('secrets (spec.imagePullSecrets)');
  for (const volume of pod.spec.volumes ?? []) {
    if (volume.csi !== undefined) found.add(`CSI drivers (volume ${volume.name})`);
    if (volume.configMap !== undefined && !withObjects) found.add(`config maps (volume ${volume.name})`);
    if (volume.secret !== undefined && !withObjects) found.add(`secrets (volume ${volume.name})`);
    if (volume.ephemeral !== undefined) found.add(`ephemeral volume claims (volume ${volume.name})`);
    if (volume.persistentVolumeClaim !== undefined) found.add(`persistent volume claims (volume ${volume.name})`);
    for (const source of volume.projected?.sources ?? []) {
      if (
        (source.configMap !== undefined && !withObjects) ||
        (source.secret !== undefined && !withObjects) ||
        source.serviceAccountToken !== undefined ||
        source.clusterTrustBundle !== undefined ||
        source.podCertificate !== undefined
      ) {
        found.add(`projected API objects (volume ${volume.name})`);
      }
    }
  }
  if (withObjects) return [...found];
  for (const container of initAndMainContainers(pod.spec)) {
    if (container.envFrom !== undefined && container.envFrom.length > 0)
      found.add(`envFrom (container ${container.name})`);
    for (const env of container.env ?? []) {
      if (env.valueFrom?.configMapKeyRef !== undefined || env.valueFrom?.secretKeyRef !== undefined)
        found.add(`config map and secret keys (container ${container.name})`);
    }
  }
  return [...found];
}

function digest(parts: readonly string[]): string {
  const hash = createHash('md5');
  for (const part of parts) hash.update(part).update('\0');
  return hash.digest('hex');
}
