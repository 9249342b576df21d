/** Applies and removes single objects of manifests by server-side apply. The loop of `manifests.ts` decides which and when. */
import type { Client, Resource } from '../../../api/client/client.ts';
import { apiVersionOf, type KubeObject } from '../../../api/meta/object.ts';
import { isNotFound, tolerate, tolerateRaces } from '../../../api/meta/status-error.ts';
import { stringifyJson } from '../../../api/codec/json.ts';
import type { ResourceCatalog } from '../../model/rest.ts';
import { type InventoryEntry, MANIFEST_LABEL } from './inventory.ts';
import type { ManifestDocument } from './manifest-documents.ts';

/** `once`: the object is created if it is missing, and never changed. */
const APPLY = 'orchlet.local/apply';
/** `false`: the object stays when its manifest leaves the folder. `true`: the object is deleted then, whatever its kind. */
const PRUNE = 'orchlet.local/prune';

/** Kinds whose objects stay, because their deletion would also delete what others have put into them. */
const KEPT_KINDS: ReadonlySet<string> = new Set([
  '/Namespace',
  '/PersistentVolume',
  '/PersistentVolumeClaim',
  'apiextensions.k8s.io/CustomResourceDefinition',
]);

/** The object cannot be applied yet, without a fault of the manifest. */
export class NotYetError extends Error {
  override readonly name = 'NotYetError';
}

/**
 * Returns the served resource of a kind, by which its objects are applied. Returns `undefined` if no served resource of the
 * kind can be applied.
 */
export function resourceOf(
  catalog: ResourceCatalog,
  { group, kind, version }: { readonly group: string; readonly kind: string; readonly version?: string },
): Resource | undefined {
  return catalog
    .resources()
    .find(
      (row) =>
        row.group === group &&
        row.kind === kind &&
        (version === undefined || row.version === version) &&
        row.verbs.includes('patch'),
    );
}

/** Reads an object. Resolves to undefined if the object does not exist; rejects with every other error. */
export function find(
  client: Client,
  resource: Resource,
  namespace: string,
  name: string,
): Promise<KubeObject | undefined> {
  return tolerate(client.get(resource, namespace, name), isNotFound);
}

/** The UID of an applied object, and what the apply changed. */
interface Applied {
  readonly uid: string;
  readonly change: 'created' | 'configured' | 'unchanged';
}

/**
 * Applies an object of a manifest. `label` is the name of the inventory. Rejects with `NotYetError` while an object of the
 * name is being deleted.
 */
export async function applyObject(
  client: Client,
  document: ManifestDocument,
  target: { readonly resource: Resource; readonly namespace: string; readonly label: string },
): Promise<Applied> {
  const { resource, namespace, label } = target;
  const live = await find(client, resource, namespace, document.name);
  if (live?.metadata.deletionTimestamp !== undefined) throw new NotYetError('An object of this name is being deleted');
  if (live !== undefined && document.object.metadata.annotations?.[APPLY] === 'once')
    return { uid: live.metadata.uid ?? '', change: 'unchanged' };
  const body = bodyOf(document, namespace, label);
  const { metadata } = await client.patch(resource, namespace, document.name, { type: 'apply', body, force: true });
  const isSame = live?.metadata.resourceVersion === metadata.resourceVersion;
  return { uid: metadata.uid ?? '', change: live === undefined ? 'created' : isSame ? 'unchanged' : 'configured' };
}

/** Leaves out what a server sets, which manifests that were printed by kubectl have. */
function bodyOf({ object }: ManifestDocument, namespace: string, label: string): KubeObject {
  const { status: _status, metadata, ...userFields } = object;
  const {
    managedFields: _managed,
    resourceVersion: _version,
    uid: _uid,
    creationTimestamp: _created,
    generation: _generation,
    selfLink: _link,
    namespace: _namespace,
    ...userMetadata
  } = metadata;
  const labels = { ...userMetadata.labels, [MANIFEST_LABEL]: label };
  return { ...userFields, metadata: { ...userMetadata, ...(namespace === '' ? {} : { namespace }), labels } };
}

/** `left` is an object that the inventory does not own any more. */
type Pruned = 'deleted' | 'left' | 'gone';

/** Deletes the object of an entry, or leaves it without the label. Never touches an object with another label. */
export async function pruneObject(
  client: Client,
  catalog: ResourceCatalog,
  entry: InventoryEntry,
  label: string,
): Promise<Pruned> {
  const resource = resourceOf(catalog, entry);
  // The objects were deleted with the definition of their kind, or nothing serves them.
  if (resource === undefined) return 'gone';
  const { namespace, name, uid } = entry;
  const live = await find(client, resource, namespace, name);
  if (live?.metadata.labels?.[MANIFEST_LABEL] !== label) return 'gone';
  if (uid !== '' && live.metadata.uid !== uid) return 'gone';
  if (outlivesManifest(entry, live)) {
    const metadata = { uid: live.metadata.uid, labels: { [MANIFEST_LABEL]: null } };
    await tolerateRaces(client.patch(resource, namespace, name, { type: 'merge', body: { metadata } }));
    return 'left';
  }
  const preconditions = { uid: live.metadata.uid ?? '' };
  await tolerate(
    client.delete(resource, namespace, name, { preconditions, propagationPolicy: 'Background' }),
    isNotFound,
  );
  return 'deleted';
}

function outlivesManifest({ group, kind, isAdopted }: InventoryEntry, live: KubeObject): boolean {
  const prune = live.metadata.annotations?.[PRUNE];
  if (prune === 'false') return true;
  return prune !== 'true' && (isAdopted || KEPT_KINDS.has(`${group}/${kind}`));
}

/** Returns the name of an object in messages, as kubectl does. */
export function nameOf({ kind, name, namespace }: Pick<InventoryEntry, 'kind' | 'name' | 'namespace'>): string {
  return `${kind} ${namespace === '' ? name : `${namespace}/${name}`}`;
}

/** Returns a text that differs for documents with different content. */
export function contentOf({ object, group, version }: ManifestDocument): string {
  return `${apiVersionOf({ group, version })}\0${stringifyJson(object)}`;
}
