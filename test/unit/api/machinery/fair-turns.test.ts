import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FairTurns, TooManyWaiting } from '../../../../api/machinery/fair-turns.ts';

/** Turns with the work that runs, in the order in which it began, and the work that was refused. */
function setUp(mostAtOnce: number, mostWaiting: number, random = (): number => 0) {
  const turns = new FairTurns({ mostAtOnce, mostWaiting, random });
  const began: string[] = [];
  const refused: string[] = [];
  const ends: (() => void)[] = [];
  const add = (owner: string, name: string): void => {
    turns
      .run(
        owner,
        () => {
          began.push(name);
          return new Promise<void>((resolve) => ends.push(resolve));
        },
        () => name.startsWith('right'),
      )
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

test('an owner that floods the turns leaves the next ones to others', async () => {
  const { add, settle, endOldest, began } = setUp(2, 100);
  for (let i = 0; i < 50; i++) add('flood', `f${i}`);
  add('other', 'o0');
  add('third', 't0');
  await settle();
  assert.deepEqual(began, ['f0', 'f1']);
  for (let i = 0; i < 3; i++) await endOldest();
  assert.deepEqual(began, ['f0', 'f1', 'o0', 't0', 'f2']);
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
  assert.deepEqual(began, ['f0', 'o0', 'f1', 'f2']);
});

test('work that fails ends its turn', async () => {
  const turns = new FairTurns({ mostAtOnce: 1, mostWaiting: 1 });
  await assert.rejects(
    turns.run(
      'a',
      () => Promise.reject(new Error('no')),
      () => true,
    ),
    /no/,
  );
  const one = turns.run(
    'a',
    () => Promise.resolve(1),
    () => true,
  );
  assert.equal(await one, 1);
});

/** Fills the turns with one piece of each of so many owners, which come again as often as they are refused or end. */
async function crowd(turns: ReturnType<typeof setUp>, owners: number, rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < owners; i++) turns.add(`10.0.${i >> 8}.${i & 255}`, `wrong-${round}-${i}`);
    await turns.settle();
    for (let i = 0; i < owners; i++) await turns.endOldest();
  }
  for (let i = 0; i < owners; i++) turns.add(`10.0.${i >> 8}.${i & 255}`, `wrong-last-${i}`);
  await turns.settle();
}

test('a newcomer is before hundreds of owners that come again and again', async () => {
  const turns = setUp(16, 256);
  await crowd(turns, 300, 2);
  turns.add('honest', 'h0');
  await turns.settle();
  await turns.endOldest();
  assert.ok(!turns.refused.includes('h0'));
  assert.equal(turns.began.at(-1), 'h0');
});

test('an owner whose work has succeeded is before all owners that are new', async () => {
  const turns = setUp(16, 256);
  turns.add('honest', 'right');
  await turns.settle();
  await turns.endOldest();
  await crowd(turns, 300, 0);
  turns.add('honest', 'h0');
  await turns.settle();
  await turns.endOldest();
  assert.equal(turns.began.at(-1), 'h0');
});

test('owners that are new get every other turn beside those whose work has succeeded', async () => {
  const { add, settle, endOldest, began } = setUp(1, 10);
  for (const owner of ['a', 'b', 'c']) {
    add(owner, 'right');
    await settle();
    await endOldest();
  }
  for (const owner of ['a', 'b', 'c', 'x', 'y', 'z']) add(owner, owner);
  await settle();
  for (let i = 0; i < 6; i++) await endOldest();
  assert.deepEqual(began.slice(3), ['a', 'b', 'x', 'c', 'y', 'z']);
});

test('of owners that had no turn yet, each one may lose its place to a newcomer', async () => {
  for (const [random, lost] of [
    [0, 'w0'],
    [0.99, 'w3'],
  ] as const) {
    const { add, settle, refused } = setUp(1, 3, () => random);
    add('running', 'r');
    for (let i = 0; i < 4; i++) add(`owner-${i}`, `w${i}`);
    await settle();
    assert.deepEqual(refused, [lost]);
  }
});

test('what is remembered of owners is bounded', async () => {
  const { add, settle, endOldest, began } = setUp(1, 10);
  for (let i = 0; i < 10_000; i++) {
    add(`owner-${i}`, 'right');
    await settle();
    await endOldest();
  }
  for (const owner of ['running', 'owner-9998', 'owner-0', 'new']) add(owner, owner);
  await settle();
  for (let i = 0; i < 4; i++) await endOldest();
  // The first owner is forgotten, and waits with the new ones.
  assert.deepEqual(began.slice(10_000), ['running', 'owner-9998', 'owner-0', 'new']);
});
