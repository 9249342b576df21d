/** Tests the last known pods and the objects that they refer to, while the API server is unreachable. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { CheckpointStore } from '../../../../../agent/pods/checkpoints/checkpoint-store.ts';
import { LastKnownClient } from '../../../../../agent/pods/checkpoints/last-known-client.ts';
import { PodCheckpoints } from '../../../../../agent/pods/checkpoints/pod-checkpoints.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { createApiSource } from '../../../../../agent/sources/api-source.ts';
import { createPodConfig } from '../../../../../agent/sources/pod-config.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import type { Client } from '../../../../../api/client/client.ts';
import { configMaps, pods as podsResource, serviceAccounts } from '../../../../../api/client/resources.ts';
import { newNotFound } from '../../../../../api/meta/status-error.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';
import { until } from '../../../../until.ts';

const map = (colour: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { namespace: 'd', name: 'm', uid: 'm1' },
  data: { colour },
});

function pod(uid: string, more: object = {}): Pod {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `p-${uid}`, namespace: 'd', uid, creationTimestamp: '2026-01-01T00:00:00Z' },
    spec: { containers: [{ name: 'c', image: 'i' }], ...more },
  } as unknown as Pod;
}

/**
 * Returns a client that responds with `answer` to reads of objects, and fails all other requests like a disconnected host.
 */
function clientOf(answer: () => Promise<KubeObject>): Client {
  const away = (): Promise<never> => Promise.reject(new Error('connect ECONNREFUSED'));
  return { get: answer, create: answer, list: away, watch: away } as unknown as Client;
}

