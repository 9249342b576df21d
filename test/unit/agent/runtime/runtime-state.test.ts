import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RuntimeState } from '../../../../agent/runtime/runtime-state.ts';
import type { RuntimeCondition } from '../../../../agent/runtime/runtime.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const condition = (type: string, ready: boolean): RuntimeCondition => ({ type, ready, reason: 'R', message: 'm' });
const READY = [condition('RuntimeReady', true), condition('NetworkReady', true)];

function setUp() {
  const clock = new FakeClock();
  let answer: readonly RuntimeCondition[] | Error = READY;
  let changes = 0;
  const state = new RuntimeState({
    runtime: { conditions: async () => (answer instanceof Error ? Promise.reject(answer) : answer) },
    clock,
    logger: silentLogger,
    onChange: () => void changes++,
  });
  /** Checks the runtime with this answer, and returns the errors and the number of changes so far. */
  const check = async (next: readonly RuntimeCondition[] | Error): Promise<[readonly string[], number]> => {
    answer = next;
    await state.check();
    return [state.runtimeErrors(), changes];
  };
  return { clock, state, check };
}

describe('the state of the runtime', () => {
  it('is down before the first answer', async () => {
    const { state, check } = setUp();
    assert.deepEqual(state.runtimeErrors(), ['container runtime is down']);
    assert.deepEqual(await check(READY), [[], 1]);
    assert.equal(state.networkProblem(), '');
  });

  it('is down after half a minute of failed checks', async () => {
    const { clock, check } = setUp();
    await check(READY);
    const refused = new Error('connection refused');
    assert.deepEqual(await check(refused), [[], 1]);
    await clock.advance(30_000);
    assert.deepEqual(await check(refused), [[], 1]);
    await clock.advance(5_000);
    assert.deepEqual(await check(refused), [['container runtime is down: connection refused'], 2]);
    assert.deepEqual(await check(READY), [[], 3]);
  });

  it('is down at once if the runtime answers that it is not ready', async () => {
    const { check } = setUp();
    await check(READY);
    const message = 'container runtime is down: RuntimeReady=false reason:R message:m';
    assert.deepEqual(await check([condition('RuntimeReady', false)]), [[message], 2]);
    assert.deepEqual(await check([condition('RuntimeReady', false)]), [[message], 2]);
  });

  it('has the problem of the network', async () => {
    const { state, check } = setUp();
    await check(READY);
    assert.deepEqual(await check([condition('NetworkReady', false)]), [[], 2]);
    assert.equal(state.networkProblem(), 'container runtime network not ready: NetworkReady=false reason:R message:m');
  });
});
