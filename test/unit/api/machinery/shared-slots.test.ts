import assert from 'node:assert/strict';
import { it } from 'node:test';
import { SharedSlots } from '../../../../api/machinery/shared-slots.ts';

it('an owner that takes all slots loses its newest to owners with fewer, until they have as many', () => {
  const slots = new SharedSlots(4);
  const evicted: string[] = [];
  const take = (owner: string, name: string) => slots.take(owner, () => evicted.push(name));
  for (const name of ['a1', 'a2', 'a3', 'a4']) assert.ok(take('a', name));
  assert.equal(take('a', 'a5'), undefined);
  assert.ok(take('b', 'b1'));
  assert.ok(take('b', 'b2'));
  assert.equal(take('b', 'b3'), undefined);
  assert.equal(take('a', 'a6'), undefined);
  assert.deepEqual(evicted, ['a4', 'a3']);
});

it('freeing a slot twice frees only one slot', () => {
  const slots = new SharedSlots(1);
  const free = slots.take('a', () => undefined);
  free?.();
  free?.();
  assert.ok(slots.take('b', () => undefined));
  assert.equal(
    slots.take('b', () => undefined),
    undefined,
  );
});
