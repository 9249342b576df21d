import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { applyJsonPatch } from '../../../../api/codec/json-patch.ts';
import { applyMergePatch } from '../../../../api/codec/merge-patch.ts';
import type { JsonObject } from '../../../../api/meta/object.ts';

const document = { data: { k: 'v', l: 'w' }, list: ['one', 'two'] };

test('every operation follows RFC 6902', () => {
  const patched = applyJsonPatch(document, [
    { op: 'test', path: '/data/k', value: 'v' },
    { op: 'add', path: '/data/a~1b', value: 'n' },
    { op: 'copy', from: '/data/k', path: '/data/copied' },
    { op: 'move', from: '/data/l', path: '/data/moved' },
    { op: 'add', path: '/list/1', value: 'mid' },
    { op: 'add', path: '/list/-', value: 'end' },
    { op: 'remove', path: '/list/0' },
  ]);
  assert.deepEqual(patched, {
    data: { k: 'v', 'a/b': 'n', copied: 'v', moved: 'w' },
    list: ['mid', 'two', 'end'],
  });
  assert.deepEqual(document, { data: { k: 'v', l: 'w' }, list: ['one', 'two'] });
});

test('the cause of a failure is in the words of the library of kube-apiserver', () => {
  const why = (operation: JsonObject | null): string => {
    try {
      applyJsonPatch(document, [operation]);
    } catch (error) {
      return error instanceof Error && error.cause instanceof Error ? error.cause.message : '';
    }
    return '';
  };
  const missing = 'operation does not apply: doc is missing';
  assert.deepEqual(
    [
      { op: 'add', path: '/no/x', value: 1 },
      { op: 'replace', path: '/no/x', value: 1 },
      { op: 'move', from: '/no/x', path: '/data/x' },
      { op: 'copy', from: '/data/k', path: '/no/x' },
      { op: 'test', path: '/no/x', value: 1 },
      { op: 'test', path: '/data/k', value: 1 },
      { op: 'remove', path: '/data/x' },
      { op: 'remove', path: '/list/9' },
      { op: 'remove', path: '/list/x' },
      { op: 'add', path: '/list/x', value: 1 },
      { op: 'add', path: '/list/x/y', value: 1 },
      { op: 'replace', path: '/list/9', value: 1 },
      { op: 'move', from: '/data/x', path: '/data/y' },
      { op: 'move', from: '/data/k', path: '/list/9' },
      { op: 'copy', from: '/list/9', path: '/data/x' },
      { op: 'copy', from: '/data/k', path: '/list/9' },
      { op: 'test', path: '/list/-9', value: 1 },
      { op: 'add', value: 1 },
      { op: 'replace', value: 1 },
      { op: 'move', path: '/data/x' },
      { op: 'frob' },
      {},
      null,
    ].map(why),
    [
      `add ${missing} path: "/no/x": missing value`,
      `replace ${missing} path: /no/x: missing value`,
      `move ${missing} from path: /no/x: missing value`,
      `copy ${missing} destination path: /no/x: missing value`,
      'test operation does not apply: is missing path: /no/x: missing value',
      'testing value /data/k failed: test failed',
      "error in remove for path: '/data/x': Unable to remove nonexistent key: x: missing value",
      "error in remove for path: '/list/9': Unable to access invalid index: 9: invalid index referenced",
      `error in remove for path: '/list/x': strconv.Atoi: parsing "x": invalid syntax`,
      `error in add for path: '/list/x': value was not a proper array index: 'x': strconv.Atoi: parsing "x": invalid syntax`,
      `add ${missing} path: "/list/x/y": missing value`,
      `replace ${missing} key: /list/9: missing value`,
      "error in move for path: 'x': Unable to remove nonexistent key: x: missing value",
      "error in move for path: '/list/9': Unable to access invalid index: 9: invalid index referenced",
      "error in copy for from: '/list/9': Unable to access invalid index: 9: invalid index referenced",
      'error while adding value during copy: Unable to access invalid index: 9: invalid index referenced',
      "error in test for path: '/list/-9': Unable to access invalid index: -9: invalid index referenced",
      'add operation failed to decode path: missing value',
      'replace operation failed to decode path: operation missing path field: missing value',
      'move operation failed to decode from: operation, missing from field: missing value',
      'Unexpected kind: frob',
      'Unexpected kind: unknown',
      'Unexpected kind: unknown',
    ],
  );
});

