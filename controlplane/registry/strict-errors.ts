/**
 * Formats the errors of strict decoding in the order of the text. kube-apiserver finds unknown fields and duplicate fields in
 * one walk, so their messages are mixed.
 */
import { duplicateErrors, duplicateWarnings } from '../../api/codec/duplicates.ts';
import { memberPath } from '../../api/meta/field-error.ts';
import type { JsonValue } from '../../api/meta/object.ts';
import { unknownFieldErrors } from '../../api/schema/decode.ts';

/**
 * Returns the parts of a `strict decoding error`. Without a `value`, duplicates come first. `duplicates` and `unknown` are the
 * results of the parsers.
 */
export function strictErrors(value: unknown, duplicates: readonly string[], unknown: readonly string[]): string[] {
  return inTextOrder(value, duplicateErrors(duplicates), unknownFieldErrors(unknown));
}

/** Returns the warnings about the same faults, in the same order. */
export function strictWarnings(value: unknown, duplicates: readonly string[], unknown: readonly string[]): string[] {
  return inTextOrder(value, duplicateWarnings(duplicates), unknownFieldErrors(unknown));
}

const PATH = /^(?:duplicate|unknown) field "([\s\S]*)"$/;

function inTextOrder(value: unknown, duplicates: readonly string[], unknown: readonly string[]): string[] {
  const texts = [...duplicates, ...unknown];
  if (value === undefined || duplicates.length === 0 || unknown.length === 0) return texts;
  const places = new Map<string, number>();
  for (const text of texts) {
    const path = PATH.exec(text)?.[1];
    if (path !== undefined) places.set(path, Infinity);
  }
  let count = 0;
  const walk = (node: JsonValue | undefined, path: string): void => {
    if (places.get(path) === Infinity) places.set(path, (count += 1));
    if (Array.isArray(node)) node.forEach((item, index) => walk(item, `${path}[${index}]`));
    else if (typeof node === 'object' && node !== null) {
      for (const [key, member] of Object.entries(node)) walk(member, memberPath(path, key));
    }
  };
  walk(value as JsonValue | undefined, '');
  const placeOf = (text: string): number => places.get(PATH.exec(text)?.[1] ?? '') ?? 0;
  return texts.toSorted((a, b) => {
    const [left, right] = [placeOf(a), placeOf(b)];
    return left === right ? 0 : left < right ? -1 : 1;
  });
}
