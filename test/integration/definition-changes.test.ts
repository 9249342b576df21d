/** Tests watches of custom resources while their definition changes, stops serving a version, or is deleted. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { customResourceDefinitions } from '../../api/client/resources.ts';
import type { Resource } from '../../api/client/client.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { until } from '../until.ts';

const GROUP = 'changes.example.com';
const NAME = `things.${GROUP}`;
let plane: ControlPlane;

before(async () => {
  plane = await startControlPlane({ memory: true, flags: { controllers: ['-*'], scheduler: false } });
});
after(() => plane.close());

const things = (version: string): Resource => ({
  group: GROUP,
  version,
  resource: 'things',
  kind: 'Thing',
  namespaced: false,
});

const versions = (served: readonly string[], members: readonly string[]) =>
  ['v1', 'v2'].map((name) => ({
    name,
    served: served.includes(name),
    storage: name === 'v1',
    schema: {
      openAPIV3Schema: {
        type: 'object',
        properties: {
          spec: {
            type: 'object',
            properties: Object.fromEntries(members.map((member) => [member, { type: 'string' }])),
          },
        },
      },
    },
  }));

const thing = (name: string, spec: object): KubeObject =>
  ({ apiVersion: `${GROUP}/v1`, kind: 'Thing', metadata: { name }, spec }) as unknown as KubeObject;

interface Watched {
  readonly events: string[];
  readonly ended: Promise<void>;
}

/** Starts a watch from the current state. */
async function watchThings(version: string): Promise<Watched> {
  const { metadata } = await plane.client.list(things(version), {});
  const events: string[] = [];
  const run = async (): Promise<void> => {
    const stream = plane.client.watch(things(version), { resourceVersion: metadata?.resourceVersion ?? '' });
    for await (const { type, object } of stream) events.push(`${type} ${(object as KubeObject).metadata.name}`);
  };
  return { events, ended: run() };
}

test('watches end when the schema changes, and new watches use the new schema', async () => {
  await plane.client.create(customResourceDefinitions, '', {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: NAME },
    spec: {
      group: GROUP,
      scope: 'Cluster',
      names: { plural: 'things', kind: 'Thing' },
      versions: versions(['v1', 'v2'], ['a']),
    },
  } as unknown as KubeObject);
  await until('the definition', () => plane.client.create(things('v1'), '', thing('one', { a: '1', b: '2' })));
  const [first, second] = [await watchThings('v1'), await watchThings('v2')];
  await plane.client.create(things('v1'), '', thing('two', { a: '1' }));
  await until('the events', () => (first.events.length > 0 && second.events.length > 0 ? true : undefined));
  await plane.client.patch(customResourceDefinitions, '', NAME, {
    type: 'merge',
    body: { metadata: { labels: { x: 'y' } } },
  });
  await plane.client.patch(customResourceDefinitions, '', NAME, {
    type: 'merge',
    body: {
      spec: { versions: versions(['v1', 'v2'], ['a', 'b']) },
    },
  });
  await Promise.all([first.ended, second.ended]);
  assert.deepEqual([first.events, second.events], [['ADDED two'], ['ADDED two']]);
  const made = await plane.client.create(things('v1'), '', thing('three', { a: '1', b: '2' }));
  assert.deepEqual(made['spec'], { a: '1', b: '2' });
});

test('watches of a version end when it is no longer served, and its lists respond with 404', async () => {
  const watched = await watchThings('v2');
  await plane.client.patch(customResourceDefinitions, '', NAME, {
    type: 'merge',
    body: {
      spec: { versions: versions(['v1'], ['a', 'b']) },
    },
  });
  await watched.ended;
  await assert.rejects(plane.client.list(things('v2'), {}), isNotFound);
  assert.equal((await plane.client.list(things('v1'), {})).items.length, 3);
});

test('watches report the deletion of every object before they end with the deleted definition', async () => {
  const watched = await watchThings('v1');
  await plane.client.delete(customResourceDefinitions, '', NAME);
  await watched.ended;
  assert.deepEqual(watched.events.sort(), ['DELETED one', 'DELETED three', 'DELETED two']);
  await until('the end', async () => {
    try {
      await plane.client.list(things('v1'), {});
      return undefined;
    } catch (error) {
      return isNotFound(error) ? true : undefined;
    }
  });
});
