import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Lifecycle, type Part } from '../../../../agent/assembly/lifecycle.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { whenAborted } from '../../../../api/machinery/clock.ts';

/** Returns a part that records its steps. Its loop takes a moment to end. */
function part(name: string, steps: string[]): Part {
  return {
    async run(signal) {
      steps.push(`run ${name}`);
      await whenAborted(signal);
      await new Promise((resolve) => setImmediate(resolve));
      steps.push(`ended ${name}`);
    },
    close: ({ hostCleared }) => void steps.push(`close ${name} ${hostCleared}`),
  };
}

test('parts start in order, and each is closed after its own loop and after the parts that use it', async () => {
  const steps: string[] = [];
  const lifecycle = new Lifecycle(silentLogger, undefined);
  for (const name of ['a', 'b']) lifecycle.add(part(name, steps));
  lifecycle.start();
  await lifecycle.close({ hostCleared: true });
  assert.deepEqual(steps.slice(0, 2), ['run a', 'run b']);
  assert.deepEqual(
    steps.filter((step) => step.startsWith('close')),
    ['close b true', 'close a true'],
  );
  for (const name of ['a', 'b']) assert.ok(steps.indexOf(`ended ${name}`) < steps.indexOf(`close ${name} true`));
});

test('the parts of a start that failed are closed without having run', async () => {
  const steps: string[] = [];
  const lifecycle = new Lifecycle(silentLogger, undefined);
  lifecycle.add(part('a', steps));
  await lifecycle.close();
  assert.deepEqual(steps, ['close a false']);
});

test('a loop that fails is logged and does not keep the other parts from closing', async () => {
  const steps: string[] = [];
  const logged: string[] = [];
  const logger = { ...silentLogger, error: (_fields: object, message: string) => void logged.push(message) };
  const lifecycle = new Lifecycle(logger, undefined);
  lifecycle.add(part('a', steps));
  lifecycle.add({ run: () => Promise.reject(new Error('failed')) });
  lifecycle.start();
  await new Promise((resolve) => setImmediate(resolve));
  await lifecycle.close();
  assert.deepEqual(logged, ['A loop of the agent failed']);
  assert.equal(steps.at(-1), 'close a false');
});

test('a part that cannot be closed does not keep the other parts open', async () => {
  const steps: string[] = [];
  const lifecycle = new Lifecycle(silentLogger, undefined);
  lifecycle.add(part('a', steps));
  lifecycle.add({ close: () => Promise.reject(new Error('stuck')) });
  await assert.rejects(lifecycle.close(), /stuck/);
  assert.deepEqual(steps, ['close a false']);
});

test('a signal from outside aborts the loops', async () => {
  const outside = new AbortController();
  const lifecycle = new Lifecycle(silentLogger, outside.signal);
  outside.abort(new Error('stop'));
  assert.equal(lifecycle.signal.aborted, true);
});
