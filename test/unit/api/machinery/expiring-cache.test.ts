import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ExpiringCache } from '../../../../api/machinery/expiring-cache.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('values are kept for their time, and the oldest are dropped where there are more than the cache may have', async () => {
  const clock = new FakeClock();
  const cache = new ExpiringCache<string>({ clock, most: 2 });
  for (const key of ['a', 'b', 'c']) cache.set(key, key, 1000);
  assert.deepEqual([cache.get('a')?.value, cache.get('b')?.value, cache.get('c')?.value], [undefined, 'b', 'c']);
  await clock.advance(1001);
  assert.equal(cache.get('c'), undefined);
  cache.set('b', 'b', 0);
  assert.equal(cache.size, 0);
});

test('values are kept within a number of bytes, whatever their form is', () => {
  const cache = new ExpiringCache<unknown>({ clock: new FakeClock(), most: 1000, maxBytes: 160_000 });
  const forms = {
    groups: Array.from({ length: 100 }, (_, at) => `group-${at}`),
    extra: { [`key-${'k'.repeat(4000)}`]: [''] },
    name: 'n'.repeat(8000),
  };
  for (const [name, value] of Object.entries(forms)) {
    for (let i = 0; i < 500; i++) cache.set(`${name}-${i}`, value, 1000);
    assert.ok(cache.size >= 10 && cache.size < 50, `${name}: ${cache.size} entries`);
    assert.ok(cache.get(`${name}-499`), name);
  }
  cache.set('large', 'x'.repeat(10_001), 1000);
  assert.equal(cache.get('large'), undefined, 'a value of more than a sixteenth takes the place of no others');
  assert.ok(cache.size >= 10);
});
