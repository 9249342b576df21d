/** Tests which objects a node can read because of its pods. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Resource } from '../../../../../api/client/client.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { ListerChange, Listers } from '../../../../../controlplane/model/listers.ts';
import type { AuthorizationAttributes } from '../../../../../controlplane/security/authorization/authorization.ts';
import { NodeAuthorizer } from '../../../../../controlplane/security/authorization/node.ts';

/** Listers that notify about the objects that the test adds. */
class FakeListers {
  readonly #listeners = new Map<string, (change: ListerChange<KubeObject>) => void>();
  readonly #objects = new Map<string, KubeObject>();

  of({ resource }: Pick<Resource, 'resource'>): {
    subscribe(listener: (change: ListerChange<KubeObject>) => void): void;
  } {
    return { subscribe: (listener) => void this.#listeners.set(resource, listener) };
  }

  put(resource: string, current: KubeObject): void {
    const key = `${resource}/${current.metadata.namespace ?? ''}/${current.metadata.name ?? ''}`;
    const previous = this.#objects.get(key);
    this.#objects.set(key, current);
    this.#listeners.get(resource)?.({ current, previous } as ListerChange<KubeObject>);
  }
}

function setUp() {
  const listers = new FakeListers();
  const authorizer = new NodeAuthorizer(listers as unknown as Listers);
  const reads = (resource: string, namespace: string, name: string): boolean =>
    authorizer.authorize({
      user: { name: 'system:node:n1', groups: ['system:nodes'] },
      verb: 'get',
      isResourceRequest: true,
      group: '',
      version: 'v1',
      resource,
      subresource: '',
      namespace,
      name,
      path: '',
    }).decision === 'allow';
  /** Decides on a request for PodCertificateRequests. */
  const certificates = (verb: string, name: string, more: Partial<AuthorizationAttributes> = {}) =>
    authorizer.authorize({
      user: { name: 'system:node:n1', groups: ['system:nodes'] },
      verb,
      isResourceRequest: true,
      group: 'certificates.k8s.io',
      version: 'v1beta1',
      resource: 'podcertificaterequests',
      subresource: '',
      namespace: 'ns',
      name,
      path: '',
      ...more,
    });
  return { listers, reads, certificates };
}

const pod = (name: string, spec: object, annotations: Record<string, string> = {}, status: object = {}): KubeObject =>
  ({
    metadata: { name, namespace: 'ns', uid: name, annotations },
    spec: { nodeName: 'n1', ...spec },
    status,
  }) as KubeObject;
const ephemeral = { volumes: [{ name: 'mysql-0', ephemeral: {} }] };
const boundVolume = {
  metadata: { name: 'pv1' },
  spec: {
    claimRef: { namespace: 'ns', name: 'data-mysql-0' },
    csi: { nodePublishSecretRef: { namespace: 'kube-system', name: 'ceph' } },
  },
} as unknown as KubeObject;

describe('a node', () => {
  it('reads the claim of an ephemeral volume, the volume bound to it and its secret', () => {
    const { listers, reads } = setUp();
    listers.put('persistentvolumes', boundVolume);
    assert.equal(reads('persistentvolumeclaims', 'ns', 'data-mysql-0'), false);
    listers.put('pods', pod('data', ephemeral));
    assert.equal(reads('persistentvolumeclaims', 'ns', 'data-mysql-0'), true);
    assert.equal(reads('secrets', 'kube-system', 'ceph'), true);
  });

  it('reads none of the secrets that only the controllers of a CSI driver need', () => {
    const { listers, reads } = setUp();
    const secret = (name: string): object => ({ namespace: 'kube-system', name });
    const csi = {
      controllerPublishSecretRef: secret('attach'),
      controllerExpandSecretRef: secret('grow'),
      nodeStageSecretRef: secret('stage'),
      nodeExpandSecretRef: secret('expand'),
    };
    const spec = { claimRef: { namespace: 'ns', name: 'data-mysql-0' }, csi };
    listers.put('persistentvolumes', { metadata: { name: 'pv1' }, spec } as unknown as KubeObject);
    listers.put('pods', pod('data', ephemeral));
    const readable = ['attach', 'grow', 'stage', 'expand'].filter((name) => reads('secrets', 'kube-system', name));
    assert.deepEqual(readable, ['stage', 'expand']);
  });

  it('reads nothing because of a mirror pod, which it creates itself', () => {
    const { listers, reads } = setUp();
    listers.put('persistentvolumes', boundVolume);
    const spec = { ...ephemeral, imagePullSecrets: [{ name: 'pull' }], serviceAccountName: 'robot' };
    listers.put('pods', pod('data', spec, { 'kubernetes.io/config.mirror': 'x' }));
    for (const [resource, namespace, name] of [
      ['persistentvolumeclaims', 'ns', 'data-mysql-0'],
      ['persistentvolumes', '', 'pv1'],
      ['secrets', 'kube-system', 'ceph'],
      ['secrets', 'ns', 'pull'],
      ['serviceaccounts', 'ns', 'robot'],
    ] as const)
      assert.equal(reads(resource, namespace, name), false, `${resource}/${name}`);
    assert.equal(reads('pods', 'ns', 'data'), true);
  });
});

describe('certificate requests of pods', () => {
  const { listers, certificates } = setUp();
  for (const name of ['n1', 'n2'])
    listers.put('podcertificaterequests', {
      metadata: { name: `of-${name}`, namespace: 'ns' },
      spec: { nodeName: name },
    } as KubeObject);
  const selecting = (value: string) => ({
    namespace: '',
    fieldSelector: [{ key: 'spec.nodeName', operator: 'In', values: [value] }],
  });

  it('are read by the node that they name alone', () => {
    assert.equal(certificates('get', 'of-n1').decision, 'allow');
    assert.match(certificates('get', 'of-n2').reason, /^no relationship found between node 'n1' and this object$/);
    assert.equal(certificates('list', '', selecting('n1')).decision, 'allow');
    for (const verb of ['list', 'watch']) {
      const reason = 'can only list/watch podcertificaterequests with nodeName field selector';
      assert.equal(certificates(verb, '', selecting('n2')).reason, reason);
      assert.equal(certificates(verb, '').reason, reason);
    }
  });

  it('are created by nodes, which change none of them', () => {
    assert.equal(certificates('create', '').decision, 'allow');
    assert.equal(certificates('delete', 'of-n1').reason, 'nodes may not delete podcertificaterequests');
    assert.match(certificates('update', 'of-n1', { subresource: 'status' }).reason, /^nodes may not access the status/);
  });
});
