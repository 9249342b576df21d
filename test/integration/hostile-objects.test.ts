/**
 * Writes the largest objects that are accepted. The time of each write grows linearly, so that no client blocks the event loop
 * with one request. A size is the number of items of a list or map.
 */
import { after, before, test } from 'node:test';
import { configMaps, namespaces, pods, deployments, type ResourceOf } from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { assertLinearTime } from '../fuzz/growth.ts';

const NAMESPACE = 'hostile';
let plane: ControlPlane;
let count = 0;

before(async () => {
  plane = await startControlPlane({ memory: true, flags: { controllers: [], scheduler: false } });
  await plane.client.create(namespaces, '', { metadata: { name: NAMESPACE } });
  await plane.client.create(
    { group: '', version: 'v1', resource: 'serviceaccounts', kind: 'ServiceAccount', namespaced: true },
    NAMESPACE,
    { metadata: { name: 'default' } },
  );
});
after(() => plane.close());

const numbered = <T>(size: number, make: (index: number) => T): T[] =>
  Array.from({ length: size }, (_item, index) => make(index));
const members = (size: number, prefix: string): Record<string, string> =>
  Object.fromEntries(numbered(size, (index) => [`${prefix}${index}`, 'v']));
const pod = (spec: object): object => ({ spec: { containers: [{ name: 'c', image: 'i' }], ...spec } });
const deployment = (env: object[]): object => ({
  spec: {
    replicas: 0,
    selector: { matchLabels: { a: 'b' } },
    template: { metadata: { labels: { a: 'b' } }, spec: { containers: [{ name: 'c', image: 'i', env }] } },
  },
});
const owner = (index: number): object => ({ apiVersion: 'v1', kind: 'Pod', name: `p${index}`, uid: `u${index}` });
const managed = (index: number): object => ({
  manager: `m${index}`,
  operation: 'Apply',
  apiVersion: 'v1',
  fieldsType: 'FieldsV1',
  time: '2020-01-01T00:00:00Z',
  fieldsV1: { 'f:data': { [`f:k${index}`]: {} } },
});

interface Hostile {
  readonly resource: ResourceOf<KubeObject>;
  readonly make: (size: number) => object;
  readonly max: number;
  /** Replaces the object by server-side apply. */
  readonly apply?: (size: number) => object;
  readonly subresource?: { readonly name: string; readonly patch: (size: number) => object };
}

const SIZE = 16_384;
const HOSTILE: Readonly<Record<string, Hostile>> = {
  finalizers: {
    resource: configMaps,
    max: 3 * SIZE,
    make: (size) => ({ metadata: { finalizers: numbered(size, (index) => `a.b/${index}`) } }),
  },
  owners: {
    resource: configMaps,
    max: SIZE / 2,
    make: (size) => ({ metadata: { ownerReferences: numbered(size, owner) } }),
  },
  'owners of one uid': {
    resource: configMaps,
    max: SIZE,
    make: (size) => ({ metadata: { ownerReferences: numbered(size, (index) => ({ ...owner(index), uid: 'u' })) } }),
  },
  managers: {
    resource: configMaps,
    max: SIZE / 4,
    make: (size) => ({ metadata: { managedFields: numbered(size, managed) } }),
  },
  labels: { resource: configMaps, max: SIZE, make: (size) => ({ metadata: { labels: members(size, 'l') } }) },
  'data, all of it replaced by apply': {
    resource: configMaps,
    max: SIZE,
    make: (size) => ({ data: members(size, 'a') }),
    apply: (size) => ({ data: members(size, 'b') }),
  },
  'environment variables, all of them replaced by apply': {
    resource: deployments,
    max: SIZE,
    make: (size) => deployment(numbered(size, (index) => ({ name: `A${index}`, value: `$(A${index - 1})` }))),
    apply: (size) => deployment(numbered(size, (index) => ({ name: `B${index}`, value: 'v' }))),
  },
  tolerations: {
    resource: pods,
    max: SIZE,
    make: (size) => pod({ tolerations: numbered(size, (index) => ({ key: `k${index}`, operator: 'Exists' })) }),
  },
  'ephemeral containers': {
    resource: pods,
    max: SIZE / 4,
    make: () => pod({}),
    subresource: {
      name: 'ephemeralcontainers',
      patch: (size) => ({
        spec: { ephemeralContainers: numbered(size, (index) => ({ name: `e${index}`, image: 'i' })) },
      }),
    },
  },
  conditions: {
    resource: pods,
    max: SIZE / 2,
    make: () => pod({}),
    subresource: {
      name: 'status',
      patch: (size) => ({
        status: { conditions: numbered(size, (index) => ({ type: `a/c${index}`, status: 'True' })) },
      }),
    },
  },
};

for (const [name, hostile] of Object.entries(HOSTILE)) {
  test(`an object with thousands of ${name} is written, changed and deleted in linear time`, async () => {
    const { resource, make, apply, subresource, max } = hostile;
    const run = async (size: number): Promise<void> => {
      const { client } = plane;
      const object = `o${(count += 1)}`;
      const made = make(size) as { metadata?: object };
      await client.create(resource, NAMESPACE, { ...made, metadata: { ...made.metadata, name: object } });
      const change = { metadata: { annotations: { a: 'b' } } };
      await client.patch(resource, NAMESPACE, object, { type: 'merge', body: change });
      if (apply !== undefined) {
        const { apiVersion, kind } = { apiVersion: versionOf(resource), kind: resource.kind };
        for (const next of [apply(size), make(size)]) {
          const applied = { apiVersion, kind, metadata: { name: object }, ...next };
          await client.patch(resource, NAMESPACE, object, {
            type: 'apply',
            body: applied,
            force: true,
            fieldManager: 'm',
          });
        }
      }
      if (subresource !== undefined) {
        const options = { subresource: subresource.name };
        const patch = subresource.patch(size);
        await client.patch(resource, NAMESPACE, object, { type: 'merge', body: patch, ...options });
        await client.patch(resource, NAMESPACE, object, { type: 'merge', body: { ...patch, ...change }, ...options });
      }
      await client.delete(resource, NAMESPACE, object, { gracePeriodSeconds: 0 });
      const cleared = { metadata: { finalizers: null } };
      if (name === 'finalizers') await client.patch(resource, NAMESPACE, object, { type: 'merge', body: cleared });
    };
    await run(1);
    await assertLinearTime(run, { minBytes: max, maxBytes: max, noticeableMs: 250 });
  });
}

const versionOf = ({ group, version }: { readonly group: string; readonly version: string }): string =>
  group === '' ? version : `${group}/${version}`;
