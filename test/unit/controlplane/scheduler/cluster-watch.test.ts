/** Changes of the cluster are deferred while a pod is being scheduled, and a failing change does not stop the others. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ChangeGate } from '../../../../controlplane/scheduler/cluster-watch.ts';
import { silentLogger } from '../../../../api/component/logger.ts';

test('changes wait for the end of a decision, and are applied in their order', async () => {
  const gate = new ChangeGate(silentLogger);
  const seen: string[] = [];
  gate.change(() => seen.push('before'));
  await gate.hold(async () => {
    gate.change(() => seen.push('first'));
    gate.change(() => seen.push('second'));
    seen.push('decided');
  });
  assert.deepEqual(seen, ['before', 'decided', 'first', 'second']);
});

test('a change that fails is logged, and those after it are applied', async () => {
  const failures: unknown[] = [];
  const gate = new ChangeGate({ ...silentLogger, error: (fields) => failures.push(fields) });
  const seen: string[] = [];
  await gate.hold(async () => {
    gate.change(() => {
      throw new Error('a quantity that cannot be read');
    });
    gate.change(() => seen.push('after'));
  });
  assert.deepEqual(seen, ['after']);
  assert.equal(failures.length, 1);
});
