/** Compares the ordered table of keys with a sorted array. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import fc from 'fast-check';
import { SortedKeys } from '../../../../controlplane/storage/sorted-keys.ts';

const key = fc.stringMatching(/^[a-c/.-]{0,5}$/);
const change = fc.record({ add: fc.boolean(), key });

it('ranges and counts are those of the sorted set, whatever was added and deleted', () => {
  fc.assert(
    fc.property(fc.array(change, { maxLength: 200 }), key, key, (changes, prefix, startAfter) => {
      const keys = new SortedKeys();
      const model = new Set<string>();
      for (const one of changes) {
        const changed = one.add ? keys.add(one.key) : keys.delete(one.key);
        assert.equal(changed, one.add ? !model.has(one.key) : model.has(one.key));
        if (one.add) model.add(one.key);
        else model.delete(one.key);
      }
      const after = startAfter !== '' && startAfter >= prefix ? startAfter : undefined;
      const expected = [...model]
        .sort()
        .filter((one) => one.startsWith(prefix) && (after === undefined || one > after));
      assert.deepEqual([...keys.runs(prefix, startAfter)].flat(), expected);
      assert.equal(keys.count(prefix, startAfter), expected.length);
      assert.equal(keys.size, model.size);
    }),
  );
});

it('holds thousands of keys in any order of arrival', () => {
  for (const step of [1, 7919, 19999]) {
    const keys = new SortedKeys();
    for (let i = 0; i < 20_000; i += 1) keys.add(String((i * step) % 20_000).padStart(6, '0'));
    const all = [...keys.runs('')].flat();
    assert.equal(all.length, 20_000);
    assert.ok(all.every((one, at) => Number(one) === at));
    assert.equal(keys.count('', '010000'), 9999);
  }
});
