/**
 * Compares expressions with what the CEL environment of kube-apiserver 1.36 answers: values, errors, faults with their
 * positions, and estimated costs. `conformance.jsonl` has a line for each expression, of one of three forms:
 * `[expression, "value", value, cost]`, `[expression, "error", message, cost]` and `[expression, "refused", faults]`.
 * The cost is the maximum that is estimated if every variable has 100 elements or characters.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { CelCompileError, compile } from '../../../../api/cel/cel.ts';
import { bool, type CelType, dyn, int, list, map, string } from '../../../../api/cel/types.ts';
import {
  CelError,
  Double,
  Duration,
  entriesOf,
  OpaqueValue,
  Optional,
  Timestamp,
  TypeValue,
  Uint,
  type CelValue,
} from '../../../../api/cel/values.ts';
import { formatTimestamp } from '../../../../api/cel/time.ts';

type Case = readonly [source: string, kind: 'value' | 'error' | 'refused', shown: string, cost?: number];

const VARIABLES: Readonly<Record<string, readonly [CelType, unknown]>> = {
  s: [string, 'hello'],
  i: [int, 3],
  b: [bool, true],
  l: [list(string), ['a', 'b']],
  li: [list(int), [3, 1, 2]],
  m: [map(string, string), { k: 'v' }],
  mi: [map(string, int), { k: 1 }],
  d: [dyn, { x: [1, { y: 'z' }], n: null }],
};
const variables = Object.fromEntries(Object.entries(VARIABLES).map(([name, [type]]) => [name, type]));

/** Why expressions have another answer, by a pattern that matches them. */
const DIFFERING: readonly (readonly [RegExp, string])[] = [
  [
    /^type\(\[\]\) (&&|\|\|)|(&&|\|\|) type\(\[\]\)$|^\[\]\.b$/,
    'cel-go shows its own name for the type of no elements',
  ],
  [/^\w+\(dyn\([[{t]/, 'cel-go evaluates conversions of constant lists, maps and types when it creates the program'],
  [/^bytes\(dyn\(\w+\('/, 'cel-go takes values of libraries for texts of any size in the cost of bytes()'],
  [/^!dyn\(type/, 'cel-go does not name the operator for a type'],
  [/slice\(2, 1\)/, 'the size of a slice that ends before it starts is a negative number without sign in cel-go'],
  [/dyn\(2u\)\]/, 'elements are compared by their values'],
  [/\{1u: 2\}/, 'the integer keys of a map have one type'],
  [/transformMapEntry|\{(\[\]|null|1\.5): 1\}/, 'a map has keys of the types that CEL allows'],
  [/^\{'a': 1, 'a': 2\}/, 'a key that stands twice is an error in a constant map as well'],
  [/^b?"\\/, 'a wrong escape is one fault'],
  [/^(\.a|in|`a`|a\[\?b\]|\[,\])$/, 'the parser of cel-go has its own way after these faults'],
  [/^google\.protobuf\./, 'messages of protobuf are not constructed'],
  [/u0000/, 'Go quotes control characters in another way'],
];

function shown(value: CelValue): string {
  if (value === null || typeof value === 'boolean' || typeof value === 'bigint') return String(value);
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : `d${value}`;
  if (typeof value === 'string') return JSON.stringify(value);
  if (value instanceof Double) return `d${Object.is(value.value, -0) ? '-0' : value.value}`;
  if (value instanceof Uint) return `${value.value}u`;
  if (value instanceof Uint8Array) return `b${Buffer.from(value).toString('hex')}`;
  if (value instanceof Timestamp) return `T${formatTimestamp(value)}`;
  if (value instanceof Duration) return `D${value.ns}`;
  if (value instanceof TypeValue) return `type ${value.name}`;
  if (value instanceof Optional) return value.value === undefined ? 'none' : `some(${shown(value.value)})`;
  if (value instanceof OpaqueValue) return `op ${value.typeName}`;
  if (Array.isArray(value)) return `[${value.map((item) => shown(item as CelValue)).join(',')}]`;
  const entries = (entriesOf(value) ?? []).map(([key, inner]) => `${shown(key)}:${shown(inner)}`);
  return `{${entries.toSorted().join(',')}}`;
}

function answer(source: string): Case {
  try {
    const program = compile(source, { variables, sizeAt: () => 100 });
    try {
      return [source, 'value', shown(program.run((name) => VARIABLES[name]?.[1])), program.maxCost ?? 0];
    } catch (error) {
      if (!(error instanceof CelError)) throw error;
      return [source, 'error', error.message, program.maxCost ?? 0];
    }
  } catch (error) {
    if (!(error instanceof CelCompileError)) throw error;
    const faults = error.message.matchAll(/^ERROR: <input>:(.*)$/gm);
    return [
      source,
      'refused',
      error.stage === 'compilation' ? [...faults].map(([, text]) => text).join('\n') : error.message,
    ];
  }
}

const cases: readonly Case[] = readFileSync(join(import.meta.dirname, 'conformance.jsonl'), 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => JSON.parse(line) as Case);

test('expressions have the values, errors, faults and estimated costs of kube-apiserver', () => {
  const wrong = cases
    .map((expected) => ({ expected, got: answer(expected[0]) }))
    .filter(({ expected, got }) => JSON.stringify(expected) !== JSON.stringify(got))
    .filter(({ expected: [source] }) => !DIFFERING.some(([pattern]) => pattern.test(source)));
  assert.deepEqual(
    wrong.map(({ got }) => got),
    wrong.map(({ expected }) => expected),
  );
});

test('each reason for another answer is needed', () => {
  const differing = cases.filter((expected) => JSON.stringify(expected) !== JSON.stringify(answer(expected[0])));
  const unused = DIFFERING.filter(([pattern]) => !differing.some(([source]) => pattern.test(source)));
  assert.deepEqual(unused, []);
});
