/** Tests inventories of manifests: what a ConfigMap must have to be one, and when it is written. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import {
  FileInventory,
  inventoryName,
  type InventoryEntry,
  keyOf,
} from '../../../../../controlplane/controllers/manifests/inventory.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const PATH = '/etc/orchlet/manifests/web.yaml';
const entry: InventoryEntry = {
  group: 'apps',
  kind: 'Deployment',
  namespace: 'n',
  name: 'web',
  uid: 'u',
  isAdopted: false,
};

function stored(data: object, name = inventoryName(PATH)): KubeObject {
  return { metadata: { name, namespace: 'kube-system', uid: 'inventory-uid' }, data } as unknown as KubeObject;
}

describe('an inventory', () => {
  it('is named after its file, and unique', () => {
    assert.match(inventoryName(PATH), /^manifests-web-[0-9a-f]{10}$/);
    assert.notEqual(inventoryName(PATH), inventoryName('/var/lib/orchlet/manifests/web.yaml'));
    assert.match(inventoryName('/x/..yaml'), /^manifests-[0-9a-f]{10}$/);
    assert.match(inventoryName(`/x/${'Long Name '.repeat(20)}.json`), /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
  });

  it('is read with the entries that are complete', () => {
    const objects = [JSON.stringify(entry), '{"group":"apps"}', 'not JSON', '', '{"kind":1}'].join('\n');
    const inventory = FileInventory.read(stored({ path: PATH, installation: 'here', objects }), 'here');
    assert.deepEqual([...(inventory?.entries ?? [])], [[keyOf(entry), entry]]);
    assert.equal(inventory?.isOwn, true);
    assert.equal(inventory.reference.uid, 'inventory-uid');
  });

  for (const [what, object] of [
    ['without data', stored({})],
    ['without a path', stored({ objects: '' })],
    ['whose objects are no text', stored({ path: PATH, objects: 1 })],
    ['with the name of the inventory of another file', stored({ path: '/etc/shadow', objects: '' })],
  ] as const)
    it(`is no ConfigMap ${what}`, () => assert.equal(FileInventory.read(object, 'here'), undefined));

  it('of another installation is not its own, and is not written until it is taken over', async () => {
    const client = new FakeClient(new FakeClock());
    client.intercept(({ verb }) => (verb === 'patch' ? stored({}) : undefined));
    const inventory = FileInventory.read(stored({ path: PATH, installation: 'there', objects: '' }), 'here');
    assert.ok(inventory);
    assert.equal(inventory.isOwn, false);
    inventory.entries.set(keyOf(entry), entry);
    await inventory.write(client);
    assert.equal(client.calls.length, 0);
    inventory.takeOver();
    await inventory.write(client);
    await inventory.write(client);
    assert.equal(client.calls.length, 1, 'what has not changed is not written again');
    const patch = client.calls[0]?.patch as { readonly data?: unknown } | undefined;
    assert.deepEqual(patch?.data, {
      path: PATH,
      installation: 'here',
      objects: JSON.stringify(entry),
    });
  });
});
