import assert from 'node:assert/strict';
import { test } from 'node:test';
import { passPodCidrs } from '../../../../agent/assembly/pod-cidrs.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

function setUp({ runtimeFailures = 0, followUpFailures = 0 }) {
  const clock = new FakeClock();
  const stop = new AbortController();
  const calls: string[] = [];
  let assign: (cidrs: readonly string[]) => void = () => undefined;
  let checks = 0;
  passPodCidrs({
    node: { onPodCidrs: (listener) => void (assign = listener) },
    runtime: {
      setPodCidr: (cidrs, settings) => {
        calls.push(`${cidrs.join()} ${settings?.mtu ?? ''}`);
        return calls.length <= runtimeFailures ? Promise.reject(new Error('unavailable')) : Promise.resolve();
      },
    },
    mtu: () => Promise.resolve(1450),
    onAccepted: () => {
      checks++;
      return checks <= followUpFailures ? Promise.reject(new Error('unavailable')) : Promise.resolve();
    },
    clock,
    logger: silentLogger,
    signal: stop.signal,
  });
  return { clock, stop, calls, assign: (cidr: string) => assign([cidr]), checks: () => checks };
}

test('the pod CIDRs are sent to a failing runtime until it accepts them, and not again afterwards', async () => {
  const { clock, stop, calls, assign, checks } = setUp({ runtimeFailures: 2 });
  assign('10.0.1.0/24');
  await clock.advance(60_000);
  assert.deepEqual(calls, ['10.0.1.0/24 1450', '10.0.1.0/24 1450', '10.0.1.0/24 1450']);
  assert.equal(checks(), 1);
  stop.abort();
});

test('the newest of two assignments is passed to the runtime', async () => {
  const { clock, stop, calls, assign } = setUp({ runtimeFailures: 1 });
  assign('10.0.1.0/24');
  await clock.settle();
  assign('10.0.2.0/24');
  await clock.advance(60_000);
  assert.deepEqual(calls, ['10.0.1.0/24 1450', '10.0.2.0/24 1450']);
  stop.abort();
});

test('what follows the acceptance of the pod CIDRs is tried again after a failure', async () => {
  const { clock, stop, assign, checks } = setUp({ followUpFailures: 2 });
  assign('10.0.1.0/24');
  await clock.advance(60_000);
  assert.equal(checks(), 3);
  stop.abort();
});
