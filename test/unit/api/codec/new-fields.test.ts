import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compare } from '../../../../api/codec/structured-merge/compare.ts';
import {
  emptySet,
  type FieldSet,
  recursiveDifference,
  setOfPaths,
  union,
} from '../../../../api/codec/structured-merge/field-set.ts';
import { encodeFieldsV1 } from '../../../../api/codec/structured-merge/fields-v1.ts';
import {
  mergeTypeOf,
  PathElementError,
  type StructMergeType,
} from '../../../../api/codec/structured-merge/merge-types.ts';
import { newFields } from '../../../../api/codec/structured-merge/new-fields.ts';
import type { JsonObject } from '../../../../api/meta/object.ts';
import { decodeStruct } from '../../../../api/schema/decode.ts';
import { builtinResources } from '../../../../api/schema/resources.ts';
import { loadSchema } from '../../../../api/schema/table.ts';
import { generateObject } from '../../../fakes/generated-object.ts';

const SKIPPED: readonly (readonly [string, FieldSet])[] = [
  ['no paths', emptySet],
  ['what the server sets', setOfPaths([['f:kind'], ['f:metadata', 'f:name'], ['f:metadata', 'f:uid']])],
  ['the status', setOfPaths([['f:status']])],
  ['metadata', setOfPaths([['f:metadata'], ['f:spec']])],
  [
    'parts of what is new',
    setOfPaths([
      ['f:metadata', 'f:labels', 'f:a'],
      ['f:status', 'f:conditions'],
      ['f:data', 'f:a'],
    ]),
  ],
];

/** Returns the wire form of the paths that the comparison with an empty object finds. */
function compared(type: StructMergeType, object: JsonObject, skipped: FieldSet): JsonObject {
  const { added, modified } = compare(type, { metadata: {} }, object);
  return encodeFieldsV1(recursiveDifference(union(added, modified), skipped));
}

function assertSame(type: StructMergeType, object: JsonObject, what: string): void {
  for (const [name, skipped] of SKIPPED) {
    const [found, expected] = [
      outcome(() => actual(type, object, skipped)),
      outcome(() => compared(type, object, skipped)),
    ];
    // Items without a key are no fault where nobody owns them.
    if (expected === undefined && skipped !== emptySet) continue;
    assert.equal(found, expected, `${what} without ${name}`);
  }
}

function actual(type: StructMergeType, object: JsonObject, skipped: FieldSet): JsonObject {
  const fields = newFields(type, object, skipped);
  return fields === undefined ? {} : encodeFieldsV1(fields);
}

/** Returns the text of the fields, or `undefined` if an item has no key. */
function outcome(fields: () => JsonObject): string | undefined {
  try {
    return JSON.stringify(fields());
  } catch (error) {
    if (error instanceof PathElementError) return undefined;
    throw error;
  }
}

function structOf(kind: { group: string; version: string; kind: string }): StructMergeType {
  const struct = loadSchema().kind(kind.group, kind.version, kind.kind);
  assert.ok(struct !== undefined);
  const type = mergeTypeOf(struct);
  assert.ok(type.kind === 'struct');
  return type;
}

test('the fields of a new object are those in which it differs from an empty one, for every kind', () => {
  for (const resource of builtinResources()) {
    const struct = loadSchema().kind(resource.group, resource.version, resource.kind);
    if (struct === undefined) continue;
    const type = structOf(resource);
    for (let seed = 1; seed <= 5; seed += 1) {
      const object = generateObject(struct, seed);
      object['metadata'] ??= {};
      assertSame(type, object, `${resource.kind}, seed ${seed}`);
      for (const omitsNulls of [false, true]) {
        assertSame(type, decodeStruct(struct, object, { omitsNulls }).value, `decoded ${resource.kind}, seed ${seed}`);
      }
    }
  }
});

test('empty, null and repeated parts of a new object have the same owners as by comparison', () => {
  const pod = structOf({ group: '', version: 'v1', kind: 'Pod' });
  const specs: readonly JsonObject[] = [
    {},
    { containers: [] },
    { containers: null, nodeSelector: {}, hostNetwork: false },
    { containers: [{ name: 'a' }, { name: 'a' }, { name: 'b', ports: [{ containerPort: 2 }, { containerPort: 10 }] }] },
    { securityContext: {}, affinity: { podAffinity: {} }, volumes: [{ name: 'v', emptyDir: {} }] },
    { terminationGracePeriodSeconds: 0, restartPolicy: '', unknown: { a: 1 } },
  ];
  for (const spec of specs) {
    for (const metadata of [
      {},
      { labels: {}, annotations: { b: '', a: '1' }, finalizers: ['z', 'a'] },
      { labels: null },
    ])
      assertSame(pod, { kind: 'Pod', metadata, spec, status: {} }, JSON.stringify({ metadata, spec }));
  }
});

test('a type that keeps unknown members owns them', () => {
  const type = mergeTypeOf({ name: 'Free', fields: new Map(), preserveUnknown: true });
  assert.ok(type.kind === 'struct');
  const object = JSON.parse(
    '{"metadata":{"labels":{"a":"1"}},"spec":{"list":[1],"empty":{},"none":null},"b":1,"a":[]}',
  ) as JsonObject;
  assertSame(type, object, 'free');
});

test('an item without a key has no path', () => {
  const pod = structOf({ group: '', version: 'v1', kind: 'Pod' });
  const object = { metadata: {}, spec: { containers: [{ image: 'a' }, null] } };
  assert.throws(() => newFields(pod, object, emptySet), PathElementError);
});
