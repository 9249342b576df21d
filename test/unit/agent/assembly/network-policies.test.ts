/** Tests which agents enforce network policies: those of a cluster that lets nodes read them, for as long as it does. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { decide } from '../../../../agent/assembly/network-policies.ts';
import type { AgentFlags } from '../../../../agent/options/agent-options.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

interface Situation {
  readonly mode?: string;
  /** The nodes of the cluster provide its services. */
  readonly isOwnCluster?: boolean;
  readonly enforcedBefore?: boolean;
  /** How often the end of the enforcement fails. */
  readonly failures?: number;
}

/**
 * Sets up the agent's network policies. `allowed.now` is what the API server answers; it is `undefined` while the server is
 * unreachable.
 */
function setUp({ mode = 'auto', isOwnCluster = true, enforcedBefore = false, failures = 0 }: Situation) {
  let left = failures;
  const clock = new FakeClock();
  const ending = new AbortController();
  const allowed: { now: boolean | undefined; fault?: string } = { now: true };
  const steps: string[] = [];
  const client = {
    create: () =>
      allowed.now === undefined
        ? Promise.reject(new Error('connection refused'))
        : Promise.resolve({ status: { allowed: allowed.now, evaluationError: allowed.fault } }),
  };
  const running = decide(
    { flags: { networkPolicy: mode } as AgentFlags, clock, logger: silentLogger, signal: ending.signal },
    {
      nodesProvideServices: () => Promise.resolve(isOwnCluster),
      checkpoints: { networkPolicies: () => Promise.resolve(enforcedBefore ? {} : undefined) } as never,
    },
    client as never,
    {
      start: () => void steps.push('start'),
      off: () => ((left -= 1) < 0 ? Promise.resolve(void steps.push('off')) : Promise.reject(new Error('locked'))),
    },
  );
  const pass = async (seconds: number): Promise<void> => {
    for (let passed = 0; passed < seconds; passed += 5) await clock.advance(5_000);
  };
  const end = async (): Promise<void> => {
    ending.abort();
    await pass(5);
    await running;
  };
  return { allowed, steps, pass, end };
}

it('a node that may read policies enforces them, and stops when the right goes, until it comes back', async () => {
  const { allowed, steps, pass, end } = setUp({});
  await pass(5);
  assert.deepEqual(steps, ['start']);
  allowed.now = false;
  await pass(300);
  assert.deepEqual(steps, ['start', 'off']);
  await pass(600);
  assert.deepEqual(steps, ['start', 'off']);
  allowed.now = true;
  await pass(65);
  assert.deepEqual(steps, ['start', 'off', 'start']);
  await end();
});

it('a node goes on to enforce policies while an authorizer of the API server fails, and stops when it denies', async () => {
  const { allowed, steps, pass, end } = setUp({});
  await pass(5);
  allowed.now = false;
  allowed.fault = 'webhook: connection refused';
  await pass(900);
  assert.deepEqual(steps, ['start']);
  allowed.fault = '';
  await pass(10);
  assert.deepEqual(steps, ['start', 'off']);
  await end();
});

it('a node that has not enforced policies takes a denial with a fault as one, so that its pods start', async () => {
  const { allowed, steps, pass, end } = setUp({});
  allowed.now = false;
  allowed.fault = 'clusterrole "gone" not found';
  await pass(10);
  assert.deepEqual(steps.at(-1), 'off');
  await end();
});

it('a node whose rules cannot be removed at first removes them later, and enforces policies again', async () => {
  const { allowed, steps, pass, end } = setUp({ failures: 2 });
  await pass(5);
  allowed.now = false;
  await pass(320);
  assert.deepEqual(steps, ['start', 'off']);
  allowed.now = true;
  await pass(65);
  assert.deepEqual(steps, ['start', 'off', 'start']);
  await end();
});

it('a node that enforced policies before goes on while the API server is unreachable', async () => {
  const { allowed, steps, pass, end } = setUp({ enforcedBefore: true });
  allowed.now = undefined;
  await pass(60);
  assert.deepEqual(steps, ['start']);
  allowed.now = false;
  await pass(10);
  assert.deepEqual(steps, ['start', 'off']);
  await end();
});

it('a node without an answer neither enforces policies nor removes rules', async () => {
  const { allowed, steps, pass, end } = setUp({});
  allowed.now = undefined;
  await pass(60);
  assert.deepEqual(steps, []);
  await end();
});

it('a node of another cluster enforces none, and --network-policy=nftables needs no right', async () => {
  const other = setUp({ isOwnCluster: false });
  await other.pass(5);
  assert.deepEqual(other.steps, ['off']);
  await other.end();
  const forced = setUp({ mode: 'nftables', isOwnCluster: false });
  forced.allowed.now = false;
  await forced.pass(5);
  assert.deepEqual(forced.steps, ['start']);
  await forced.end();
});
