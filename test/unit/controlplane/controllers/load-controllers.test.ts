/** Tests that controllers are loaded one in a turn, and only those that are enabled. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { controllerTable } from '../../../../controlplane/controllers/controller-table.ts';
import { loadControllers } from '../../../../controlplane/controllers/start.ts';

const turnsOf = async (work: Promise<unknown>): Promise<number> => {
  let isDone = false;
  const done = work.then(() => void (isDone = true));
  let turns = 0;
  for (; !isDone; turns += 1) await setImmediate();
  await done;
  return turns;
};

test('every row of the table loads a function that runs the controller', async () => {
  for (const { name, load } of controllerTable({})) assert.equal(typeof (await load()), 'function', name);
});

test('loads one controller in a turn of the event loop, so that requests are served in between', async () => {
  const enabled = ['*'];
  const turns = await turnsOf(loadControllers({ keys: {}, enabled, isOver: () => false }));
  assert.ok(turns >= controllerTable({}).length, `${turns} turns`);
});

test('loads no controller that is off, and none after the control plane is closed', async () => {
  const off = controllerTable({}).map(({ name }) => `-${name}`);
  assert.ok((await turnsOf(loadControllers({ keys: {}, enabled: ['*', ...off], isOver: () => false }))) <= 2);
  assert.ok((await turnsOf(loadControllers({ keys: {}, enabled: ['*'], isOver: () => true }))) <= 3);
});
