/**
 * Sets the metadata that only the server sets (UID and creation time), and reads the resourceVersion. Also checks that a body
 * names the object and the namespace of its path.
 */
import { quoteText } from '../../api/meta/quote.ts';
import { randomFillSync } from 'node:crypto';
import { stringifyJson } from '../../api/codec/json.ts';
import { formatTime } from '../../api/machinery/clock.ts';
import type { KubeObject, OwnerReference } from '../../api/meta/object.ts';
import { newBadRequest, newErrorWithoutReason } from '../../api/meta/status-error.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type { RequestContext } from '../model/rest.ts';

/** The number of random bytes that are generated at a time: 16 for each of 256 uids. */
const POOL_SIZE = 16 * 256;
const pool = Buffer.alloc(POOL_SIZE);
let poolAt = POOL_SIZE;

/**
 * Returns a random UUID (version 4) from a pool, because requesting each one from the system costs more than creating the
 * object.
 */
export function newUid(): string {
  if (poolAt >= POOL_SIZE) {
    randomFillSync(pool);
    poolAt = 0;
  }
  const bytes = pool.subarray(poolAt, poolAt + 16);
  poolAt += 16;
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** Removes the fields that a client may not set on a new object. */
export function wipeSystemFields(object: KubeObject): void {
  const { metadata } = object;
  delete metadata.uid;
  delete metadata.creationTimestamp;
  delete metadata.deletionTimestamp;
  delete metadata.deletionGracePeriodSeconds;
  delete metadata.selfLink;
}

/** Sets a new UID and the creation time. */
export function fillSystemFields(object: KubeObject, nowMs: number): void {
  object.metadata.uid = newUid();
  object.metadata.creationTimestamp = formatTime(nowMs);
}

/** Sets the namespace of the path. Throws a 400 if the body names another one. Removes it if the kind has no namespace. */
export function matchNamespace(object: KubeObject, info: ResourceInfo, namespace: string): void {
  const bodyNamespace = object.metadata.namespace ?? '';
  if (!info.namespaced) {
    delete object.metadata.namespace;
    return;
  }
  if (bodyNamespace !== '' && bodyNamespace !== namespace) {
    throw newBadRequest('the namespace of the provided object does not match the namespace sent on the request');
  }
  object.metadata.namespace = namespace;
}

/** Checks that the body of a PUT or a patched object names the object of the path. Throws a 400 otherwise. */
export function matchName(object: KubeObject, name: string): void {
  const bodyName = object.metadata.name ?? '';
  if (bodyName === '') {
    throw newBadRequest(`the name of the object (${name} based on URL) was undeterminable: name must be provided`);
  }
  if (bodyName !== name) {
    throw newBadRequest(`the name of the object (${bodyName}) does not match the name on the URL (${name})`);
  }
}

/** Returns the resourceVersion, or 0 if there is none. Throws kube-apiserver's error for a text that is not a number. */
export function revisionOf(object: KubeObject): number {
  const text = object.metadata.resourceVersion ?? '';
  if (text === '') return 0;
  if (!/^\d+$/.test(text)) throw newErrorWithoutReason(`strconv.ParseUint: parsing ${quoteText(text)}: invalid syntax`);
  return Number(text);
}

const DEDUPLICATED =
  'API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed:';

/** Keeps one of several equal owner references, and adds a warning. */
export function dropRepeatedOwners(
  object: KubeObject,
  context: RequestContext,
  { afterAdmission = false }: { readonly afterAdmission?: boolean } = {},
): void {
  const owners = object.metadata.ownerReferences;
  if (owners === undefined || owners === null || owners.length < 2) return;
  const seen = new Set<string>();
  const repeated = new Set<string>();
  const distinct: OwnerReference[] = [];
  for (const owner of owners) {
    const { apiVersion, kind, name, uid, controller, blockOwnerDeletion } = owner;
    const key = stringifyJson([apiVersion, kind, name, uid, controller, blockOwnerDeletion]);
    if (seen.has(key)) repeated.add(uid);
    else distinct.push(owner);
    seen.add(key);
  }
  if (repeated.size === 0) return;
  object.metadata.ownerReferences = distinct;
  const when = afterAdmission ? ' after mutating admission happens' : '';
  context.warn(
    `.metadata.ownerReferences contains duplicate entries${when}; ${DEDUPLICATED} ${[...repeated].join(', ')}`,
  );
}
