/**
 * Implements JSON Patch (RFC 6902), with the exceptions of kube-apiserver's library: `replace`, `copy` and `test` treat a
 * missing member as null, and array indices may count from the end.
 *
 * Neither the document nor the patch is modified.
 */
import { inOneSlice } from '../machinery/time-slice.ts';
import { cloneJson, jsonEqual } from '../meta/json-equality.ts';
import { setMember } from '../meta/own-member.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import { quoteText } from '../meta/quote.ts';
import {
  isStatusError,
  newBadRequest,
  newRequestEntityTooLarge,
  newStatusError,
  type StatusError,
} from '../meta/status-error.ts';

/** The maximum number of operations of a patch, as in kube-apiserver. */
const MAX_OPERATIONS = 10_000;
/** The maximum size, as JSON, that all `copy` operations of a patch may add to a document, because copies of copies double. */
const MAX_COPIED_BYTES = 3 * 1024 * 1024;

interface Operation {
  readonly op: string;
  readonly path: string | undefined;
  readonly from: string | undefined;
  readonly value: JsonValue;
}

type Container = JsonValue[] | JsonObject;

/** The number of items of lists that are moved between two pauses, which takes some milliseconds. */
const MOVED_BETWEEN_PAUSES = 5_000_000;

/**
 * Returns the document with the operations applied. Throws a 400 for an invalid patch, a 413 for too many operations, and a 422
 * for an operation that does not apply.
 */
export const applyJsonPatch = (document: JsonValue, patch: unknown): JsonValue =>
  inOneSlice(jsonPatchSteps(document, patch));

/** Does what `applyJsonPatch` does, and pauses after operations that move many list items. */
export function* jsonPatchSteps(document: JsonValue, patch: unknown): Generator<undefined, JsonValue, undefined> {
  const operations = readOperations(patch);
  const root: Root = { document: cloneJson(document), copiedBytes: 0, movedItems: 0 };
  for (const operation of operations) {
    applyOperation(root, operation);
    if (root.movedItems < MOVED_BETWEEN_PAUSES) continue;
    root.movedItems = 0;
    yield;
  }
  return root.document;
}

function readOperations(patch: unknown): Operation[] {
  if (patch === null) return [];
  if (!Array.isArray(patch)) throw undecodable(`${jsonTypeName(patch)} into Go value of type []handlers.jsonPatchOp`);
  if (patch.length > MAX_OPERATIONS) {
    throw newRequestEntityTooLarge(
      `Request entity too large: The allowed maximum operations in a JSON patch is ${MAX_OPERATIONS}, got ${patch.length}`,
    );
  }
  return patch.map((raw: unknown) => {
    if (typeof raw !== 'object' || Array.isArray(raw)) {
      throw undecodable(`${jsonTypeName(raw)} into Go value of type handlers.jsonPatchOp`);
    }
    // Go decodes null to an operation without members.
    const members = (raw ?? {}) as JsonObject;
    return {
      op: textMember(members, 'op') ?? 'unknown',
      path: textMember(members, 'path'),
      from: textMember(members, 'from'),
      value: members['value'] ?? null,
    };
  });
}

function textMember(members: JsonObject, name: string): string | undefined {
  const value = Object.hasOwn(members, name) ? members[name] : undefined;
  if (value === undefined || value === null || typeof value === 'string') return value ?? undefined;
  throw undecodable(`${jsonTypeName(value)} into Go struct field jsonPatchOp.${name} of type string`);
}

/** Returns the name of a JSON type in decoding errors. */
export function jsonTypeName(value: unknown): string {
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'boolean') return 'bool';
  return typeof value === 'bigint' ? 'number' : typeof value;
}

const undecodable = (text: string): StatusError =>
  newBadRequest(`error decoding patch: json: cannot unmarshal ${text}`);

/**
 * Builds the error of a patch that does not apply. As in kube-apiserver, the status does not name the failed operation. The
 * cause does, in the words of its library.
 */
function inapplicable(why: string | TestFailure): StatusError {
  return newStatusError(422, 'Invalid', 'the server rejected our request due to an error in our request', {
    details: {},
    cause: typeof why === 'string' ? new Error(why) : why,
  });
}

