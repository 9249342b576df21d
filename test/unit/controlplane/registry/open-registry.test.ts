import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { loadSchema } from '../../../../api/schema/table.ts';
import { openRegistry } from '../../../../controlplane/registry/registry.ts';
import { serveRegistry } from '../../../../controlplane/registry/served-rests.ts';
import { openMemoryStorage } from '../../../../controlplane/storage/memory.ts';
import { stampRevision } from '../../../../controlplane/storage/object-bytes.ts';
import { noFieldManagement } from '../../../fakes/no-field-management.ts';

test('an open registry serves reads alone until it gets an admission chain, and then keeps the order of discovery', async () => {
  const schema = loadSchema();
  const storage = openMemoryStorage({ clock: systemClock, stamp: stampRevision });
  const registry = await openRegistry({
    storage,
    schema,
    clock: systemClock,
    logger: silentLogger,
    serviceClusterCidrs: ['10.96.0.0/16'],
    serviceNodePorts: { from: 30000, to: 30100 },
    eventTtlMs: 3_600_000,
    serves: ({ group }) => group !== 'apps',
  });
  const { catalog } = registry;
  const verbs = (): string[] => Object.keys(catalog.find('', 'v1', 'pods', '') ?? {});
  assert.deepEqual(verbs(), ['info', 'subresource', 'get', 'list', 'watch']);
  assert.equal(catalog.find('apps', 'v1', 'deployments', ''), undefined);
  const admission = { admit: async () => undefined, validate: async () => undefined, beforeWrite: () => undefined };
  serveRegistry(registry, { schema, admission, fieldManagement: () => noFieldManagement });
  assert.ok(verbs().includes('create') && verbs().includes('deleteCollection'));
  assert.equal(catalog.find('apps', 'v1', 'deployments', ''), undefined);
  const core = catalog.resources().filter(({ group }) => group === '');
  assert.deepEqual(
    core.slice(0, 3).map(({ resource }) => resource),
    ['bindings', 'componentstatuses', 'configmaps'],
  );
  registry.close();
  await storage.close();
});
