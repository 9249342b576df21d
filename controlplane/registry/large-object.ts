/**
 * What large objects cost others, bounded: the steps of a write (decode, own, validate, encode) are turns of the event loop
 * of their own, so that other requests are answered between them, and nothing is stored beyond a bound. Small writes, which
 * is nearly all of them, take no such turns. Called by the store and the verbs.
 */
import { setImmediate } from 'node:timers/promises';
import type { KubeObject } from '../../api/meta/object.ts';
import { newRequestEntityTooLarge } from '../../api/meta/status-error.ts';
import { encodeObject } from '../storage/object-bytes.ts';

/** From here on a write takes turns. */
export const LARGE_BYTES = 128 * 1024;

/** Lets others be served in between; nothing that was read before is to be trusted after it. */
export const nextTurn = (): Promise<void> => setImmediate();

/** As a body's; patches could let an object grow without end. */
const MAX_OBJECT_BYTES = 3 * 1024 * 1024;

/**
 * The bytes to store. Who owned which field is forgotten where the object would be too large with it. Throws 413 with words
 * that clients look for.
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
