/** Tests admission of objects by the state of their namespace, including recently deleted namespaces. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { AdmissionAttributes } from '../../../../../controlplane/security/admission/admission.ts';
import { namespaceLifecycle } from '../../../../../controlplane/security/admission/namespace-lifecycle.ts';
import { RecentDeletions } from '../../../../../controlplane/security/admission/recent-deletions.ts';
import type { Listers } from '../../../../../controlplane/model/listers.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

function setup() {
  const clock = new FakeClock();
  const listed = new Map<string, KubeObject>();
  const live: string[] = [];
  const lister = {
    get: (_: string, name: string) => listed.get(name),
    live: (_: string, name: string) => {
      live.push(name);
      return Promise.resolve(listed.get(name));
    },
  };
  const plugin = namespaceLifecycle({ of: () => lister } as unknown as Listers, clock, (name) => listed.get(name));
  const admit = (attributes: object) =>
    plugin.admit?.(
      { subresource: '', dryRun: false, ...attributes } as AdmissionAttributes,
      new AbortController().signal,
    );
  return {
    clock,
    listed,
    plugin,
    live,
    exists: (name: string) => void listed.set(name, { metadata: { name } }),
    remove: (name: string) =>
      admit({ operation: 'DELETE', resource: { group: '', resource: 'namespaces' }, name, namespace: name }),
    create: (namespace: string, resource = { group: '', resource: 'configmaps' }) =>
      admit({ operation: 'CREATE', resource, name: 'c', namespace }),
  };
}

describe('admission by namespace', () => {
  it('reads a namespace live for half a minute after its deletion', async () => {
    const { clock, live, exists, remove, create } = setup();
    exists('shop');
    await remove('shop');
    await create('shop');
    assert.deepEqual(live, ['shop']);
    await clock.advance(30_001);
    await create('shop');
    assert.deepEqual(live, ['shop']);
  });

  for (const [what, change] of [
    ['is removed', (listed: Map<string, KubeObject>) => listed.delete('shop')],
    [
      'begins to terminate',
      (listed: Map<string, KubeObject>) =>
        listed.set('shop', { metadata: { name: 'shop', deletionTimestamp: '2026-01-01T00:00:00Z' } }),
    ],
  ] as const) {
    it(`creates nothing where the namespace ${what} while webhooks are called`, async () => {
      const { listed, plugin, exists, create } = setup();
      exists('shop');
      await create('shop');
      const attributes = {
        operation: 'CREATE',
        resource: { group: '', resource: 'pods' },
        name: 'p',
        namespace: 'shop',
      };
      plugin.beforeWrite?.(attributes as AdmissionAttributes);
      change(listed);
      assert.throws(() => plugin.beforeWrite?.(attributes as AdmissionAttributes), /not found|being terminated/);
    });
  }

  it('reviews access in a missing namespace, but creates no custom resource of the same name', async () => {
    const { create } = setup();
    await create('gone', { group: 'authorization.k8s.io', resource: 'localsubjectaccessreviews' });
    const custom = { group: 'evil.example.com', resource: 'localsubjectaccessreviews' };
    await assert.rejects(async () => create('gone', custom), /namespaces "gone" not found/);
  });

  it('does not remember names of namespaces that never existed', async () => {
    const { live, exists, remove, create } = setup();
    await remove('shop');
    exists('shop');
    await create('shop');
    assert.deepEqual(live, ['shop'], 'one live read, for the deletion');
  });
});

describe('recent deletions', () => {
  it('keep no name for longer than half a minute, whether or not it is looked up', async () => {
    const clock = new FakeClock();
    const deletions = new RecentDeletions(clock);
    for (let at = 0; at < 1000; at += 1) deletions.add(`n${at}`);
    await clock.advance(20_000);
    deletions.add('n0');
    await clock.advance(20_000);
    deletions.add('last');
    assert.deepEqual([deletions.size, deletions.has('n0'), deletions.has('n1')], [2, true, false]);
  });
});
