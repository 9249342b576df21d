/**
 * Decides what a client gets of a document with a time of modification: all of it, one range, nothing because it has the
 * content, or an error. It follows RFC 9110, sections 13 and 14, as Go's file server does. Several ranges are answered with the
 * whole document, which the RFC allows.
 */
import type { ApiRequest } from './request.ts';

/** Bytes from `from` up to, but not including, `to`. */
interface ByteRange {
  readonly from: number;
  readonly to: number;
}

/** What the client gets. `failed` means that a precondition failed. */
export type Selected =
  | { readonly kind: 'whole' }
  | { readonly kind: 'not-modified' }
  | { readonly kind: 'failed' }
  | { readonly kind: 'range'; readonly range: ByteRange }
  /** `overlaps` is false for a valid range behind the end of the document. */
  | { readonly kind: 'unsatisfiable'; readonly overlaps: boolean };

interface Validators {
  /** The `ETag` with its quotes; `undefined` if the document has none. */
  readonly etag: string | undefined;
  readonly modifiedMs: number;
  readonly sizeBytes: number;
}

/** Evaluates the preconditions and the range of a request. */
export function selectBytes(request: Pick<ApiRequest, 'header'>, validators: Validators): Selected {
  const { etag, sizeBytes } = validators;
  const modified = Math.floor(validators.modifiedMs / 1000);
  const date = (name: string): number => Date.parse(request.header(name) ?? '') / 1000;
  const match = request.header('if-match');
  if (match === undefined ? modified > date('if-unmodified-since') : !namesTag(match, etag, { weakly: false }))
    return { kind: 'failed' };
  const noneMatch = request.header('if-none-match');
  if (noneMatch === undefined ? modified <= date('if-modified-since') : namesTag(noneMatch, etag, { weakly: true }))
    return { kind: 'not-modified' };
  const wanted = request.header('range');
  const condition = request.header('if-range');
  if (wanted === undefined || (condition !== undefined && condition !== etag && modified !== date('if-range')))
    return { kind: 'whole' };
  return rangeOf(wanted, sizeBytes);
}

/** Whether a list of entity tags has this one, or is `*`. */
function namesTag(list: string, etag: string | undefined, { weakly }: { readonly weakly: boolean }): boolean {
  return list.split(',').some((part) => {
    const tag = weakly ? part.trim().replace(/^W\//, '') : part.trim();
    return tag === '*' || (etag !== undefined && tag === etag);
  });
}

const UNIT = 'bytes=';

function rangeOf(wanted: string, sizeBytes: number): Selected {
  const ranges: ByteRange[] = [];
  let isBehind = false;
  if (!wanted.startsWith(UNIT)) return { kind: 'unsatisfiable', overlaps: true };
  for (const part of wanted.slice(UNIT.length).split(',')) {
    if (part.trim() === '') continue;
    const [, first = '', last = ''] = /^(\d*)\s*-\s*(\d*)$/.exec(part.trim()) ?? [];
    if (first === '' && last === '') return { kind: 'unsatisfiable', overlaps: true };
    const from = first === '' ? Math.max(0, sizeBytes - Number(last)) : Number(first);
    const to = first === '' || last === '' ? sizeBytes : Math.min(Number(last) + 1, sizeBytes);
    if (from >= sizeBytes) isBehind = true;
    else if (to <= from) return { kind: 'unsatisfiable', overlaps: true };
    else ranges.push({ from, to });
  }
  const [range] = ranges;
  if (range === undefined) return isBehind ? { kind: 'unsatisfiable', overlaps: false } : { kind: 'whole' };
  return ranges.length > 1 ? { kind: 'whole' } : { kind: 'range', range };
}

/** Returns the bytes of the range from parts of the document. */
export async function* partsInRange(parts: AsyncIterable<Buffer>, { from, to }: ByteRange): AsyncGenerator<Buffer> {
  let at = 0;
  for await (const part of parts) {
    if (at >= to) return;
    const inner = part.subarray(Math.max(0, from - at), Math.max(0, to - at));
    at += part.length;
    if (inner.length > 0) yield inner;
  }
}
