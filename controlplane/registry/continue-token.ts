/**
 * Encodes and decodes the `continue` value of paged lists: the revision of the first page and the key after which the next page
 * starts. The encoding is that of kube-apiserver, and it is opaque to clients. A token is valid as long as the history of the
 * storage contains its revision.
 */
import { posix } from 'node:path';
import { JsonSyntaxError, parseJson, stringifyJson } from '../../api/codec/json.ts';
import { newBadRequest, newStatusError, type StatusError } from '../../api/meta/status-error.ts';
import { jsonKind } from '../../api/schema/go-types.ts';
import { quote } from '../../api/meta/field-error.ts';
import { isInt64 } from '../../api/meta/go-number.ts';
import { isJsonObject } from '../../api/meta/json-object.ts';

/** Where the next page begins. */
export interface ContinueToken {
  /** -1 means the newest state. An expired list may continue inconsistently with it. */
  readonly revision: number;
  /** The last key of the previous page, relative to the listed prefix. */
  readonly after: string;
}

const VERSION = 'meta.k8s.io/v1';

/** Encodes a token as URL-safe base64, so that clients can send it in a query unescaped. */
export function encodeContinue(token: ContinueToken): string {
  const text = stringifyJson({ v: VERSION, rv: token.revision, start: `${token.after}\u0000` });
  return Buffer.from(text).toString('base64url');
}

function refuse(why: string): StatusError {
  return newBadRequest(`invalid continue token: continue key is not valid: ${why}`);
}

/** Decodes a continue token. Throws a 400 with kube-apiserver's message. */
export function decodeContinue(text: string): ContinueToken {
  const stray = /[^A-Za-z0-9_-]/.exec(text);
  if (stray !== null) throw refuse(`illegal base64 data at input byte ${stray.index}`);
  if (text.length % 4 === 1) throw refuse(`illegal base64 data at input byte ${text.length - 1}`);
  const decoded = Buffer.from(text, 'base64url').toString('utf8');
  const members = parse(Buffer.from(text, 'base64url'), decoded);
  if (members.v !== VERSION) throw refuse(`server does not recognize this encoded version ${String(members.v ?? '')}`);
  const revision = revisionIn(members);
  const start = members.start ?? '';
  if (typeof start !== 'string') throw refuse(mistyped(jsonKind(start), 'start', 'string'));
  if (revision === 0) throw refuse('incorrect encoded start resourceVersion (version meta.k8s.io/v1)');
  if (start === '') throw refuse('encoded start key empty (version meta.k8s.io/v1)');
  const key = start.startsWith('/') ? start : `/${start}`;
  // A key that goes up, or that has empty or needless parts, names no place below the list.
  if (posix.resolve(key) !== key) throw refuse(start);
  const below = key.slice(1);
  return { revision, after: below.endsWith('\u0000') ? below.slice(0, -1) : below };
}

interface Members {
  readonly v?: unknown;
  readonly rv?: unknown;
  readonly start?: unknown;
  /** The text of `rv` if it is not that of an integer. */
  readonly decimal?: string | undefined;
}

/** Returns the revision, or 0 if it is absent. Throws a 400 for what Go does not read as an int64. */
function revisionIn({ rv, decimal }: Members): number {
  if (rv === undefined || rv === null) return 0;
  if (typeof rv !== 'number' && typeof rv !== 'bigint') throw refuse(mistyped(jsonKind(rv), 'rv', 'int64'));
  if (decimal === undefined && isInt64(rv)) return Number(rv);
  throw refuse(mistyped(`number ${decimal ?? String(rv)}`, 'rv', 'int64'));
}

/** Parses the JSON of a token. Throws a 400 for another text or value. */
function parse(raw: Buffer, text: string): Members {
  try {
    const { value, decimals } = parseJson(text);
    if (value === null) return {};
    if (isJsonObject(value))
      return { v: value['v'], rv: value['rv'], start: value['start'], decimal: decimals?.get('rv') };
    throw refuse(`json: cannot unmarshal ${jsonKind(value)} into Go value of type storage.continueToken`);
  } catch (error) {
    if (!(error instanceof JsonSyntaxError)) throw error;
    const first = raw[0] ?? 0;
    if (first < 0x80) throw refuse(error.message);
    // Go shows the byte, which may be none of UTF-8, as the character with that number.
    const shown = quote(String.fromCharCode(first)).slice(1, -1);
    throw refuse(`invalid character '${shown}' looking for beginning of value`);
  }
}

const mistyped = (found: string, field: string, type: string): string =>
  `json: cannot unmarshal ${found} into Go struct field continueToken.${field} of type ${type}`;

/** Returns the 410 for a token with a compacted revision. It contains a token that continues with the newest state. */
export function expiredContinue(token: ContinueToken): StatusError {
  return newStatusError(
    410,
    'Expired',
    'The provided continue parameter is too old to display a consistent list result. You can start a new list without ' +
      'the continue parameter, or use the continue token in this response to retrieve the remainder of the results. ' +
      'Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted ' +
      'between the time the first chunk was returned and now may show up in the list.',
    { metadata: { continue: encodeContinue({ revision: -1, after: token.after }) } },
  );
}
