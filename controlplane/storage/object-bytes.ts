/**
 * The byte form of stored objects: JSON that begins `{"kind":K,"apiVersion":V,"metadata":{"name":…,"namespace":…,"labels":{…}`
 * so that the revision is spliced in, and labels are read, without parsing. Written by the registry, read by the watch cache.
 */
import { escapeMarkup, parseExactJson, stringifyJson } from '../../api/codec/json.ts';
import type { JsonObject, KubeObject } from '../../api/meta/object.ts';

/** Keys of metadata that come first, in this order; the rest follows as it is. */
const LEADING_METADATA = ['name', 'generateName', 'namespace', 'labels'] as const;

const METADATA = Buffer.from('"metadata":{');
const RESOURCE_VERSION = Buffer.from('"resourceVersion":"');
const CLOSING_BRACE = 0x7d;
const QUOTE = 0x22;
/** Kind and apiVersion stand before metadata; both are short. */
const SEARCH_LIMIT = 1024;

/** The bytes to store: without a resourceVersion, kind and apiVersion first. */
export function encodeObject(object: KubeObject): Buffer {
  const { kind, apiVersion, metadata, ...rest } = object;
  const { name, generateName, namespace, labels, resourceVersion: _dropped, ...others } = metadata;
  const leading: JsonObject = {};
  const known = { name, generateName, namespace, labels };
  for (const key of LEADING_METADATA) {
    if (known[key] !== undefined) leading[key] = known[key];
  }
  return Buffer.from(escapeMarkup(stringifyJson({ kind, apiVersion, metadata: { ...leading, ...others }, ...rest })));
}

/** Where the first member of `metadata` stands. */
function metadataStart(bytes: Buffer): number {
  const at = bytes.subarray(0, SEARCH_LIMIT).indexOf(METADATA);
  if (at < 0) throw new Error('a stored value is not an object with metadata');
  return at + METADATA.length;
}

/** A copy with `resourceVersion` as first member of metadata; replaces one that stands there. The storage's `stamp`. */
export function stampRevision(bytes: Buffer, revision: number): Buffer {
  const start = metadataStart(bytes);
  let rest = start;
  if (bytes.subarray(start, start + RESOURCE_VERSION.length).equals(RESOURCE_VERSION)) {
    rest = bytes.indexOf(QUOTE, start + RESOURCE_VERSION.length) + 1;
    if (bytes[rest] === 0x2c) rest += 1;
  }
  const member = `"resourceVersion":"${revision}"${bytes[rest] === CLOSING_BRACE ? '' : ','}`;
  const size = start + member.length + (bytes.length - rest);
  // A slab shared by many small values would be kept alive by the last of them.
  const stamped = size < 512 ? Buffer.allocUnsafe(size) : Buffer.allocUnsafeSlow(size);
  bytes.copy(stamped, 0, 0, start);
  stamped.write(member, start, 'latin1');
  bytes.copy(stamped, start + member.length, rest);
  return stamped;
}

const LABELS = Buffer.from('"labels":{');
const MEMBER_AFTER_STRING = /^"(?:resourceVersion|name|generateName|namespace)":"[^"\\]*",?/;

/**
 * The text of the label map (`{"a":"b"}`), or `undefined` when there is none. Only strings that need no escape stand
 * before it, and labels hold neither braces nor quotes, so no parsing is needed.
 */
export function labelsText(bytes: Buffer): string | undefined {
  const start = metadataStart(bytes);
  const head = bytes.toString('latin1', start, Math.min(bytes.length, start + 1024));
  let at = 0;
  for (
    let member = MEMBER_AFTER_STRING.exec(head);
    member !== null;
    member = MEMBER_AFTER_STRING.exec(head.slice(at))
  ) {
    at += member[0].length;
  }
  const from = start + at;
  if (!bytes.subarray(from, from + LABELS.length).equals(LABELS)) return undefined;
  const end = bytes.indexOf(CLOSING_BRACE, from);
  return bytes.toString('utf8', from + LABELS.length - 1, end + 1);
}

/** The object of stored or stamped bytes. Integers beyond a double are `bigint`. */
export function parseObject(bytes: Buffer): KubeObject {
  return parseExactJson(bytes.toString('utf8')) as unknown as KubeObject;
}
