import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { Pod } from '../../../../agent/base/model/pod.ts';
import { WatchedObjects } from '../../../../agent/volumes/referenced-objects.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { configMaps } from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const podWith = (uid: string, ...names: string[]): Pod => ({
  metadata: { name: uid, namespace: 'ns', uid },
  spec: { containers: [{ name: 'c', envFrom: names.map((name) => ({ configMapRef: { name } })) }] },
});
const map = (name: string, value: string): KubeObject =>
  ({ metadata: { name, namespace: 'ns' }, data: { value } }) as unknown as KubeObject;
const valueOf = (object: KubeObject | undefined): string | undefined =>
  (object?.['data'] as { value?: string } | undefined)?.value;

function setUp(t: TestContext) {
  const clock = new FakeClock();
  const client = new FakeClient(clock, [[configMaps, map('a', '1')]]);
  const objects = new WatchedObjects({ client, clock, logger: silentLogger });
  t.after(() => objects.close());
  const changes: string[][] = [];
  objects.onChange((pods) => changes.push([...pods].toSorted()));
  return { clock, client, objects, changes };
}

describe('objects that pods refer to', () => {
  it('are read from memory while a pod is registered, and follow the API', async (t) => {
    const { clock, client, objects, changes } = setUp(t);
    objects.registerPod(podWith('one', 'a'));
    objects.registerPod(podWith('two', 'a'));
    await clock.settle();
    assert.equal(valueOf(await objects.configMap(podWith('reader'), 'a')), '1');
    client.seed(configMaps, map('a', '2'));
    await clock.settle();
    assert.equal(valueOf(await objects.configMap(podWith('reader'), 'a')), '2');
    assert.deepEqual(changes, [['one', 'two']]);
    assert.equal(client.calls.filter((call) => call.verb === 'get').length, 0);
    assert.equal(client.calls.filter((call) => call.verb === 'list').length, 1);
  });

  it('may be missing, and listeners are notified when they appear', async (t) => {
    const { clock, client, objects, changes } = setUp(t);
    objects.registerPod(podWith('one', 'late'));
    await clock.settle();
    assert.equal(await objects.configMap(podWith('reader'), 'late'), undefined);
    client.seed(configMaps, map('late', '1'));
    await clock.settle();
    assert.deepEqual(changes, [['one']]);
  });

  it('notify listeners when they appear between the first read and the watch', async (t) => {
    const { clock, client, objects, changes } = setUp(t);
    objects.registerPod(podWith('one', 'late'));
    // The watch is not established yet, so the object is read from the API.
    assert.equal(await objects.configMap(podWith('reader'), 'late'), undefined);
    client.seed(configMaps, map('late', '1'));
    await clock.settle();
    assert.deepEqual(changes, [['one']]);
    assert.equal(valueOf(await objects.configMap(podWith('reader'), 'late')), '1');
  });

  it('are not watched once they are seen to be immutable', async (t) => {
    const { clock, client, objects, changes } = setUp(t);
    client.seed(configMaps, { ...map('fixed', '1'), immutable: true } as KubeObject);
    objects.registerPod(podWith('one', 'fixed'));
    await clock.settle();
    assert.equal(client.calls.filter((call) => call.verb === 'watch').length, 0);
    assert.equal(valueOf(await objects.configMap(podWith('reader'), 'fixed')), '1');
    assert.equal(client.calls.filter((call) => call.verb === 'get').length, 0);
    await clock.advance(120_000);
    assert.equal(client.calls.filter((call) => call.verb === 'list').length, 1);
    assert.deepEqual(changes, []);
  });

  it('are read without a watch while no pod is registered', async (t) => {
    const { client, objects } = setUp(t);
    assert.equal(valueOf(await objects.configMap(podWith('reader'), 'a')), '1');
    assert.equal(await objects.configMap(podWith('reader'), 'none'), undefined);
    assert.equal(
      client.calls.every((call) => call.verb === 'get'),
      true,
    );
  });

  it('are watched until their last pod is removed', async (t) => {
    const { clock, client, objects, changes } = setUp(t);
    objects.registerPod(podWith('one', 'a'));
    objects.registerPod(podWith('two', 'a'));
    await clock.settle();
    objects.unregisterPod(podWith('one', 'a'));
    client.seed(configMaps, map('a', '2'));
    await clock.settle();
    assert.deepEqual(changes, [['two']]);
    objects.registerPod(podWith('two'));
    client.seed(configMaps, map('a', '3'));
    await clock.settle();
    assert.equal(changes.length, 1);
  });

  it('are listed again after a pause where a server ends watches at once', async (t) => {
    const { clock, client, objects } = setUp(t);
    objects.registerPod(podWith('one', 'a'));
    await clock.settle();
    client.endWatches();
    await clock.settle();
    const lists = (): number => client.calls.filter((call) => call.verb === 'list').length;
    assert.equal(lists(), 1);
    await clock.advance(1000);
    assert.equal(lists(), 2);
    assert.equal(valueOf(await objects.configMap(podWith('reader'), 'a')), '1');
  });
});
