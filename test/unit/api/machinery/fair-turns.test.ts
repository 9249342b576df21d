import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FairTurns, TooManyWaiting } from '../../../../api/machinery/fair-turns.ts';

/** Turns with the work that runs, in the order in which it began, and the work that was refused. */
function setUp(mostAtOnce: number, mostWaiting: number) {
  const turns = new FairTurns({ mostAtOnce, mostWaiting });
  const began: string[] = [];
  const refused: string[] = [];
  const ends: (() => void)[] = [];
  const add = (owner: string, name: string): void => {
    turns
      .run(owner, () => {
        began.push(name);
        return new Promise<void>((resolve) => ends.push(resolve));
      })
      .catch((error: unknown) => {
        assert.ok(error instanceof TooManyWaiting);
        refused.push(name);
      });
  };
  const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const endOldest = async (): Promise<void> => {
    ends.shift()?.();
    await settle();
  };
  return { add, settle, endOldest, began, refused };
}

test('an owner that floods the turns leaves every other turn to others', async () => {
  const { add, settle, endOldest, began } = setUp(2, 100);
  for (let i = 0; i < 50; i++) add('flood', `f${i}`);
  add('other', 'o0');
  add('third', 't0');
  await settle();
  assert.deepEqual(began, ['f0', 'f1']);
  for (let i = 0; i < 3; i++) await endOldest();
  assert.deepEqual(began, ['f0', 'f1', 'o0', 'f2', 't0']);
});

test('of what waits, the owner with most loses its newest', async () => {
  const { add, settle, endOldest, began, refused } = setUp(1, 3);
  for (let i = 0; i < 5; i++) add('flood', `f${i}`);
  await settle();
  assert.deepEqual(refused, ['f4'], 'one runs, and three wait');
  add('other', 'o0');
  await settle();
  assert.deepEqual(refused, ['f4', 'f3']);
  for (let i = 0; i < 3; i++) await endOldest();
  assert.deepEqual(began, ['f0', 'f1', 'o0', 'f2']);
});

test('work that fails ends its turn', async () => {
  const turns = new FairTurns({ mostAtOnce: 1, mostWaiting: 1 });
  await assert.rejects(
    turns.run('a', () => Promise.reject(new Error('no'))),
    /no/,
  );
  assert.equal(await turns.run('a', () => Promise.resolve(1)), 1);
});