/** The cause of the failure of a `test` operation. */
class TestFailure extends Error {
  override readonly name = 'TestFailure';
}

/** Whether `applyJsonPatch` failed because the document is not as a `test` operation expects it. */
export function isTestFailure(error: unknown): boolean {
  return error instanceof Error && error.cause instanceof TestFailure;
}

/** Returns why `applyJsonPatch` failed. */
export function patchFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? error.cause.message : error.message;
}

interface Root {
  document: JsonValue;
  copiedBytes: number;
  movedItems: number;
}

function applyOperation(root: Root, { op, path: givenPath, from: givenFrom, value }: Operation): void {
  const from = op === 'move' || op === 'copy' ? requiredPointer(op, 'from', givenFrom) : '';
  const path = requiredPointer(op, 'path', givenPath);
  switch (op) {
    case 'add': {
      const place = target(root, path, missingText('add', `path: "${path}"`));
      withErrorPrefix(`error in add for path: '${path}'`, () => add(root, place, cloneJson(value)));
      return;
    }
    case 'remove': {
      const place = target(root, path, missingText('remove', `path: "${path}"`));
      withErrorPrefix(`error in remove for path: '${path}'`, () => remove(root, place));
      return;
    }
    case 'replace':
      replace(root, path, cloneJson(value));
      return;
    case 'move': {
      const source = target(root, from, missingText('move', `from path: ${from}`));
      const moved = withErrorPrefix(`error in move for path: '${source.key}'`, () => {
        const found = read(source) ?? null;
        remove(root, source);
        return found;
      });
      const place = target(root, path, missingText('move', `destination path: ${path}`));
      withErrorPrefix(`error in move for path: '${path}'`, () => add(root, place, moved));
      return;
    }
    case 'copy':
      copy(root, from, path);
      return;
    case 'test': {
      const place =
        path === '' ? undefined : target(root, path, `test operation does not apply: is missing path: ${path}`);
      const found =
        place === undefined
          ? root.document
          : withErrorPrefix(`error in test for path: '${path}'`, () => read(place) ?? null);
      if (!jsonEqual(found, value)) throw inapplicable(new TestFailure(`testing value ${path} failed: test failed`));
      return;
    }
    default:
      throw inapplicable(`Unexpected kind: ${op}`);
  }
}

/** Returns a pointer of an operation. Throws a 422 if it is absent. */
function requiredPointer(op: string, name: 'path' | 'from', pointer: string | undefined): string {
  if (pointer !== undefined) return pointer;
  if (!OPERATIONS.has(op)) throw inapplicable(`Unexpected kind: ${op}`);
  const field = name === 'from' ? 'operation, missing from field: ' : 'operation missing path field: ';
  const isShort = name === 'path' && (op === 'add' || op === 'remove' || op === 'copy');
  throw inapplicable(`${op} operation failed to decode ${name}: ${isShort ? '' : field}missing value`);
}

const OPERATIONS: ReadonlySet<string> = new Set(['add', 'remove', 'replace', 'move', 'copy', 'test']);

/** Calls `change`, and puts `prefix` before the reason if it fails. */
function withErrorPrefix<T>(prefix: string, change: () => T): T {
  try {
    return change();
  } catch (error) {
    if (!isStatusError(error)) throw error;
    throw inapplicable(`${prefix}: ${patchFailure(error)}`);
  }
}

function copy(root: Root, from: string, path: string): void {
  const source = target(root, from, missingText('copy', `from path: ${from}`));
  const copied = withErrorPrefix(`error in copy for from: '${from}'`, () => read(source) ?? null);
  root.copiedBytes += jsonSize(copied, MAX_COPIED_BYTES - root.copiedBytes);
  if (root.copiedBytes > MAX_COPIED_BYTES)
    throw inapplicable(`copies add ${root.copiedBytes} bytes, the limit is ${MAX_COPIED_BYTES}`);
  const place = target(root, path, missingText('copy', `destination path: ${path}`));
  withErrorPrefix('error while adding value during copy', () => add(root, place, cloneJson(copied)));
}

