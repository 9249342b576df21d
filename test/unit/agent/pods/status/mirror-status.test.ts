/** Tests the status of a static pod at its mirror pod, which others change, delete and recreate. */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { createStatusManager } from '../../../../../agent/pods/status/status-manager.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { pods } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const podOf = (uid: string, annotations: Readonly<Record<string, string>>): Pod => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'p', namespace: 'ns', uid, annotations },
  spec: { nodeName: 'n', containers: [{ name: 'main' }] },
});
const own = podOf('static', { 'kubernetes.io/config.source': 'file', 'kubernetes.io/config.hash': 'h' });
const mirrorOf = (uid: string): Pod => podOf(uid, { 'kubernetes.io/config.mirror': 'h' });
const READY = {
  phase: 'Running',
  conditions: [
    { type: 'ContainersReady', status: 'True' },
    { type: 'Ready', status: 'True' },
  ],
  containerStatuses: [{ name: 'main', ready: true, image: '', imageID: '', restartCount: 0 }],
};

function setUp(t: TestContext) {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  client.seed(pods, mirrorOf('first') as unknown as KubeObject);
  /** What the informer shows. */
  const shown: { mirror: Pod | undefined } = { mirror: mirrorOf('first') };
  const manager = createStatusManager({
    client,
    clock,
    logger: silentLogger,
    mirrorOf: () => shown.mirror,
    safety: {
      podCouldHaveRunningContainers: () => true,
      podIsFinished: () => false,
    },
  });
  const stop = new AbortController();
  const running = manager.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await running;
  });
  const stored = (): Pod => client.peek(pods, 'ns', 'p') as unknown as Pod;
  const ready = (): string | undefined => stored().status?.conditions?.find(({ type }) => type === 'Ready')?.status;
  const recreate = async (uid: string): Promise<void> => {
    await client.delete(pods, 'ns', 'p');
    client.seed(pods, mirrorOf(uid) as unknown as KubeObject);
  };
  return { clock, client, manager, shown, stored, ready, recreate };
}

describe('the status of a static pod', () => {
  it('is sent again after the node controller has marked the mirror pod as not ready', async (t) => {
    const { clock, client, manager, stored, ready } = setUp(t);
    manager.set(own, READY);
    await clock.settle();
    assert.equal(ready(), 'True');
    const conditions = [{ type: 'Ready', status: 'False' }];
    await client.patch(pods, 'ns', 'p', { type: 'strategic', body: { status: { conditions } } });
    manager.reconcile(own, stored());
    await clock.settle();
    assert.equal(ready(), 'True');
    const before = client.writes('patch').length;
    manager.reconcile(own, stored());
    await clock.settle();
    assert.equal(client.writes('patch').length, before);
  });

  it('reaches a mirror pod that was recreated while the status was on its way', async (t) => {
    const { clock, manager, shown, recreate, ready } = setUp(t);
    await recreate('second');
    // The informer still shows the first one.
    manager.set(own, READY);
    await clock.settle();
    shown.mirror = mirrorOf('second');
    await clock.advance(30_000);
    assert.equal(ready(), 'True');
  });

  it('reaches a mirror pod that is recreated after the status found none', async (t) => {
    const { clock, client, manager, shown, stored, ready } = setUp(t);
    await client.delete(pods, 'ns', 'p');
    manager.set(own, READY);
    await clock.settle();
    client.seed(pods, mirrorOf('second') as unknown as KubeObject);
    shown.mirror = mirrorOf('second');
    manager.reconcile(own, stored());
    await clock.settle();
    assert.equal(ready(), 'True');
  });

  it('reaches a mirror pod that is recreated after it had the status', async (t) => {
    const { clock, manager, shown, recreate, stored, ready } = setUp(t);
    manager.set(own, READY);
    await clock.settle();
    await recreate('second');
    shown.mirror = mirrorOf('second');
    manager.reconcile(own, stored());
    await clock.settle();
    assert.equal(ready(), 'True');
  });

  it('does not reach the mirror pod of an earlier manifest', async (t) => {
    const { clock, client, manager } = setUp(t);
    manager.set(own, READY);
    await clock.settle();
    const before = client.writes('patch').length;
    manager.reconcile(own, podOf('old', { 'kubernetes.io/config.mirror': 'old' }));
    await clock.settle();
    assert.equal(client.writes('patch').length, before);
  });
});