describe('the last known answers', () => {
  let directory = '';
  let clock: FakeClock;
  let store: CheckpointStore;
  beforeEach(async () => {
    directory = temporaryFolder();
    clock = new FakeClock();
    store = new CheckpointStore({ directory, clock, logger: silentLogger });
  });
  afterEach(async () => {
    await store.close();
  });

  const ask = (answer: () => Promise<KubeObject>): Promise<KubeObject> =>
    new LastKnownClient({ client: clientOf(answer), store, clock }).get(configMaps, 'd', 'm');

  it('replace an unreachable API server, over a restart', async () => {
    await ask(() => Promise.resolve(map('red')));
    await store.close();
    store = new CheckpointStore({ directory, clock, logger: silentLogger });
    const last = await ask(() => Promise.reject(new Error('connect ECONNREFUSED')));
    assert.deepEqual(last['data'], { colour: 'red' });
  });

  it('replace an API server that does not respond', async () => {
    await ask(() => Promise.resolve(map('red')));
    const asked = ask(() => new Promise(() => undefined));
    await clock.advance(3_000);
    assert.deepEqual((await asked)['data'], { colour: 'red' });
  });

  it('of long names are kept, and hold up no others', async () => {
    const name = 'n'.repeat(253);
    const namespace = 's'.repeat(63);
    const get = (answer: () => Promise<KubeObject>, object: string): Promise<KubeObject> =>
      new LastKnownClient({ client: clientOf(answer), store, clock }).get(configMaps, namespace, object);
    const long = { ...map('red'), metadata: { namespace, name } };
    await get(async () => long, name);
    await get(async () => map('blue'), 'short');
    await store.flush();
    store = new CheckpointStore({ directory, clock, logger: silentLogger });
    const away = (): Promise<never> => Promise.reject(new Error('connect ECONNREFUSED'));
    assert.deepEqual((await get(away, name)).metadata, long.metadata);
    assert.deepEqual((await get(away, 'short'))['data'], { colour: 'blue' });
    await store.flush();
    assert.equal((await readdir(join(directory, 'objects'))).length, 2);
  });

  it('do not stand in for an answer: what is gone is gone', async () => {
    await ask(() => Promise.resolve(map('red')));
    await assert.rejects(
      ask(() => Promise.reject(newNotFound({ group: '', resource: 'configmaps' }, 'm'))),
      /not found/,
    );
  });

  it('are the error where nothing is known', () =>
    assert.rejects(
      ask(() => Promise.reject(new Error('connect ECONNREFUSED'))),
      /ECONNREFUSED/,
    ));

  it('hold the token of a pod and go with it', async () => {
    const request = {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      metadata: {},
      spec: { audiences: [], boundObjectRef: { uid: 'u1' } },
    };
    const create = (answer: () => Promise<KubeObject>): Promise<KubeObject> =>
      new LastKnownClient({ client: clientOf(answer), store, clock }).create(serviceAccounts, 'd', request, {
        name: 'default',
        subresource: 'token',
      });
    await create(() => Promise.resolve({ ...request, status: { token: 't' } }));
    const again = await create(() => Promise.reject(new Error('connect ECONNREFUSED')));
    assert.deepEqual(again['status'], { token: 't' });
    const checkpoints = new PodCheckpoints({ store, logger: silentLogger });
    checkpoints.save([pod('u1'), pod('u2')]);
    await clock.settle();
    await store.flush();
    assert.equal((await readdir(join(directory, 'objects'))).length, 1);
    checkpoints.save([pod('u2')]);
    await clock.settle();
    await settled(store, async () => (await readdir(join(directory, 'objects'))).length === 0);
  });

  it('of objects that no pod names any more are forgotten', async () => {
    await ask(() => Promise.resolve(map('red')));
    const volumes = [{ name: 'v', configMap: { name: 'm' } }];
    const checkpoints = new PodCheckpoints({ store, logger: silentLogger });
    checkpoints.save([pod('u1', { volumes }), pod('u2')]);
    await settled(store, async () => (await readdir(join(directory, 'pods'))).length === 2);
    assert.deepEqual(await store.keys('objects'), ['objects/configmaps_d_m']);
    checkpoints.save([pod('u2')]);
    await settled(store, async () => (await readdir(join(directory, 'objects'))).length === 0);
    assert.deepEqual(await store.keys('pods'), ['pods/u2']);
  });

  it('of pods run while the API server is unreachable, and are updated when it is reachable again', async () => {
    const before = new PodCheckpoints({ store, logger: silentLogger });
    before.save([pod('kept'), pod('deleted')]);
    await store.flush();

    let away = true;
    const client = new FakeClient(clock);
    client.seed(podsResource, { ...pod('kept'), spec: { ...pod('kept').spec, nodeName: 'n' } } as never);
    client.intercept(() => {
      if (away) throw new Error('connect ECONNREFUSED');
    });
    const checkpoints = new PodCheckpoints({ store, logger: silentLogger });
    const source = createApiSource({ client, nodeName: 'n', clock, logger: silentLogger, checkpoints });
    const config = createPodConfig({ sources: [source], clock, logger: silentLogger });
    const stop = new AbortController();
    const seen: string[] = [];
    const running = config.run(stop.signal, ({ type, pods }) =>
      seen.push(...pods.map(({ metadata }) => `${type} ${metadata.uid}`)),
    );
    await clock.advance(5_000);
    await settled(store, () => Promise.resolve(seen.length > 0));
    assert.deepEqual(seen.toSorted(), ['add deleted', 'add kept']);
    // Nothing is cleaned up while the pods come from a checkpoint.
    assert.equal(config.allSourcesReady(), false);
    seen.length = 0;
    away = false;
    await clock.advance(60_000);
    await settled(store, () => Promise.resolve(config.allSourcesReady()));
    assert.equal(seen[0], 'remove deleted');
    assert.equal(
      seen.some((entry) => entry.startsWith('add')),
      false,
    );
    stop.abort(new Error('done'));
    await clock.advance(60_000);
    await running;
  });
});

/** Waits in real time, because files are read and written. */
async function settled(store: CheckpointStore, done: () => Promise<boolean>): Promise<void> {
  await until('the files', async () => {
    await store.flush();
    return done();
  });
}
