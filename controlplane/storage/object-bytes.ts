/**
 * Encodes and reads the stored form of objects: JSON that begins with
 * `{"kind":K,"apiVersion":V,"metadata":{"name":N,"namespace":S,"labels":{L}`, so that the revision is inserted, and labels are
 * read, without parsing.
 */
import { escapeMarkup, parseExactJson, stringifyJson } from '../../api/codec/json.ts';
import type { KubeObject } from '../../api/meta/object.ts';

const LEADING: ReadonlySet<string> = new Set(['kind', 'apiVersion', 'metadata']);
const METADATA = Buffer.from('"metadata":{');
const RESOURCE_VERSION = Buffer.from('"resourceVersion":"');
const CLOSING_BRACE = 0x7d;
const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
/** The number of bytes within which the metadata begin, because kind and apiVersion before them are short. */
const SEARCH_LIMIT = 1024;
/**
 * Values below this size share slabs of Node.js, each of which is freed with the last value in it. Larger values have memory of
 * their own.
 */
const SHARED_SLAB_BYTES = 512;

/** Returns the bytes to store: kind and apiVersion come first, and the resourceVersion is left out. */
export function encodeObject(object: KubeObject): Buffer {
  const { kind, apiVersion, metadata } = object;
  const { name, generateName, namespace, labels, resourceVersion: _dropped, ...others } = metadata;
  // Absent members are left out of the text.
  const first = { kind, apiVersion, metadata: { name, generateName, namespace, labels, ...others } };
  let text = stringifyJson(first).slice(0, -1);
  // A copy of an object with tens of thousands of members would take longer than its text.
  for (const key of Object.keys(object)) {
    const value = object[key];
    if (value !== undefined && !LEADING.has(key)) text += `,${stringifyJson(key)}:${stringifyJson(value)}`;
  }
  return Buffer.from(escapeMarkup(`${text}}`));
}

/** Returns the position of the first member of `metadata`. */
function metadataStart(bytes: Buffer): number {
  const at = bytes.subarray(0, SEARCH_LIMIT).indexOf(METADATA);
  if (at < 0) throw new Error('a stored value is not an object with metadata');
  return at + METADATA.length;
}

/** Returns a copy with the revision as the first member of its metadata, in place of an earlier one. */
export function stampRevision(bytes: Buffer, revision: number): Buffer {
  const start = metadataStart(bytes);
  let othersStart = start;
  if (bytes.subarray(start, start + RESOURCE_VERSION.length).equals(RESOURCE_VERSION)) {
    othersStart = bytes.indexOf(QUOTE, start + RESOURCE_VERSION.length) + 1;
    if (bytes[othersStart] === COMMA) othersStart += 1;
  }
  const member = `"resourceVersion":"${revision}"${bytes[othersStart] === CLOSING_BRACE ? '' : ','}`;
  const size = start + member.length + (bytes.length - othersStart);
  const stamped = size < SHARED_SLAB_BYTES ? Buffer.allocUnsafe(size) : Buffer.allocUnsafeSlow(size);
  bytes.copy(stamped, 0, 0, start);
  stamped.write(member, start, 'latin1');
  bytes.copy(stamped, start + member.length, othersStart);
  return stamped;
}

/** Members of metadata that stand before the labels. All are strings. */
const BEFORE_LABELS: ReadonlySet<string> = new Set(['resourceVersion', 'name', 'generateName', 'namespace']);

/**
 * Returns the text of the labels (`{"a":"b"}`), or `undefined` if there are none. It need not parse the object: only strings
 * stand before the labels, and keys and values of labels contain neither braces nor quotes.
 */
export function labelsText(bytes: Buffer): string | undefined {
  let at = metadataStart(bytes);
  while (bytes[at] === QUOTE) {
    const end = stringEnd(bytes, at);
    const member = bytes.toString('latin1', at + 1, end - 1);
    if (member === 'labels') return bytes.toString('utf8', end + 1, bytes.indexOf(CLOSING_BRACE, end) + 1);
    if (!BEFORE_LABELS.has(member)) return undefined;
    at = stringEnd(bytes, end + 1);
    if (bytes[at] === COMMA) at += 1;
  }
  return undefined;
}

/** Returns the position after the string that begins at `at`. */
function stringEnd(bytes: Buffer, at: number): number {
  let next = at + 1;
  while (next < bytes.length && bytes[next] !== QUOTE) next += bytes[next] === BACKSLASH ? 2 : 1;
  return next + 1;
}

/** Parses stored or stamped bytes. Integers that a double cannot hold exactly are `bigint`. */
export function parseObject(bytes: Buffer): KubeObject {
  return parseExactJson(bytes.toString('utf8')) as unknown as KubeObject;
}
