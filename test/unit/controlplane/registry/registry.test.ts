import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { builtinResources } from '../../../../api/schema/resources.ts';
import { openFixture, refusal, type Fixture } from './registry-fixture.ts';

describe('the registry', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture();
  });
  after(() => fixture.close());

  const configMap = (name: string, extra: object = {}) => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name, ...extra },
    data: { k: 'v' },
  });

  it('serves every resource of the table that is stored', () => {
    for (const info of builtinResources()) {
      if (!info.verbs.includes('watch')) continue;
      assert.ok(
        fixture.registry.catalog.find(info.group, info.version, info.resource, ''),
        `${info.group}/${info.resource}`,
      );
    }
  });

  it('creates, reads, replaces and deletes', async () => {
    const made = await fixture.create('v1/configmaps', configMap('a'));
    assert.match(made.metadata.uid ?? '', /^[0-9a-f-]{36}$/);
    assert.deepEqual(await fixture.get('v1/configmaps', 'a'), made);
    const replaced = await fixture.update('v1/configmaps', { ...configMap('a'), data: { k: 'w' } });
    assert.equal(replaced.metadata.uid, made.metadata.uid);
    assert.notEqual(replaced.metadata.resourceVersion, made.metadata.resourceVersion);
    const same = await fixture.update('v1/configmaps', { ...configMap('a'), data: { k: 'w' } });
    assert.equal(same.metadata.resourceVersion, replaced.metadata.resourceVersion);
    assert.equal((await fixture.delete('v1/configmaps', 'a')).state, 'gone');
    assert.equal((await refusal(fixture.get('v1/configmaps', 'a'))).code, 404);
  });

  it('increments the generation of a policy for an empty struct and for an empty list', async () => {
    const policy = (from: object): object => ({
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'p' },
      spec: { podSelector: {}, ingress: [{ from: [{ podSelector: {}, ...from }] }] },
    });
    const generations = [
      await fixture.create('networking.k8s.io/v1/networkpolicies', policy({})),
      await fixture.update('networking.k8s.io/v1/networkpolicies', policy({ podSelector: { matchExpressions: [] } })),
      await fixture.update('networking.k8s.io/v1/networkpolicies', policy({ namespaceSelector: {} })),
    ].map(({ metadata }) => metadata.generation);
    assert.deepEqual(generations, [1, 2, 3]);
  });

  it('refuses an update from an older version', async () => {
    const made = await fixture.create('v1/configmaps', configMap('old'));
    await fixture.update('v1/configmaps', { ...configMap('old'), data: { k: 'x' } });
    const error = await refusal(fixture.update('v1/configmaps', { ...made, data: { k: 'y' } }));
    assert.equal(error.reason, 'Conflict');
  });

  it('patches concurrently without losing a change', async () => {
    await fixture.create('v1/configmaps', configMap('many'));
    await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        fixture.patch('v1/configmaps', 'many', {
          type: 'merge',
          body: { data: { [`k${index}`]: 'v' } },
          duplicates: [],
        }),
      ),
    );
    const { data } = (await fixture.get('v1/configmaps', 'many')) as unknown as { data: object };
    assert.equal(Object.keys(data).length, 21);
  });

  it('pages a list as one snapshot', async () => {
    for (const name of ['a', 'b', 'c', 'd']) await fixture.create('v1/secrets', { metadata: { name } }, 'paging');
    const first = await fixture.list('v1/secrets', { limit: 2 }, 'paging');
    assert.deepEqual(
      first.entries.map((entry) => entry.object.metadata.name),
      ['a', 'b'],
    );
    assert.equal(first.remainingItemCount, 2);
    await fixture.delete('v1/secrets', 'c', {}, 'paging');
    const second = await fixture.list('v1/secrets', { continue: first.continue }, 'paging');
    assert.deepEqual(
      second.entries.map((entry) => entry.object.metadata.name),
      ['c', 'd'],
    );
    assert.equal(second.resourceVersion, first.resourceVersion);
    assert.equal(second.continue, '');
  });

  it('accepts any grace period, and writes a time of deletion for it', async () => {
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'slow' } };
    await fixture.create('v1/pods', { ...pod, spec: { nodeName: 'n', containers: [{ name: 'c', image: 'i' }] } });
    for (const gracePeriodSeconds of [9_000_000_000_000_000, 9_000_000_000, 60]) {
      const marked = await fixture.delete('v1/pods', 'slow', { gracePeriodSeconds });
      assert.equal(marked.state, 'marked');
      const { metadata } = await fixture.get('v1/pods', 'slow');
      assert.equal(metadata.deletionGracePeriodSeconds, gracePeriodSeconds);
      assert.match(metadata.deletionTimestamp ?? '', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    }
  });

  it('keeps an object until its last finalizer is removed', async () => {
    await fixture.create('v1/configmaps', configMap('held', { finalizers: ['example.com/f'] }));
    const marked = await fixture.delete('v1/configmaps', 'held', { propagationPolicy: 'Foreground' });
    assert.equal(marked.state, 'marked');
    const { metadata } = await fixture.get('v1/configmaps', 'held');
    assert.deepEqual(metadata.finalizers, ['example.com/f', 'foregroundDeletion']);
    assert.equal(metadata.deletionGracePeriodSeconds, 0);
    await fixture.patch('v1/configmaps', 'held', {
      type: 'merge',
      body: { metadata: { finalizers: null } },
      duplicates: [],
    });
    assert.equal((await refusal(fixture.get('v1/configmaps', 'held'))).code, 404);
  });

  it('removes a pod without grace at once, also if the request has a precondition on its version', async () => {
    const made = await fixture.create('v1/pods', {
      metadata: { name: 'brief' },
      spec: { terminationGracePeriodSeconds: 0, nodeName: 'here', containers: [{ name: 'c', image: 'i' }] },
    });
    const { uid, resourceVersion } = made.metadata;
    assert.ok(uid !== undefined && resourceVersion !== undefined);
    const gone = await fixture.delete('v1/pods', 'brief', { preconditions: { uid, resourceVersion } });
    assert.equal(gone.state, 'gone');
    assert.equal((await refusal(fixture.get('v1/pods', 'brief'))).code, 404);
  });

  it('accepts evictions of both versions that clients may send, and of no other', async () => {
    const containers = [{ name: 'c', image: 'i' }];
    for (const [name, version] of Object.entries({ old: 'v1beta1', new: 'v1' })) {
      await fixture.create('v1/pods', { apiVersion: 'v1', kind: 'Pod', metadata: { name }, spec: { containers } });
      const eviction = { apiVersion: `policy/${version}`, kind: 'Eviction', metadata: { name } };
      await fixture.create('v1/pods:eviction', eviction);
      assert.equal((await refusal(fixture.get('v1/pods', name))).code, 404);
    }
    const other = { apiVersion: 'policy/v2', kind: 'Eviction', metadata: { name: 'x' } };
    assert.equal((await refusal(fixture.create('v1/pods:eviction', other))).code, 400);
  });

  it('gives generated names and refuses a taken one', async () => {
    const { metadata } = await fixture.create('v1/configmaps', { metadata: { generateName: 'gen-' } });
    assert.match(metadata.name ?? '', /^gen-[a-z0-9]{5}$/);
    const error = await refusal(fixture.create('v1/configmaps', { metadata: { name: metadata.name } }));
    assert.equal(error.message, `configmaps "${metadata.name}" already exists`);
  });

  it('generates a name again if an object has it, and answers that no name is free after eight attempts', async (context) => {
    let calls = 0;
    let different = 0;
    // Five calls make a name. It is always the same, apart from the one with the number `different`.
    context.mock.method(Math, 'random', () => (Math.floor(calls++ / 5) === different ? 0.99 : 0));
    const create = async (): Promise<string> => {
      calls = 0;
      const { metadata } = await fixture.create('v1/configmaps', { metadata: { generateName: 'again-' } });
      return metadata.name ?? '';
    };
    different = 1;
    const first = await create();
    const second = await create();
    assert.notEqual(second, first);
    const error = await refusal(create());
    assert.equal(error.code, 409);
    assert.match(error.message, /the server was not able to generate a unique name for the object$/);
    assert.equal(calls, 8 * 5);
  });

  it('generates another name than that of an object that is being created', async (context) => {
    let calls = 0;
    // The first two names are equal.
    context.mock.method(Math, 'random', () => (calls++ < 10 ? 0.5 : 0.25));
    const create = () => fixture.create('v1/configmaps', { metadata: { generateName: 'at-once-' } });
    const names = (await Promise.all([create(), create()])).map(({ metadata }) => metadata.name);
    assert.equal(new Set(names).size, 2);
  });

  it('serves beta versions of what is stored in a stable one', async () => {
    const address = {
      metadata: { name: '10.0.0.1' },
      spec: { parentRef: { resource: 'services', name: 's', namespace: 'n' } },
    };
    await fixture.create('networking.k8s.io/v1/ipaddresses', address);
    const beta = await fixture.get('networking.k8s.io/v1beta1/ipaddresses', '10.0.0.1');
    assert.equal(beta.apiVersion, 'networking.k8s.io/v1beta1');
  });
});
