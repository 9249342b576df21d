/** Keeps the history of the pod templates of stateful sets and daemon sets as ControllerRevisions. */
import { escapeMarkup, stringifyJson } from '../../api/codec/json.ts';
import { isJsonObject } from '../../api/meta/json-object.ts';
import type { JsonObject, JsonValue, KubeObject } from '../../api/meta/object.ts';
import { semanticEqual } from '../../api/meta/json-equality.ts';
import type { Selector } from '../../api/meta/selector.ts';
import { isAlreadyExists, isNotFound, tolerate } from '../../api/meta/status-error.ts';
import type { Informer } from '../../api/client/informer.ts';
import type { ControllerRevision } from '../../api/kinds/kinds.ts';
import { controllerRevisions, type ResourceOf } from '../../api/client/resources.ts';
import type { TypedClient } from '../../api/client/typed-client.ts';
import { claim, controllerReference } from './owner-references.ts';
import type { PodTemplate } from './pod-control.ts';
import { safeEncode } from './safe-hash.ts';

/** The label of pods, and of the revisions of daemon sets. */
export const REVISION_HASH = 'controller-revision-hash';
/** The label of the revisions of stateful sets. */
const STATEFUL_HASH = 'controller.kubernetes.io/hash';
/** The part of an owner's name that the names of its revisions begin with, as in kube-controller-manager. */
const MAX_PREFIX_LENGTH = 223;

/**
 * Returns the template as a patch that restores it. The order of members is fixed, because kubectl and kube-controller-manager
 * compare the bytes of such patches.
 */
export function revisionData(template: PodTemplate): JsonValue {
  return inOrder({ spec: { template: { ...(template as unknown as JsonObject), $patch: 'replace' } } });
}

/** Returns the hash of kube-controller-manager for stateful sets: FNV-1 of the stored bytes and the number of collisions. */
export function revisionHash(data: JsonValue, collisionCount: number): string {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(`${escapeMarkup(stringifyJson(data))}${collisionCount}`))
    hash = (Math.imul(hash, 0x01000193) ^ byte) >>> 0;
  return safeEncode(hash);
}

function inOrder(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(inOrder);
  if (!isJsonObject(value)) return value;
  const members = Object.entries(value).filter((member): member is [string, JsonValue] => member[1] !== undefined);
  members.sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(members.map(([name, member]) => [name, inOrder(member)]));
}

/** Returns the pod template that the revision stores as a patch. */
export function templateOf(revision: ControllerRevision): PodTemplate {
  const data = revision['data'] as { spec?: { template?: PodTemplate & { $patch?: string } } } | undefined;
  const { $patch: _, ...template } = data?.spec?.template ?? {};
  return template;
}

/** Returns the hash in the names of objects of the revision. It is empty without a revision, and for one without a hash. */
export function nameHash(revision: ControllerRevision | undefined): string {
  const labels = revision?.metadata.labels;
  return labels?.[REVISION_HASH] ?? labels?.[STATEFUL_HASH] ?? '';
}

interface History<Owner extends KubeObject> {
  readonly client: TypedClient;
  readonly informer: Informer<ControllerRevision>;
  readonly owner: Owner;
  readonly ownerResource: ResourceOf<Owner>;
  readonly selector: Selector;
  readonly template: PodTemplate;
  readonly collisionCount: number;
}

/**
 * Resolves to all revisions in order. The last one, `update`, has the current template. If a revision of another template has
 * its name, raises the owner's `status.collisionCount` and rejects; with the new count, the next call uses another name.
 */
export async function syncRevisions<Owner extends KubeObject>(
  history: History<Owner>,
): Promise<{ readonly all: ControllerRevision[]; readonly update: ControllerRevision }> {
  const { client, owner, ownerResource } = history;
  const claimed = await claim({ ...history, resource: controllerRevisions });
  const sorted = claimed.toSorted(
    (a, b) => a.revision - b.revision || ((a.metadata.name ?? '') < (b.metadata.name ?? '') ? -1 : 1),
  );
  const data = revisionData(history.template);
  const next = (sorted.at(-1)?.revision ?? 0) + 1;
  const same = sorted.findLast((revision) => semanticEqual(revision['data'], data));
  if (same !== undefined) {
    if (same === sorted.at(-1)) return { all: sorted, update: same };
    // A rollback to an old template makes its revision the newest.
    const update = await client.update(controllerRevisions, { ...same, revision: next });
    return { all: [...sorted.filter((revision) => revision !== same), update], update };
  }
  const hash = revisionHash(data, history.collisionCount);
  const namespace = owner.metadata.namespace ?? '';
  const revision: ControllerRevision = {
    apiVersion: 'apps/v1',
    kind: 'ControllerRevision',
    metadata: {
      name: `${(owner.metadata.name ?? '').slice(0, MAX_PREFIX_LENGTH)}-${hash}`,
      namespace,
      labels: {
        ...history.template.metadata?.labels,
        [ownerResource.kind === 'StatefulSet' ? STATEFUL_HASH : REVISION_HASH]: hash,
      },
      ownerReferences: [controllerReference(owner, ownerResource)],
      ...(owner.metadata.annotations === undefined ? {} : { annotations: owner.metadata.annotations }),
    },
    data,
    revision: next,
  };
  try {
    const update = await client.create(controllerRevisions, namespace, revision);
    return { all: [...sorted, update], update };
  } catch (error) {
    if (!isAlreadyExists(error)) throw error;
    const existing = await client.get(controllerRevisions, namespace, revision.metadata.name ?? '');
    if (!semanticEqual(existing['data'], data)) {
      await raiseCollisionCount(history);
      throw error;
    }
    return { all: [...sorted, existing], update: existing };
  }
}

async function raiseCollisionCount<Owner extends KubeObject>(history: History<Owner>): Promise<void> {
  const { client, owner, ownerResource, collisionCount } = history;
  const status = { ...(owner['status'] as JsonObject | undefined), collisionCount: collisionCount + 1 };
  await client.update(ownerResource, { ...owner, status }, { subresource: 'status' });
}

/** Deletes the oldest unused revisions beyond the limit. */
export async function truncateRevisions(
  client: TypedClient,
  all: readonly ControllerRevision[],
  used: ReadonlySet<string>,
  limit: number,
): Promise<void> {
  const unused = all.filter((revision) => !used.has(revision.metadata.name ?? '') && !used.has(nameHash(revision)));
  for (const revision of unused.slice(0, Math.max(0, unused.length - limit))) {
    await tolerate(
      client.delete(controllerRevisions, revision.metadata.namespace ?? '', revision.metadata.name ?? ''),
      isNotFound,
    );
  }
}
