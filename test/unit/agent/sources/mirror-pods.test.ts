/** Tests mirror pods: which object represents a static pod at the API server, and which objects stay unchanged. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { NodeObject } from '../../../../agent/base/model/node.ts';
import type { Pod } from '../../../../agent/base/model/pod.ts';
import { createMirrorPods, type MirrorPods, publishedStatus } from '../../../../agent/sources/mirror-pods.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { pods } from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const HASH = 'kubernetes.io/config.hash';
const MIRROR = 'kubernetes.io/config.mirror';

const staticPod = (hash: string): Pod =>
  ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name: 'web-n1',
      namespace: 'default',
      uid: hash,
      generateName: 'web-',
      labels: { app: 'web' },
      finalizers: ['example.org/hold'],
      annotations: { [HASH]: hash, 'kubernetes.io/config.source': 'file' },
    },
    spec: { containers: [{ name: 'main', image: 'i' }] },
  }) as unknown as Pod;

const mirrorOf = (hash: string, more: { readonly uid?: string; readonly deletionTimestamp?: string } = {}): Pod =>
  ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'web-n1', namespace: 'default', uid: 'u1', annotations: { [MIRROR]: hash }, ...more },
    spec: {},
  }) as unknown as Pod;

const registered = { metadata: { name: 'n1', uid: 'node-uid' } } as unknown as NodeObject;

interface Rig {
  readonly client: FakeClient;
  readonly mirrors: MirrorPods;
  readonly stored: () => Pick<KubeObject, 'metadata'> | undefined;
}

function setUp({
  node = registered,
  present,
}: { readonly node?: NodeObject | null; readonly present?: Pod } = {}): Rig {
  const client = new FakeClient(new FakeClock());
  if (present !== undefined) client.seed(pods, present as unknown as KubeObject);
  const mirrors = createMirrorPods({ client, logger: silentLogger, node: () => node ?? undefined });
  return { client, mirrors, stored: () => client.peek(pods, 'default', 'web-n1') };
}

describe('the mirror pod of a static pod', () => {
  it('has no references to objects of the folder, which the API server refuses and may have with other content', async () => {
    const { mirrors, stored } = setUp();
    const pod = staticPod('h1');
    const spec = {
      imagePullSecrets: [{ name: 's' }],
      containers: [
        {
          name: 'main',
          image: 'i',
          envFrom: [{ configMapRef: { name: 'c' } }],
          env: [
            { name: 'PLAIN', value: 'v' },
            { name: 'HIDDEN', valueFrom: { secretKeyRef: { name: 's', key: 'k' } } },
          ],
        },
      ],
      volumes: [
        { name: 'a', configMap: { name: 'c' } },
        { name: 'b', projected: { sources: [{ secret: { name: 's' } }] } },
        { name: 'd', hostPath: { path: '/d' } },
      ],
    };
    await mirrors.ensure({ ...pod, spec } as unknown as Pod, undefined);
    assert.deepEqual((stored() as { spec?: unknown } | undefined)?.spec, {
      containers: [{ name: 'main', image: 'i', env: [{ name: 'PLAIN', value: 'v' }, { name: 'HIDDEN' }] }],
      volumes: [
        { name: 'a', emptyDir: {} },
        { name: 'b', emptyDir: {} },
        { name: 'd', hostPath: { path: '/d' } },
      ],
    });
  });

  it('has the hash of its manifest, the metadata of the manifest and the node as owner', async () => {
    const { mirrors, stored } = setUp();
    assert.equal(await mirrors.ensure(staticPod('h1'), undefined), true);
    const { annotations, finalizers, generateName, labels, ownerReferences } = stored()?.metadata ?? {};
    assert.deepEqual([generateName, finalizers], ['web-', ['example.org/hold']]);
    assert.deepEqual([annotations?.[MIRROR], annotations?.[HASH], labels], ['h1', 'h1', { app: 'web' }]);
    assert.deepEqual(ownerReferences, [
      { apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'node-uid', controller: true },
    ]);
  });

  it('stays as it is while the manifest does', async () => {
    const present = mirrorOf('h1');
    const { client, mirrors } = setUp({ present });
    assert.equal(await mirrors.ensure(staticPod('h1'), present), true);
    assert.deepEqual(client.calls, []);
  });

  for (const [what, present] of [
    ['an earlier manifest', mirrorOf('h0')],
    ['the same manifest that is being deleted', mirrorOf('h1', { deletionTimestamp: '2026-01-01T00:00:00Z' })],
  ] as const)
    it(`replaces that of ${what}`, async () => {
      const { mirrors, stored } = setUp({ present });
      assert.equal(await mirrors.ensure(staticPod('h1'), present), true);
      const { uid, annotations, deletionTimestamp } = stored()?.metadata ?? {};
      assert.deepEqual([uid === 'u1', annotations?.[MIRROR], deletionTimestamp], [false, 'h1', undefined]);
    });

  for (const [what, node] of [
    ['is not registered', null],
    ['is being deleted', { metadata: { ...registered.metadata, deletionTimestamp: '2026-01-01T00:00:00Z' } }],
  ] as const)
    it(`waits while the node ${what}`, async () => {
      const { mirrors, stored } = setUp({ node: node as NodeObject | null });
      assert.equal(await mirrors.ensure(staticPod('h1'), undefined), false);
      assert.equal(stored(), undefined);
    });

  it('waits while another pod has its name, and leaves that pod alone', async () => {
    const { mirrors, stored } = setUp({ present: mirrorOf('other') });
    assert.equal(await mirrors.ensure(staticPod('h1'), undefined), false);
    assert.equal(stored()?.metadata.annotations?.[MIRROR], 'other');
  });

  it('is deleted once: neither a newer pod of its name nor its absence is a failure', async () => {
    const newer = setUp({ present: mirrorOf('h2', { uid: 'u2' }) });
    await newer.mirrors.delete(mirrorOf('h1'));
    assert.equal(newer.stored()?.metadata.uid, 'u2');
    const absent = setUp();
    await absent.mirrors.delete(mirrorOf('h1'));
  });

  it('is not taken for deleted where the API server refuses the deletion', async () => {
    const { client, mirrors } = setUp({ present: mirrorOf('h1') });
    client.intercept(() => Promise.reject(new Error('no answer')));
    await assert.rejects(mirrors.delete(mirrorOf('h1')), /no answer/);
  });
});

describe('the published status of a static pod', () => {
  const withStatus = (pod: Pod, phase: string): Pod => ({ ...pod, status: { phase } }) as unknown as Pod;

  it('is that of its mirror pod', () => {
    const mirror = withStatus(mirrorOf('h1'), 'Running');
    assert.equal(publishedStatus(staticPod('h1'), () => mirror)?.phase, 'Running');
  });

  for (const [what, mirror] of [
    ['of an earlier manifest', withStatus(mirrorOf('h0'), 'Running')],
    ['of an earlier run that is final', withStatus(mirrorOf('h1'), 'Failed')],
  ] as const)
    it(`is not that ${what}`, () => {
      assert.equal(publishedStatus(withStatus(staticPod('h1'), 'Pending'), () => mirror)?.phase, 'Pending');
    });
});
