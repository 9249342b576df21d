import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KeyedQueue, SerialQueue } from '../../../../api/machinery/serial-queue.ts';

test('work runs one at a time, in the order of the calls', async () => {
  const queue = new SerialQueue();
  const steps: string[] = [];
  const gate = Promise.withResolvers<void>();
  const first = queue.run(async () => {
    steps.push('first begins');
    await gate.promise;
    steps.push('first ends');
    return 1;
  });
  const second = queue.run(() => steps.push('second'));
  await Promise.resolve();
  assert.equal(queue.length, 2);
  gate.resolve();
  assert.equal(await first, 1);
  await second;
  assert.deepEqual(steps, ['first begins', 'first ends', 'second']);
  assert.equal(queue.length, 0);
});

test('a failure reaches its own caller, and the work behind it runs', async () => {
  const queue = new SerialQueue();
  const failing = queue.run(() => Promise.reject(new Error('boom')));
  const throwing = queue.run(() => {
    throw new Error('at once');
  });
  const behind = queue.run(() => 'ran');
  await assert.rejects(failing, /boom/);
  await assert.rejects(throwing, /at once/);
  assert.equal(await behind, 'ran');
  await queue.drained();
});

test('drained waits for what was queued before it, failures included', async () => {
  const queue = new SerialQueue();
  const gate = Promise.withResolvers<void>();
  let isDrained = false;
  const failing = assert.rejects(queue.run(() => gate.promise));
  const drained = queue.drained().then(() => (isDrained = true));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isDrained, false);
  gate.reject(new Error('boom'));
  await drained;
  await failing;
});

test('keys do not wait for each other, and a key without work is forgotten', async () => {
  const queue = new KeyedQueue();
  const gate = Promise.withResolvers<void>();
  const steps: string[] = [];
  const slow = queue.run('a', async () => {
    await gate.promise;
    steps.push('a1');
  });
  const behind = queue.run('a', () => steps.push('a2'));
  await queue.run('b', () => steps.push('b'));
  assert.deepEqual([queue.has('a'), queue.has('b')], [true, false]);
  gate.resolve();
  await Promise.all([slow, behind]);
  await queue.drained();
  assert.deepEqual(steps, ['b', 'a1', 'a2']);
  assert.equal(queue.has('a'), false);
});

test('a failure under a key does not hold up the key', async () => {
  const queue = new KeyedQueue();
  const failing = queue.run('a', () => Promise.reject(new Error('boom')));
  const behind = queue.run('a', () => 'ran');
  await assert.rejects(failing, /boom/);
  assert.equal(await behind, 'ran');
  assert.equal(queue.has('a'), false);
});
