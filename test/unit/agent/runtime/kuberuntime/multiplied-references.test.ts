/** Pods with many references to the same objects cannot exhaust the memory and time of the agent. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Container, Pod } from '../../../../../agent/base/model/pod.ts';
import type { ReferencedObjects } from '../../../../../agent/base/model/referenced-objects.ts';
import { missingPullSecrets, pullCredentials } from '../../../../../agent/runtime/images/pull-credentials.ts';
import {
  ContainerConfigError,
  containerEnvironment,
  expandAll,
} from '../../../../../agent/runtime/kuberuntime/environment.ts';
import { type PayloadSources, volumePayload } from '../../../../../agent/volumes/payload.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';

const MEGABYTE = 'x'.repeat(1 << 20);
const SECRET = { metadata: { name: 's', namespace: 'ns', uid: 'u' }, data: { k: btoa(MEGABYTE) } } as KubeObject;
const MAP = { metadata: { name: 'm' }, data: { k: MEGABYTE } } as KubeObject;
const pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u' }, spec: { containers: [] } } as unknown as Pod;
const objects: ReferencedObjects = {
  registerPod: () => undefined,
  unregisterPod: () => undefined,
  configMap: () => Promise.resolve(MAP),
  secret: () => Promise.resolve(SECRET),
};
const times = <T>(count: number, one: (at: number) => T): T[] => Array.from({ length: count }, (_, at) => one(at));

const ENVIRONMENTS: Readonly<Record<string, object>> = {
  'names the same large secret in hundreds of variables': {
    env: times(300, (at) => ({ name: `V${at}`, valueFrom: { secretKeyRef: { name: 's', key: 'k' } } })),
  },
  'takes hundreds of times all variables of the same large config map': {
    envFrom: times(300, (at) => ({ prefix: `P${at}`, configMapRef: { name: 'm' } })),
  },
  'doubles a variable forty times': {
    env: times(40, (at) => ({ name: `V${at + 1}`, value: at === 0 ? 'x' : `$(V${at})$(V${at})` })),
  },
};

for (const [what, container] of Object.entries(ENVIRONMENTS))
  test(`a container that ${what} is not started`, async () => {
    const environment = containerEnvironment(pod, { name: 'c', ...container } as Container, {
      objects,
      services: { synced: () => true, list: () => [] },
      fieldValue: () => '',
      resourceValue: () => '',
    });
    await assert.rejects(environment, ContainerConfigError);
  });

test('a command that repeats a large variable is not started', () => {
  const words = times(300, () => '$(A)');
  assert.throws(() => expandAll(words, () => MEGABYTE), ContainerConfigError);
  assert.throws(() => expandAll(['$(A)'.repeat(300)], () => MEGABYTE), ContainerConfigError);
});

const sources: PayloadSources = {
  objects,
  token: () => Promise.resolve(''),
  fieldValue: () => MEGABYTE,
  resourceValue: () => '',
};
const VOLUMES: Readonly<Record<string, object>> = {
  'projects the same large secret again and again': {
    projected: { sources: times(3000, () => ({ secret: { name: 's' } })) },
  },
  'has hundreds of files with a large field': {
    downwardAPI: { items: times(300, (at) => ({ path: `f${at}`, fieldRef: { fieldPath: 'metadata.annotations' } })) },
  },
};

for (const [what, volume] of Object.entries(VOLUMES))
  test(`a volume that ${what} is not mounted`, async () => {
    await assert.rejects(volumePayload(pod, { name: 'v', ...volume }, sources), /the volume has more than .* MiB$/);
  });

test('a volume that names one key of a large object decodes that key alone', async () => {
  let decoded = 0;
  const data = Object.defineProperty({ small: btoa('1') }, 'large', {
    enumerable: true,
    get: () => {
      decoded += 1;
      return btoa(MEGABYTE);
    },
  });
  const own = { ...objects, secret: () => Promise.resolve({ metadata: {}, data } as unknown as KubeObject) };
  const payload = await volumePayload(
    pod,
    { name: 'v', secret: { secretName: 's', items: [{ key: 'small', path: 'a/b' }] } },
    { ...sources, objects: own },
  );
  assert.deepEqual(
    [...(payload ?? [])].map(([path, { content }]) => `${path} ${content.toString()}`),
    ['a/b 1'],
  );
  assert.equal(decoded, 0);
});

test('an image pull secret that a pod names thousands of times is read once', async () => {
  let read = 0;
  const counting = {
    ...objects,
    secret: () => {
      read += 1;
      return Promise.resolve(undefined);
    },
  };
  const many = { ...pod, spec: { ...pod.spec, imagePullSecrets: times(10_000, () => ({ name: 's' })) } };
  assert.deepEqual(await pullCredentials('registry.example/image', many, counting), []);
  assert.equal(read, 1);
  assert.deepEqual(await missingPullSecrets(many, counting), ['s']);
  assert.equal(read, 2);
});
