/**
 * Tests who may write the status of a ResourceClaim. The rules are those of pkg/registry/resource/utils.go of Kubernetes
 * 1.36.2.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { isStatusError } from '../../../../../api/meta/status-error.ts';
import { claimStatusAuthorization } from '../../../../../controlplane/security/admission/claim-status.ts';
import { admissionChain } from '../../../../../controlplane/security/admission/chain.ts';
import type { AuthorizationAttributes } from '../../../../../controlplane/security/authorization/authorization.ts';
import { openFixture } from '../../registry/registry-fixture.ts';
import { attributesOf } from './attributes.ts';

const SIGNAL = new AbortController().signal;
const DRIVER = { name: 'system:serviceaccount:drivers:driver', groups: [] };
const onNode = (node: string): typeof DRIVER & { extra: Record<string, string[]> } => ({
  ...DRIVER,
  extra: { 'authentication.kubernetes.io/node-name': [node] },
});
const selector = { matchFields: [{ key: 'metadata.name', operator: 'In', values: ['one'] }] };
const allocation = (adminAccess = false): object => ({
  devices: { results: [{ request: 'r', driver: 'd.example.com', pool: 'p', device: 'x', adminAccess }] },
  nodeSelector: { nodeSelectorTerms: [selector] },
});
const device = (data: string, driver = 'd.example.com'): object => ({ driver, pool: 'p', device: 'x', data: { data } });

interface Write {
  readonly before?: object;
  readonly after: object;
  readonly user?: { readonly name: string; readonly groups: readonly string[] };
  /** What the user may do, such as `update binding ` or `arbitrary-node:update driver d.example.com`. */
  readonly may?: readonly string[];
  readonly patches?: boolean;
  readonly labels?: Record<string, string>;
}

/** Resolves to the message of the refusal, or `''`. */
async function refused({ before = {}, after, user = DRIVER, may = [], patches, labels = {} }: Write): Promise<string> {
  const plugin = claimStatusAuthorization({
    authorizer: {
      authorize: ({ verb, subresource, namespace, name }: AuthorizationAttributes) => ({
        decision: may.includes(`${verb} ${subresource} ${namespace}/${name}`) ? 'allow' : 'no-opinion',
        reason: '',
      }),
    },
    storedNamespace: (name) => ({ metadata: { name, labels } }) as KubeObject,
  });
  const claim = (status: object): KubeObject => ({ metadata: { name: 'c', namespace: 'n' }, status }) as KubeObject;
  const attributes = attributesOf(claim(after), {
    operation: 'UPDATE',
    resource: { group: 'resource.k8s.io', version: 'v1', resource: 'resourceclaims' },
    kind: { group: 'resource.k8s.io', version: 'v1', kind: 'ResourceClaim' },
    subresource: 'status',
    oldObject: claim(before),
    isPatch: patches === true,
    user,
  });
  try {
    await plugin.validate?.(attributes, SIGNAL);
    return '';
  } catch (error) {
    assert.ok(isStatusError(error, 'Invalid'));
    return (error as Error).message;
  }
}

const BIND = 'update binding /';

describe('the status of a claim', () => {
  test('gets no allocation and no consumers without the permission to bind', async () => {
    const after = { allocation: allocation() };
    assert.match(
      await refused({ after }),
      /changing status\.allocation or status\.reservedFor requires resource="resourceclaims\/binding", verb="update" permission: .* cannot update resource "resourceclaims\/binding" in API group "resource\.k8s\.io" at the cluster scope/,
    );
    assert.equal(await refused({ after, may: [BIND] }), '');
    assert.match(await refused({ after, may: [BIND], patches: true }), /verb="patch"/);
    const reservedFor = [{ resource: 'pods', name: 'p', uid: 'u' }];
    assert.match(await refused({ before: after, after: { ...after, reservedFor } }), /resourceclaims\/binding/);
    assert.match(await refused({ before: after, after: {} }), /resourceclaims\/binding/);
  });

  test('needs the permission to patch for a patch', async () => {
    const verbs: string[] = [];
    const plugin = claimStatusAuthorization({
      authorizer: { authorize: ({ verb }) => (verbs.push(verb), { decision: 'allow', reason: '' }) },
      storedNamespace: () => undefined,
    });
    const fixture = await openFixture(undefined, undefined, undefined, admissionChain([plugin]));
    const claim = {
      apiVersion: 'resource.k8s.io/v1',
      kind: 'ResourceClaim',
      metadata: { name: 'c' },
      spec: { devices: { requests: [{ name: 'r', exactly: { deviceClassName: 'class' } }] } },
    };
    const created = await fixture.create('resource.k8s.io/v1/resourceclaims', claim);
    const status = { allocation: { devices: { results: [{ request: 'r', driver: 'd', pool: 'p', device: 'x' }] } } };
    const path = 'resource.k8s.io/v1/resourceclaims:status';
    await fixture.patch(path, 'c', { type: 'merge', body: { status }, duplicates: [] });
    await fixture.update(path, { ...created, metadata: { name: 'c' }, status: {} });
    assert.deepEqual(verbs, ['patch', 'update']);
    await fixture.close();
  });

  test('gets admin access in namespaces with the label alone, whoever writes it', async () => {
    const write = { after: { allocation: allocation(true) }, may: [BIND] };
    assert.match(
      await refused(write),
      /status\.allocation\.devices\.results\[0\]\.adminAccess: Forbidden: admin access/,
    );
    assert.equal(await refused({ ...write, labels: { 'resource.kubernetes.io/admin-access': 'true' } }), '');
    assert.equal(await refused({ ...write, before: write.after }), '');
  });

  const written = { before: { allocation: allocation() }, after: { allocation: allocation(), devices: [device('a')] } };
  const associated = 'associated-node:update driver n/d.example.com';
  const arbitrary = 'arbitrary-node:update driver n/d.example.com';

  test('gets the status of a device from its driver on the node of the allocation', async () => {
    assert.equal(await refused({ ...written, user: onNode('one'), may: [associated] }), '');
    assert.match(await refused({ ...written, user: onNode('two'), may: [associated] }), /status\.devices: Forbidden/);
    assert.match(await refused({ ...written, may: [associated] }), /verb="\[arbitrary-node:update\]"/);
    const somebody = { ...onNode('one'), name: 'ann' };
    assert.match(await refused({ ...written, user: somebody, may: [associated] }), /resourceclaims\/driver/);
  });

  test('gets it on any node from those with the permission for all nodes', async () => {
    assert.equal(await refused({ ...written, may: [arbitrary] }), '');
    assert.equal(await refused({ ...written, user: onNode('one'), may: [arbitrary] }), '');
  });

  test('keeps the statuses of the devices of other drivers', async () => {
    const theirs = device('b', 'other.example.com');
    const before = { allocation: allocation(), devices: [theirs] };
    const kept = { ...before, devices: [theirs, device('a')] };
    assert.equal(await refused({ before, after: kept, may: [arbitrary] }), '');
    for (const devices of [[], [device('c', 'other.example.com')]]) {
      const message = await refused({ before, after: { ...before, devices }, may: [arbitrary] });
      assert.match(message, /"other\.example\.com" is forbidden/);
    }
  });

  test('may have other parts changed, and loses its devices with the allocation', async () => {
    assert.equal(await refused({ before: { allocation: allocation() }, after: { allocation: allocation() } }), '');
    assert.equal(await refused({ before: written.after, after: {}, may: [BIND] }), '');
  });
});
