/** Defines the messages of the thread that parses large YAML texts, and parses a text. */
import type { JsonObject, JsonValue } from '../meta/object.ts';
import { setMember } from '../meta/own-member.ts';
import { parseYaml, parseYamlDocuments } from './yaml.ts';

/** A message to the thread. */
export interface YamlJob {
  readonly text: Uint8Array;
  /**
   * What is parsed: the first document, the first one with the keys of its maps sorted, or all. The duplicate keys of all
   * documents are not reported.
   */
  readonly read: 'first' | 'first-sorted' | 'all';
}

/** The documents of a text, and the messages about duplicate keys. */
export interface ParsedDocuments {
  readonly values: JsonValue[];
  readonly duplicates: readonly string[];
}

/** The response of the thread. */
export type YamlOutcome = ParsedDocuments | { readonly syntaxError: string };

/** Parses the text of a job. Throws `YamlSyntaxError`. */
export function performYamlJob({ text, read }: YamlJob): ParsedDocuments {
  if (read === 'all') return { values: parseYamlDocuments(text), duplicates: [] };
  const { value, duplicates } = parseYaml(text);
  return { values: [read === 'first' ? value : inKeyOrder(value)], duplicates };
}

/** Returns a copy with sorted keys. */
function inKeyOrder(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(inKeyOrder);
  if (typeof value !== 'object' || value === null) return value;
  const sorted: JsonObject = {};
  for (const key of Object.keys(value).sort()) setMember(sorted, key, inKeyOrder(value[key] ?? null));
  return sorted;
}
