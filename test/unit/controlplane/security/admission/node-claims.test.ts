/**
 * Tests how the control plane records since when a node claims its addresses and keys. Of two nodes with the same claim, agents
 * believe the earlier one.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { nodes } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { AdmissionAttributes } from '../../../../../controlplane/security/admission/admission.ts';
import { nodeClaims, type NodeClaimsOptions } from '../../../../../controlplane/security/admission/node-claims.ts';
import { nodeRestriction } from '../../../../../controlplane/security/admission/node-restriction.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';

const NAME = 'orchlet.local/claims';
const KEY = 'orchlet.local/wireguard-public-key';
const KEYS = ['A', 'B'].map((letter) => `${letter.repeat(43)}=`);
const EARLIER = '2026-01-01T00:00:00.000000Z';
const NOW = '2026-02-01T00:00:00.000000Z';

const node = (
  addresses: readonly string[],
  annotations?: Readonly<Record<string, string>>,
  spec: object = {},
): KubeObject =>
  ({
    metadata: { name: 'a', ...(annotations === undefined ? {} : { annotations }) },
    spec,
    status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) },
  }) as KubeObject;

async function written(
  object: KubeObject,
  {
    from,
    old,
    user = 'system:node:a',
    ...options
  }: { readonly from?: string; readonly old?: KubeObject; readonly user?: string } & Partial<NodeClaimsOptions>,
): Promise<KubeObject> {
  const listers = fixedListers([
    { resource: nodes, object: { metadata: { name: 'b', annotations: { [KEY]: KEYS[1] ?? '' } } } },
  ]);
  const claims = nodeClaims(listers, {
    now: () => Date.parse(NOW),
    hostAddresses: () => ['127.0.0.1', '192.0.2.1', '2001:DB8::1'],
    assignsRanges: true,
    ...options,
  });
  const plugin = nodeRestriction(listers, { authorize: () => Promise.reject(new Error('not asked')) } as never, claims);
  const attributes = {
    ...{ operation: old === undefined ? 'CREATE' : 'UPDATE', subresource: '', namespace: '', name: 'a' },
    resource: { group: '', version: 'v1', resource: 'nodes' },
    ...{ object, oldObject: old, remoteAddress: from },
    user: { name: user, groups: user.startsWith('system:node:') ? ['system:nodes'] : [] },
  } as unknown as AdmissionAttributes;
  await plugin.admit?.(attributes, new AbortController().signal);
  return object;
}

const recordOf = async (...args: Parameters<typeof written>): Promise<string | undefined> =>
  (await written(...args)).metadata.annotations?.[NAME];

describe('the record of the claims of a node', () => {
  it('has the address from which the request comes, and no other one that the node claims', async () => {
    const object = (): KubeObject => node(['192.0.2.9', '192.0.2.5', '2001:db8::5']);
    assert.equal(await recordOf(object(), { from: '192.0.2.5' }), `192.0.2.5 ${NOW}`);
    assert.equal(await recordOf(object(), { from: '::ffff:192.0.2.5' }), `192.0.2.5 ${NOW}`);
    assert.equal(await recordOf(object(), { from: '2001:DB8::5' }), `2001:db8::5 ${NOW}`);
    for (const from of ['203.0.113.1', '', 'nonsense', undefined])
      assert.equal(await recordOf(object(), from === undefined ? {} : { from }), undefined);
  });

  it('keeps the time of an address while requests come from there, also in the other family', async () => {
    const old = node([], { [NAME]: `192.0.2.5 ${EARLIER},2001:db8::5 ${EARLIER}` });
    const object = (): KubeObject => node(['192.0.2.5', '2001:db8::5'], { ...old.metadata.annotations });
    assert.equal(await recordOf(object(), { from: '192.0.2.5', old }), `192.0.2.5 ${EARLIER},2001:db8::5 ${EARLIER}`);
    assert.equal(await recordOf(object(), { from: '192.0.2.6', old }), `2001:db8::5 ${EARLIER}`);
    const moved = node(['192.0.2.6', '2001:db8::5'], { ...old.metadata.annotations });
    assert.equal(await recordOf(moved, { from: '192.0.2.6', old }), `192.0.2.6 ${NOW},2001:db8::5 ${EARLIER}`);
  });

  it('cannot be written by a node, neither at its registration nor later', async () => {
    const forged = { [NAME]: `192.0.2.5 ${EARLIER}`, other: 'x' };
    const created = await written(node(['192.0.2.5'], forged), { from: '192.0.2.66' });
    assert.deepEqual(created.metadata.annotations, { other: 'x' });
    const old = node([], { [NAME]: `192.0.2.66 ${NOW}` });
    const updated = node(['192.0.2.5', '192.0.2.66'], forged);
    assert.equal(await recordOf(updated, { from: '192.0.2.66', old }), `192.0.2.66 ${NOW}`);
    const byAdministrator = node(['192.0.2.5'], forged);
    assert.equal(await recordOf(byAdministrator, { from: '192.0.2.66', user: 'admin', old }), forged[NAME]);
  });

  it('has the addresses of this host for a node whose requests come over loopback', async () => {
    const object = node(['192.0.2.1', '2001:db8::1', '192.0.2.9']);
    assert.equal(await recordOf(object, { from: '127.0.0.1' }), `192.0.2.1 ${NOW},2001:db8::1 ${NOW}`);
  });

  it('has a key of WireGuard that the node was the first to publish, and not that of another node', async () => {
    const [own = '', others = ''] = KEYS;
    assert.equal(await recordOf(node([], { [KEY]: own }), { from: '192.0.2.5' }), `${own} ${NOW}`);
    assert.equal(await recordOf(node([], { [KEY]: others }), { from: '192.0.2.5' }), undefined);
    assert.equal(await recordOf(node([], { [KEY]: 'x,192.0.2.9 0' }), { from: '192.0.2.5' }), undefined);
  });
});

describe('the pod ranges of a node', () => {
  const spec = { podCIDR: '10.244.0.0/16', podCIDRs: ['10.244.0.0/16'] };

  it('cannot be chosen by the node where the control plane assigns them', async () => {
    const message = /is not allowed to set its pod ranges/;
    await assert.rejects(written(node([], undefined, spec), {}), message);
    await assert.rejects(written(node([], undefined, { podCIDR: '10.244.0.0/16' }), {}), message);
    await assert.rejects(written(node([], undefined, spec), { old: node([]) }), message);
  });

  it('are left to it where nobody assigns them, and stay as they are in other writes', async () => {
    await written(node([], undefined, spec), { assignsRanges: false });
    await written(node([], undefined, spec), { old: node([], undefined, { podCIDRs: ['10.244.0.0/16'] }) });
  });
});
