/** Limits what large objects cost other requests. */
import { setImmediate } from 'node:timers/promises';
import type { KubeObject } from '../../api/meta/object.ts';
import { newRequestEntityTooLarge } from '../../api/meta/status-error.ts';
import { encodeObject } from '../storage/object-bytes.ts';

/** The size in bytes of JSON above which a write runs in several turns. */
export const LARGE_BYTES = 128 * 1024;

/**
 * Yields to the event loop. State that was read before may be stale afterwards. The first `setImmediate` may still run in the
 * iteration of the event loop that read the request, so only the second one lets other requests proceed.
 */
export async function nextTurn(): Promise<void> {
  await setImmediate();
  await setImmediate();
}

/**
 * The size in bytes up to which objects are stored. It is the limit of bodies; without it, patches could grow an object without
 * end.
 */
const MAX_OBJECT_BYTES = 3 * 1024 * 1024;

/**
 * Returns the bytes to store. If they would be too many, `object` loses its managed fields. Throws a 413 if the bytes are too
 * many without managed fields as well.
 */
export function encodeBounded(object: KubeObject): Buffer {
  const bytes = encodeObject(object);
  if (bytes.length <= MAX_OBJECT_BYTES) return bytes;
  const { managedFields, ...metadata } = object.metadata;
  if (managedFields !== undefined) {
    object.metadata = metadata;
    return encodeBounded(object);
  }
  throw newRequestEntityTooLarge(
    `request is too large: the object would have ${bytes.length} bytes as JSON, the limit is ${MAX_OBJECT_BYTES}`,
  );
}