test('replace and copy take a missing member for null', () => {
  assert.deepEqual(applyJsonPatch({ d: {} }, [{ op: 'replace', path: '/d/x', value: 1 }]), { d: { x: 1 } });
  assert.deepEqual(applyJsonPatch({ d: {} }, [{ op: 'copy', from: '/d/none', path: '/d/x' }]), { d: { x: null } });
});

test('indexes below zero count from the end, for additions from behind it', () => {
  const patched = (operation: JsonObject): unknown =>
    (applyJsonPatch(document, [operation]) as { readonly list: unknown }).list;
  assert.deepEqual(patched({ op: 'add', path: '/list/-1', value: 'x' }), ['one', 'two', 'x']);
  assert.deepEqual(patched({ op: 'add', path: '/list/-3', value: 'x' }), ['x', 'one', 'two']);
  assert.deepEqual(patched({ op: 'replace', path: '/list/-1', value: 'x' }), ['one', 'x']);
  assert.deepEqual(patched({ op: 'remove', path: '/list/-2' }), ['two']);
  assert.throws(() => patched({ op: 'add', path: '/list/-4', value: 'x' }), { code: 422 });
});

test('an operation that does not apply is a 422 without details', () => {
  for (const operation of [
    { op: 'test', path: '/data/k', value: 'x' },
    { op: 'remove', path: '/data/none' },
    { op: 'add', path: '/none/deep', value: 1 },
    { op: 'add', path: '/list/9', value: 1 },
    { op: 'merge', path: '/data', value: {} },
    { op: 'add', value: 1 },
  ]) {
    assert.throws(() => applyJsonPatch(document, [operation]), {
      code: 422,
      message: 'the server rejected our request due to an error in our request',
    });
  }
});

test('an invalid patch is refused with 400, and too long a patch with 413', () => {
  assert.throws(() => applyJsonPatch({}, {}), {
    message: 'error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp',
  });
  const long = Array.from({ length: 10_001 }, () => ({ op: 'add', path: '/a', value: 1 }));
  assert.throws(() => applyJsonPatch({}, long), { code: 413 });
});

test('copies of copies end with 422 before they fill the memory', () => {
  const doubling = Array.from({ length: 60 }, () => ({ op: 'copy', from: '/a', path: '/a/-' }));
  const wide = { a: Array.from({ length: 1000 }, () => ({ key: 'value' })) };
  for (const document of [{ a: ['x'] }, wide, { a: [{ b: 'x'.repeat(1000) }] }]) {
    assert.throws(() => applyJsonPatch(document, doubling), { code: 422 });
  }
  const few = Array.from({ length: 100 }, (_, at) => ({ op: 'copy', from: '/a', path: `/b${at}` }));
  const { a, b99 } = applyJsonPatch({ a: 'x'.repeat(30_000) }, few) as { a: string; b99: string };
  assert.equal(b99, a);
});

test('__proto__ is a name like any other', () => {
  const patched = applyJsonPatch({}, [{ op: 'add', path: '/__proto__', value: { polluted: true } }]);
  assert.deepEqual(Object.keys(patched as object), ['__proto__']);
  const merged = applyMergePatch({}, JSON.parse('{"__proto__":{"polluted":true}}'));
  assert.equal(Object.getPrototypeOf(merged), Object.prototype);
  assert.equal(({} as Record<string, unknown>)['polluted'], undefined);
});

test('a merge patch that is no object is refused', () => {
  assert.throws(() => applyMergePatch({}, null), { message: 'Invalid JSON Patch' });
  assert.throws(() => applyMergePatch({}, []), {
    message: 'error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}',
  });
});

const json = fc
  .jsonValue({ maxDepth: 3 })
  .filter((value) => typeof value === 'object' && value !== null && !Array.isArray(value));

// As in kube-apiserver, a list that replaces an object keeps the nulls of its items, and one that replaces a list loses them.
test('a merge patch changes nothing when it is applied for the third time', () => {
  fc.assert(
    fc.property(json, json, (target, patch) => {
      const once = applyMergePatch(target as JsonObject, patch);
      const twice = applyMergePatch(once, patch);
      assert.deepEqual(applyMergePatch(twice, patch), twice);
    }),
  );
});
