import assert from 'node:assert/strict';
import { it } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { namedStatus, takenBy } from '../../../../../controlplane/registry/custom-resources/accepted-names.ts';
import {
  CustomResources,
  type CustomResourcesOptions,
} from '../../../../../controlplane/registry/custom-resources/custom-resources.ts';
import {
  CLEANUP_FINALIZER,
  type Definition,
} from '../../../../../controlplane/registry/kinds/apiextensions/definition.ts';
import { ServedDefinitions } from '../../../../../controlplane/registry/custom-resources/served-definitions.ts';
import { createCatalog } from '../../../../../controlplane/registry/resource-catalog.ts';
import { openMemoryStorage } from '../../../../../controlplane/storage/memory.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { until } from '../../../../until.ts';

const NAME = 'things.example.com';

function definition(uid: string, metadata: object = {}): Definition {
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: NAME, uid, resourceVersion: '1', ...metadata },
    spec: {
      group: 'example.com',
      scope: 'Namespaced',
      names: { kind: 'Thing', plural: 'things', singular: 'thing', listKind: 'ThingList' },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }],
    },
  } as unknown as Definition;
}

it('the deletion of a definition leaves a newer definition of the same name alone', async () => {
  const abort = new AbortController();
  const clock = new FakeClock();
  const terminating = definition('old', { deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [CLEANUP_FINALIZER] });
  // The first status is that of a definition which is being installed, the second that of an established one.
  const installing = { ...terminating, status: namedStatus(terminating, takenBy([]), clock.now()) } as Definition;
  const shown = { ...terminating, status: namedStatus(installing, takenBy([]), clock.now()) } as KubeObject;
  const writes: string[] = [];
  const written = (verb: string) => (_resource: unknown, object: unknown) => {
    writes.push(verb);
    return Promise.resolve(object);
  };
  let reads = 0;
  const client = {
    get: () => {
      reads += 1;
      return Promise.resolve(definition('new'));
    },
    update: written('update'),
    delete: written('delete'),
    deleteCollection: written('deleteCollection'),
  };
  const resources = new CustomResources({
    catalog: createCatalog(),
    served: new ServedDefinitions(),
    storage: openMemoryStorage({ clock }),
    clock,
    logger: silentLogger,
    client,
    signal: abort.signal,
    metadata: { name: 'ObjectMeta', fields: new Map() },
    fieldManagement: () => ({}),
    decoder: {},
    definitions: {
      get: () => shown,
      list: () => [shown],
      subscribe: (listener: (change: { current: KubeObject; previous: undefined }) => void) =>
        listener({ current: shown, previous: undefined }),
    },
  } as unknown as CustomResourcesOptions);
  await resources.start();
  await until('the read of the definition', () => reads > 0);
  await new Promise(setImmediate);
  assert.deepEqual(writes, []);
  abort.abort();
});
