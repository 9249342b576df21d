import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../agent/base/model/pod.ts';
import { TokenManager } from '../../../../agent/volumes/token-manager.ts';
import { formatTime } from '../../../../api/machinery/clock.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const pod: Pod = {
  metadata: { name: 'p', namespace: 'ns', uid: 'u' },
  spec: { serviceAccountName: 'robot', containers: [] },
};

function setUp() {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const state = { asked: 0, unreachable: false };
  client.intercept((call) => {
    if (state.unreachable) throw new Error('the API server is unreachable');
    const spec = call.object?.['spec'] as { expirationSeconds: number };
    state.asked += 1;
    const expirationTimestamp = formatTime(clock.now() + spec.expirationSeconds * 1000);
    return { metadata: {}, status: { token: `token-${state.asked}`, expirationTimestamp } } as never;
  });
  return { clock, client, state, manager: new TokenManager({ client, clock }) };
}

describe('tokens of service accounts', () => {
  it('are bound to the pod and requested once', async () => {
    const { client, manager } = setUp();
    const spec = { audience: 'vault', expirationSeconds: 3600 };
    assert.equal(await manager.token(pod, spec), 'token-1');
    assert.equal(await manager.token(pod, spec), 'token-1');
    const [call] = client.writes('create');
    assert.deepEqual([call?.namespace, call?.name, call?.subresource], ['ns', 'robot', 'token']);
    assert.deepEqual(call?.object?.['spec'], {
      audiences: ['vault'],
      expirationSeconds: 3600,
      boundObjectRef: { apiVersion: 'v1', kind: 'Pod', name: 'p', uid: 'u' },
    });
  });

  it('are renewed after four fifths of their life, or a day', async () => {
    const { clock, manager } = setUp();
    const hour = { audience: undefined, expirationSeconds: 3600 };
    const week = { audience: undefined, expirationSeconds: 7 * 86_400 };
    await manager.token(pod, hour);
    await manager.token(pod, week);
    await clock.advance(2879_000);
    assert.equal(await manager.token(pod, hour), 'token-1');
    await clock.advance(2000);
    assert.equal(await manager.token(pod, hour), 'token-3');
    assert.equal(await manager.token(pod, week), 'token-2');
    await clock.advance(86_400_000);
    assert.equal(await manager.token(pod, week), 'token-4');
  });

  it('are used while the API server is unreachable, until they expire', async () => {
    const { clock, state, manager } = setUp();
    const spec = { audience: undefined, expirationSeconds: 3600 };
    await manager.token(pod, spec);
    state.unreachable = true;
    await clock.advance(3_500_000);
    assert.equal(await manager.token(pod, spec), 'token-1');
    await clock.advance(100_000);
    await assert.rejects(manager.token(pod, spec), { message: 'failed to fetch token: the API server is unreachable' });
  });

  it('are forgotten with their pod', async () => {
    const { manager } = setUp();
    const spec = { audience: undefined, expirationSeconds: 3600 };
    await manager.token(pod, spec);
    manager.forgetPod('u');
    assert.equal(await manager.token(pod, spec), 'token-2');
  });
});
