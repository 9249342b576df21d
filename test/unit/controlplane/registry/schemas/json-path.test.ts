import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JsonValue } from '../../../../../api/meta/object.ts';
import { findAll, parseJsonPath } from '../../../../../controlplane/registry/schemas/json-path.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';

const OBJECT = {
  items: [
    { type: 'Ready', n: 1 },
    { type: 'Other', n: 2 },
    { type: 'a==b', n: 3 },
  ],
  'a.b': 7,
  list: [0, 1, 2, 3],
};

const CASES: readonly (readonly [path: string, found: readonly unknown[] | undefined])[] = [
  ['.items[?(@.type=="Ready")].n', [1]],
  ["..items[?( @.type != 'Ready' )].n", [2, 3]],
  ['.items[?(@.n>=2)].n', [2, 3]],
  ['.items[?(@.n<2)].type', ['Ready']],
  ["['a.b']", [7]],
  ['.a\\.b', [7]],
  ['.list[1:3]', [1, 2]],
  ['.list[-1]', [3]],
  ['.list[:2]', [0, 1]],
  ['.list[2:]', [2, 3]],
  ['.list[*]', [0, 1, 2, 3]],
  ['.items[?(@.type)].n', [1, 2, 3]],
  ['.items[?(@.type', undefined],
];

for (const [path, found] of CASES) {
  test(`${path} finds ${JSON.stringify(found) ?? 'nothing: it is no path'}`, () => {
    const parsed = parseJsonPath(path);
    assert.deepEqual(parsed === undefined ? undefined : findAll(OBJECT, parsed), found);
  });
}

test('a quoted name of many escapes that does not end is no path', async () => {
  assert.equal(parseJsonPath(`['${'\\a'.repeat(40)}`), undefined);
  await assertLinearTime((size) => parseJsonPath(`['${'\\a'.repeat(size / 2)}`), { maxBytes: 1 << 20 });
});

test('descents that multiply find nothing, instead of everything in every combination', () => {
  let value: JsonValue = 1;
  for (let depth = 0; depth < 80; depth++) value = { a: value };
  const path = parseJsonPath('..a'.repeat(4));
  assert.ok(path !== undefined);
  assert.deepEqual(findAll(value, path), []);
  const single = parseJsonPath('..a');
  assert.ok(single !== undefined);
  assert.equal(findAll(value, single).length, 80);
});
