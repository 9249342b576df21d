import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compare } from '../../../../api/codec/structured-merge/compare.ts';
import { type FieldSet, setOfPaths, union } from '../../../../api/codec/structured-merge/field-set.ts';
import { encodeFieldsV1 } from '../../../../api/codec/structured-merge/fields-v1.ts';
import { mergeTypeOf, PathElementError } from '../../../../api/codec/structured-merge/merge-types.ts';
import type { JsonObject, JsonValue } from '../../../../api/meta/object.ts';
import { loadSchema } from '../../../../api/schema/table.ts';

const struct = loadSchema().kind('', 'v1', 'Pod');
if (struct === undefined) throw new Error('no type of pods');
const POD = mergeTypeOf(struct);
const MAP = mergeTypeOf({ name: 'Free', fields: new Map(), preserveUnknown: true });

/** Returns the wire form of a set whose nodes were all visited. */
const visited = (set: FieldSet): JsonObject => encodeFieldsV1(copy(set));
const copy = ({ owned, children }: FieldSet): FieldSet => ({
  owned,
  children: children && new Map([...children].map(([element, child]) => [element, copy(child)])),
});

const VALUES: Readonly<Record<string, JsonObject>> = {
  'a pod': {
    metadata: { labels: { b: '2', a: '1' }, finalizers: ['z', 'a'], ownerReferences: [{ uid: 'u', name: 'n' }] },
    spec: {
      volumes: [{ name: 'b', emptyDir: {} }, { name: 'a' }],
      containers: [
        { name: 'main', ports: [{ containerPort: 80, protocol: 'TCP' }, { containerPort: 8 }], args: ['-v'] },
        { name: 'again' },
        { name: 'again' },
      ],
      nodeSelector: { __proto: 'x', toString: 'y' },
    },
  },
  'a pod without containers': { spec: { hostNetwork: true } },
  'empty parts': { metadata: {}, spec: { containers: [], nodeSelector: {} } },
};

describe('the paths that only one side has', () => {
  for (const [name, value] of Object.entries(VALUES)) {
    it(`have the same wire form before and after they are visited: ${name}`, () => {
      const { added } = compare(POD, { spec: null }, value);
      assert.deepEqual(Object.entries(encodeFieldsV1(added)), Object.entries(visited(added)));
      assert.equal(JSON.stringify(encodeFieldsV1(added)), JSON.stringify(visited(added)));
    });
  }

  it('are those of the other side, removed', () => {
    for (const value of Object.values(VALUES)) {
      const [one, other] = [compare(POD, { spec: null }, value), compare(POD, value, { spec: null })];
      assert.deepEqual(encodeFieldsV1(one.added), encodeFieldsV1(other.removed));
      assert.deepEqual(encodeFieldsV1(one.removed), encodeFieldsV1(other.added));
    }
  });

  it('include members that the type always has and the value omits', () => {
    const { added } = compare(POD, { spec: { volumes: [] } }, { spec: { containers: [{ image: 'x', name: 'c' }] } });
    assert.deepEqual(encodeFieldsV1(added), {
      'f:spec': {
        'f:containers': { 'k:{"name":"c"}': { '.': {}, 'f:image': {}, 'f:name': {}, 'f:resources': {} } },
      },
    });
  });

  it('can be joined with others', () => {
    const { added } = compare(POD, { metadata: {} }, { metadata: { labels: { a: '1' } } });
    const joined = union(added, setOfPaths([['f:metadata', 'f:labels', 'f:b']]));
    assert.deepEqual(encodeFieldsV1(joined), { 'f:metadata': { 'f:labels': { '.': {}, 'f:a': {}, 'f:b': {} } } });
  });

  it('are refused if an item has no key', () => {
    const value = { metadata: { ownerReferences: [{ name: 'no uid' }, null] } } as unknown as JsonValue;
    assert.throws(() => compare(POD, {}, value), PathElementError);
  });
});

describe('values of a type without named members', () => {
  it('compare by own members of any name', () => {
    const odd = JSON.parse('{"__proto__": 1, "constructor": {"a": 1}}') as JsonObject;
    const { added, removed, modified } = compare(MAP, odd, { constructor: { b: 1 } } as unknown as JsonObject);
    assert.deepEqual(encodeFieldsV1(added), { 'f:constructor': { 'f:b': {} } });
    assert.deepEqual(encodeFieldsV1(removed), { 'f:__proto__': {}, 'f:constructor': { 'f:a': {} } });
    assert.deepEqual(encodeFieldsV1(modified), {});
  });
});
