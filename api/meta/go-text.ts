/** Formats decoded JSON values as the verbs of Go's `fmt` do, for messages of kube-apiserver that contain such a value. */
import { isInt64, numberText } from './go-number.ts';
import type { JsonValue } from './object.ts';
import { quoteText } from './quote.ts';

/** Formats a value as `%v` does: `map[a:1 b:[x y]]`, with the keys in order and texts without quotes. */
export function goValue(value: JsonValue | undefined): string {
  if (value === undefined || value === null) return '<nil>';
  if (Array.isArray(value)) return `[${value.map(goValue).join(' ')}]`;
  if (typeof value === 'number' || typeof value === 'bigint') return numberText(value);
  if (typeof value !== 'object') return String(value);
  const members = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1));
  return `map[${members.map(([name, member]) => `${name}:${goValue(member)}`).join(' ')}]`;
}

/** Formats a value as `%#v` does: `map[string]interface {}{"a":1}`. */
export function goSyntax(value: JsonValue | undefined): string {
  if (value === undefined || value === null) return 'interface {}(nil)';
  if (typeof value === 'string') return quoteText(value);
  if (Array.isArray(value)) return `${goType(value)}{${value.map(goSyntax).join(', ')}}`;
  if (typeof value !== 'object') return String(value);
  const members = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1));
  return `${goType(value)}{${members.map(([name, member]) => `${quoteText(name)}:${goSyntax(member)}`).join(', ')}}`;
}

/**
 * Returns the name of a type as `%T` prints it: the type to which kube-apiserver decodes the value of an object without a Go
 * type.
 */
export function goType(value: JsonValue | undefined): string {
  if (value === undefined || value === null) return '<nil>';
  if (Array.isArray(value)) return '[]interface {}';
  if (typeof value === 'object') return 'map[string]interface {}';
  if (typeof value === 'string') return 'string';
  if (typeof value === 'boolean') return 'bool';
  return isInt64(value) ? 'int64' : 'float64';
}

/** Returns the error of Go's JSON decoder for a value that is to have a kind and a version. `type` is its type in JSON. */
export const notAnObject = (type: string): string =>
  `json: cannot unmarshal ${type} into Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }`;
