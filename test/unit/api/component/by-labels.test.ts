import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ByLabels, onFirstUse } from '../../../../api/component/by-labels.ts';

const LABELS = fc.array(fc.constantFrom('', 'a', 'b', 'a\u0000b'), { minLength: 3, maxLength: 3 });

test('a map by labels holds what a map by the joined labels holds, in the order in which it was set', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), LABELS)), (steps) => {
      const real = new ByLabels<{ readonly at: number }>();
      const model = new Map<string, { readonly at: number }>();
      for (const [at, [deletes, labels]] of steps.entries()) {
        const key = JSON.stringify(labels);
        if (deletes) {
          real.delete(labels);
          model.delete(key);
        } else if (!model.has(key)) {
          real.set(labels, { at });
          model.set(key, { at });
        }
        assert.deepEqual(real.get(labels), model.get(key));
      }
      assert.deepEqual([...real.values()], [...model.values()]);
      assert.equal(real.isEmpty, model.size === 0);
    }),
  );
});

test('fewer or more labels than a map has find and delete nothing', () => {
  const map = new ByLabels<{ readonly at: number }>();
  map.set(['a', 'b'], { at: 1 });
  for (const labels of [[], ['a'], ['a', 'b', 'c']]) {
    map.delete(labels);
    assert.equal(map.get(labels), undefined);
  }
  assert.deepEqual(map.get(['a', 'b']), { at: 1 });
});

test('a series without labels is one', () => {
  const map = new ByLabels<{ readonly at: number }>();
  map.set([], { at: 1 });
  assert.deepEqual(map.get([]), { at: 1 });
  map.delete([]);
  assert.ok(map.isEmpty);
});

test('what belongs to a label is created on its first use, and once', () => {
  const created: string[] = [];
  const of = onFirstUse((label: string) => ({ at: created.push(label) }));
  assert.deepEqual(created, []);
  assert.equal(of('a'), of('a'));
  assert.notEqual(of('a'), of('b'));
  assert.deepEqual(created, ['a', 'b']);
});