function replace(root: Root, path: string, value: JsonValue): void {
  if (path === '') {
    if (typeof value !== 'object' || value === null) throw inapplicable('a document is an object or a list');
    root.document = value;
    return;
  }
  const { container, key } = target(root, path, missingText('replace', `path: ${path}`));
  if (!Array.isArray(container)) setMember(container, key, value);
  else {
    const index = placeOf(key, container.length);
    if (index === undefined) throw inapplicable(`${missingText('replace', `key: ${path}`)}: missing value`);
    container[index] = value;
  }
}

/** Returns the approximate length of a value as JSON. Counting stops soon after `limit`. */
function jsonSize(value: JsonValue | undefined, limit: number): number {
  if (typeof value === 'string') return value.length + 2;
  if (typeof value !== 'object' || value === null) return String(value).length;
  let size = 2;
  if (Array.isArray(value)) {
    for (const item of value) {
      if (size > limit) break;
      size += 1 + jsonSize(item, limit - size);
    }
    return size;
  }
  for (const [key, member] of Object.entries(value)) {
    if (size > limit) break;
    size += key.length + 4 + jsonSize(member, limit - size);
  }
  return size;
}

interface Target {
  readonly container: Container;
  readonly key: string;
}

/** Returns the names in a JSON pointer (RFC 6901): `/spec/a~1b` is `spec` and `a/b`. A text without a slash has none. */
export function pointerNames(pointer: string): string[] {
  const parts = pointer.split('/').slice(1);
  return parts.map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
}

const missingText = (op: string, what: string): string => `${op} operation does not apply: doc is missing ${what}`;

/** Returns the container of the last part of a pointer. Throws a 422 with the reason `absent` if there is none. */
function target(root: Root, pointer: string | undefined, absent: string): Target {
  const names = pointerNames(pointer ?? '');
  const key = names.pop();
  if (key === undefined) throw inapplicable(`${absent}: missing value`);
  let container = asContainer(root.document, absent);
  for (const name of names) container = asContainer(memberOf(container, name), absent);
  return { container, key };
}

function asContainer(value: JsonValue | undefined, absent: string): Container {
  if (typeof value !== 'object' || value === null) throw inapplicable(`${absent}: missing value`);
  return value;
}

function read({ container, key }: Target): JsonValue | undefined {
  if (Array.isArray(container)) indexIn(key, container.length);
  return memberOf(container, key);
}

function memberOf(container: Container, key: string): JsonValue | undefined {
  if (Array.isArray(container)) return container[placeOf(key, container.length) ?? -1];
  return Object.hasOwn(container, key) ? container[key] : undefined;
}

function add(root: Root, { container, key }: Target, value: JsonValue): void {
  if (!Array.isArray(container)) setMember(container, key, value);
  else if (key === '-') container.push(value);
  else {
    const index = withErrorPrefix(`value was not a proper array index: '${key}'`, () => numberOf(key));
    const place = indexIn(String(index), container.length + 1);
    root.movedItems += container.length - place;
    container.splice(place, 0, value);
  }
}

function remove(root: Root, { container, key }: Target): void {
  if (Array.isArray(container)) {
    const index = indexIn(key, container.length);
    root.movedItems += container.length - index;
    container.splice(index, 1);
  } else if (Object.hasOwn(container, key)) delete container[key];
  else throw inapplicable(`Unable to remove nonexistent key: ${key}: missing value`);
}

function numberOf(key: string): number {
  if (/^[+-]?[0-9]+$/.test(key)) return Number(key);
  throw inapplicable(`strconv.Atoi: parsing ${quoteText(key)}: invalid syntax`);
}

function indexIn(key: string, places: number): number {
  const index = numberOf(key);
  const place = placeOf(key, places);
  if (place === undefined) throw inapplicable(`Unable to access invalid index: ${index}: invalid index referenced`);
  return place;
}

/**
 * Returns the place of an index, or `undefined` if there is none. A negative index counts from the end of the places: an item
 * that is added at -1 becomes the last one.
 */
function placeOf(key: string, places: number): number | undefined {
  if (!/^[+-]?[0-9]+$/.test(key)) return undefined;
  const index = Number(key);
  const place = index < 0 ? index + places : index;
  return place < 0 || place >= places ? undefined : place;
}
