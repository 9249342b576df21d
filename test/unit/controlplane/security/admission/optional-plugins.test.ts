/** Tests plugins that are off by default, and the one for trust bundles: what each changes and refuses. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { namespaces } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../../../api/schema/schema.ts';
import type { AdmissionPlugin } from '../../../../../controlplane/security/admission/admission.ts';
import { alwaysAdmit, alwaysDeny } from '../../../../../controlplane/security/admission/always.ts';
import { alwaysPullImages } from '../../../../../controlplane/security/admission/always-pull-images.ts';
import {
  certificateSigning,
  clusterTrustBundleAttest,
} from '../../../../../controlplane/security/admission/certificates.ts';
import { denyServiceExternalIps } from '../../../../../controlplane/security/admission/deny-service-external-ips.ts';
import { extendedResourceToleration } from '../../../../../controlplane/security/admission/extended-resource-toleration.ts';
import { limitPodHardAntiAffinity } from '../../../../../controlplane/security/admission/limit-pod-hard-anti-affinity.ts';
import {
  namespaceAutoProvision,
  namespaceExists,
} from '../../../../../controlplane/security/admission/namespace-provision.ts';
import { ownerReferencesPermissionEnforcement } from '../../../../../controlplane/security/admission/owner-references.ts';
import { podNodeSelector } from '../../../../../controlplane/security/admission/pod-node-selector.ts';
import { podTolerationRestriction } from '../../../../../controlplane/security/admission/pod-toleration-restriction.ts';
import { securityContextDeny } from '../../../../../controlplane/security/admission/security-context-deny.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';
import type {
  AuthorizationAttributes,
  Authorizer,
} from '../../../../../controlplane/security/authorization/authorization.ts';
import { attributesOf } from './attributes.ts';

interface Asked {
  readonly operation?: 'CREATE' | 'UPDATE' | 'DELETE';
  readonly group?: string;
  readonly resource?: string;
  readonly subresource?: string;
  readonly namespace?: string;
  readonly object: KubeObject;
  readonly oldObject?: KubeObject;
}

/** Returns the object after the plugin has processed it. */
async function through(plugin: AdmissionPlugin, asked: Asked): Promise<KubeObject> {
  const { operation = 'CREATE', group = '', resource = 'pods', subresource = '', namespace = 'n' } = asked;
  const attributes = attributesOf(structuredClone(asked.object), {
    operation,
    resource: { group, version: 'v1', resource },
    subresource,
    kind: { group, version: 'v1', kind: 'K' },
    namespace,
    oldObject: asked.oldObject,
  });
  const { signal } = new AbortController();
  if (plugin.handles(operation)) {
    await plugin.admit?.(attributes, signal);
    await plugin.validate?.(attributes, signal);
  }
  return attributes.object ?? assert.fail();
}

const pod = (spec: object, metadata: object = {}): KubeObject =>
  ({
    metadata: { name: 'p', namespace: 'n', ...metadata },
    spec: { containers: [{ name: 'c', image: 'i' }], ...spec },
  }) as KubeObject;
const specOf = (object: KubeObject): Record<string, unknown> => object['spec'] as Record<string, unknown>;
const namespace = (name: string, annotations: Record<string, string> = {}) =>
  fixedListers([{ resource: namespaces, object: { metadata: { name, annotations } } }]);
const refused = (plugin: AdmissionPlugin, asked: Asked, why: string): Promise<void> =>
  assert.rejects(through(plugin, asked), (error: Error) => {
    assert.ok(error.message.endsWith(why), error.message);
    return true;
  });

test('AlwaysAdmit accepts everything, and AlwaysDeny nothing', async () => {
  await through(alwaysAdmit(), { object: pod({}) });
  await refused(
    alwaysDeny(),
    { object: pod({}) },
    'pods "p" is forbidden: admission control is denying all modifications',
  );
});

test('NamespaceAutoProvision creates a missing namespace once', async () => {
  const made: string[] = [];
  const plugin = (name: string) =>
    namespaceAutoProvision(namespace(name), (one) => Promise.resolve(void made.push(one)));
  await through(plugin('n'), { object: pod({}) });
  assert.deepEqual(made, []);
  await through(plugin('other'), { object: pod({}) });
  assert.deepEqual(made, ['n']);
});

test('NamespaceExists refuses every write to a namespace that is missing', async () => {
  await through(namespaceExists(namespace('n')), { object: pod({}) });
  for (const operation of ['CREATE', 'UPDATE', 'DELETE'] as const)
    await refused(namespaceExists(namespace('other')), { operation, object: pod({}) }, 'namespaces "n" not found');
});

for (const [what, spec, field] of [
  ['groups', { securityContext: { supplementalGroups: [1] } }, 'pod.Spec.SecurityContext.SupplementalGroups'],
  ['SELinux labels', { securityContext: { seLinuxOptions: {} } }, 'pod.Spec.SecurityContext.SELinuxOptions'],
  ['a user', { securityContext: { runAsUser: 1 } }, 'pod.Spec.SecurityContext.RunAsUser'],
  ['a group of files', { securityContext: { fsGroup: 1 } }, 'pod.Spec.SecurityContext.FSGroup'],
  [
    'a user of a container',
    { containers: [{ name: 'c', securityContext: { runAsUser: 0 } }] },
    'SecurityContext.RunAsUser',
  ],
  [
    'labels of a container',
    { initContainers: [{ name: 'c', securityContext: { seLinuxOptions: {} } }] },
    'SecurityContext.SELinuxOptions',
  ],
] as const) {
  test(`SecurityContextDeny refuses a pod that chooses ${what}`, () =>
    refused(securityContextDeny(), { object: pod(spec) }, `pods "p" is forbidden: ${field} is forbidden`));
}

test('LimitPodHardAntiAffinityTopology allows required anti-affinity only for the node', async () => {
  const keepingOff = (topologyKey: string): KubeObject =>
    pod({ affinity: { podAntiAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [{ topologyKey }] } } });
  await through(limitPodHardAntiAffinity(), { object: keepingOff('kubernetes.io/hostname') });
  await refused(
    limitPodHardAntiAffinity(),
    { object: keepingOff('zone') },
    'affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed',
  );
});

test('AlwaysPullImages sets every policy, and leaves pods that run as they are', async () => {
  const given = pod({
    containers: [{ name: 'c', image: 'i', imagePullPolicy: 'Never' }],
    initContainers: [{ name: 'd', image: 'j', imagePullPolicy: 'IfNotPresent' }],
    volumes: [{ name: 'v', image: { reference: 'k', pullPolicy: 'Never' } }],
  });
  const policies = (object: KubeObject): string[] => JSON.stringify(object).match(/(?<=ullPolicy":")\w+/g) ?? [];
  assert.deepEqual(policies(await through(alwaysPullImages(), { object: given })), ['Always', 'Always', 'Always']);
  const unchanged = { operation: 'UPDATE', object: given, oldObject: given } as const;
  assert.deepEqual(policies(await through(alwaysPullImages(), unchanged)), ['Never', 'IfNotPresent', 'Never']);
  const { admit: _, ...judging } = alwaysPullImages();
  await refused(
    judging,
    { object: given },
    'spec.initContainers[0].imagePullPolicy: Unsupported value: "IfNotPresent": supported values: "Always"',
  );
});

test('PodNodeSelector adds what the namespace selects, and refuses what conflicts with it', async () => {
  const selector = 'scheduler.alpha.kubernetes.io/node-selector';
  const plugin = podNodeSelector(namespace('n', { [selector]: 'zone=a, disk = fast' }));
  assert.deepEqual(specOf(await through(plugin, { object: pod({ nodeSelector: { own: 'x' } }) }))['nodeSelector'], {
    zone: 'a',
    disk: 'fast',
    own: 'x',
  });
  await refused(
    plugin,
    { object: pod({ nodeSelector: { zone: 'b' } }) },
    'pod node label selector conflicts with its namespace node label selector',
  );
  const configured = podNodeSelector(namespace('n'), { clusterDefaultNodeSelector: 'zone=c', n: 'zone=c,own=x' });
  assert.deepEqual(specOf(await through(configured, { object: pod({}) }))['nodeSelector'], { zone: 'c' });
  await refused(
    configured,
    { object: pod({ nodeSelector: { own: 'y' } }) },
    'pod node label selector labels conflict with its namespace whitelist',
  );
});

test('PodNodeSelector takes a namespace and a label for what they are, also if every object inherits their names', async () => {
  const plugin = podNodeSelector(
    namespace('constructor', { 'scheduler.alpha.kubernetes.io/node-selector': 'valueOf=a' }),
    {},
  );
  const made = await through(plugin, { object: pod({}), namespace: 'constructor' });
  assert.deepEqual(specOf(made)['nodeSelector'], { valueOf: 'a' });
});

test('PodTolerationRestriction merges the defaults of the namespace and holds pods to its whitelist', async () => {
  const prefix = 'scheduler.alpha.kubernetes.io/';
  const tolerations = (...keys: string[]): object[] =>
    keys.map((key) => ({ key, operator: 'Exists', effect: 'NoSchedule' }));
  const annotations = {
    [`${prefix}defaultTolerations`]: JSON.stringify(tolerations('a')),
    [`${prefix}tolerationsWhitelist`]: JSON.stringify(tolerations('a', 'b')),
  };
  const plugin = podTolerationRestriction(namespace('n', annotations), { clusterDefaults: [], clusterWhitelist: [] });
  const made = await through(plugin, { object: pod({ tolerations: tolerations('b') }) });
  assert.deepEqual(specOf(made)['tolerations'], tolerations('b', 'a'));
  await refused(
    plugin,
    { object: pod({ tolerations: tolerations('c') }) },
    'pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist',
  );
});

test('PodTolerationRestriction makes pods tolerate memory pressure unless they are BestEffort', async () => {
  const plugin = podTolerationRestriction(namespace('n'), { clusterDefaults: [], clusterWhitelist: [] });
  const pressure = [{ key: 'node.kubernetes.io/memory-pressure', operator: 'Exists', effect: 'NoSchedule' }];
  const withContainer = (resources: object): object => ({ containers: [{ name: 'c', image: 'i', resources }] });
  const requests = (name: string): object => ({ requests: { [name]: '1' } });
  for (const operation of ['CREATE', 'UPDATE'] as const) {
    const tolerations = async (spec: object): Promise<unknown> =>
      specOf(await through(plugin, { operation, object: pod(spec) }))['tolerations'];
    assert.deepEqual(await tolerations(withContainer(requests('cpu'))), pressure);
    assert.deepEqual(await tolerations({ resources: requests('memory') }), pressure);
    assert.equal(await tolerations(withContainer(requests('ephemeral-storage'))), undefined);
    assert.equal(await tolerations({}), undefined);
  }
});

test('PodTolerationRestriction names the whitelist of the cluster if the namespace has none', async () => {
  const allowed = { key: 'a', operator: 'Exists', effect: 'NoSchedule' };
  const plugin = podTolerationRestriction(namespace('n'), { clusterDefaults: [], clusterWhitelist: [allowed] });
  await through(plugin, { object: pod({ tolerations: [allowed] }) });
  await refused(
    plugin,
    { object: pod({ tolerations: [{ ...allowed, key: 'b' }] }) },
    'conflict with its cluster whitelist',
  );
});

test('PodTolerationRestriction keeps seconds beyond 2^53 of the defaults of the namespace', async () => {
  const annotations = {
    'scheduler.alpha.kubernetes.io/defaultTolerations':
      '[{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":9007199254740993}]',
  };
  const plugin = podTolerationRestriction(namespace('n', annotations), { clusterDefaults: [], clusterWhitelist: [] });
  const [added] = specOf(await through(plugin, { object: pod({}) }))['tolerations'] as { tolerationSeconds: unknown }[];
  assert.equal(added?.tolerationSeconds, 9_007_199_254_740_993n);
});

test('ExtendedResourceToleration makes pods tolerate the taints of the devices that they request', async () => {
  const asking = {
    containers: [{ name: 'c', resources: { requests: { 'example.com/b': '1', cpu: '1', 'example.com/a': '1' } } }],
  };
  const made = specOf(await through(extendedResourceToleration(), { object: pod(asking) }));
  assert.deepEqual(made['tolerations'], [
    { key: 'example.com/a', operator: 'Exists', effect: 'NoSchedule' },
    { key: 'example.com/b', operator: 'Exists', effect: 'NoSchedule' },
  ]);
  const again = specOf(await through(extendedResourceToleration(), { object: pod(made) }));
  assert.deepEqual(again['tolerations'], made['tolerations']);
});

test('DenyServiceExternalIPs allows services to keep external IPs, but not to get new ones', async () => {
  const service = (...externalIPs: string[]): KubeObject =>
    ({ metadata: { name: 's' }, spec: { externalIPs } }) as KubeObject;
  const asked = { operation: 'UPDATE', resource: 'services', oldObject: service('1.2.3.4', '1.2.3.5') } as const;
  await through(denyServiceExternalIps(), { ...asked, object: service('1.2.3.4') });
  const why = 'services "s" is forbidden: Use of external IPs is denied by admission control.';
  await refused(denyServiceExternalIps(), { ...asked, object: service('1.2.3.6') }, why);
  await refused(denyServiceExternalIps(), { resource: 'services', object: service('1.2.3.4') }, why);
});

/** Allows requests in the form `verb resource/subresource`. */
function allowing(...allowed: string[]): Authorizer {
  const shown = ({ verb, resource, subresource, name }: AuthorizationAttributes): string =>
    `${verb} ${resource}${subresource === '' ? '' : `/${subresource}`} ${name}`;
  return {
    authorize: (asked) => ({ decision: allowed.includes(shown(asked)) ? 'allow' : 'no-opinion', reason: '' }),
  };
}

const served = [
  { group: 'apps', version: 'v1', resource: 'replicasets', kind: 'ReplicaSet', namespaced: true },
  { group: '', version: 'v1', resource: 'nodes', kind: 'Node', namespaced: false },
  { group: 'shop.example.com', version: 'v1', resource: 'carts', kind: 'Cart', namespaced: true },
] as unknown as readonly ResourceInfo[];
const enforcement = (authorizer: Authorizer) => ownerReferencesPermissionEnforcement(authorizer, () => served);

test('OwnerReferencesPermissionEnforcement requires the permission to delete, and to update the finalizers of blocked owners', async () => {
  const owner = (blockOwnerDeletion: boolean): object => ({
    apiVersion: 'apps/v1',
    kind: 'ReplicaSet',
    name: 'r',
    uid: 'u',
    blockOwnerDeletion,
  });
  const owned = (blocks: boolean): KubeObject => pod({}, { ownerReferences: [owner(blocks)] });
  const update = { operation: 'UPDATE', oldObject: pod({}) } as const;
  await refused(
    enforcement(allowing()),
    { ...update, object: owned(false) },
    "cannot set an ownerRef on a resource you can't delete: , <nil>",
  );
  await through(enforcement(allowing('delete pods p')), { ...update, object: owned(false) });
  await refused(
    enforcement(allowing('delete pods p')),
    { ...update, object: owned(true) },
    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>",
  );
  const both = enforcement(allowing('delete pods p', 'update replicasets/finalizers r'));
  await through(both, { ...update, object: owned(true) });
});

test('OwnerReferencesPermissionEnforcement checks the finalizers of a cluster-scoped owner without a namespace', async () => {
  const asked: string[] = [];
  const namespaced: Authorizer = {
    authorize({ verb, resource, subresource, namespace }) {
      asked.push(`${verb} ${resource}/${subresource} in "${namespace}"`);
      return { decision: namespace === '' ? 'no-opinion' : 'allow', reason: '' };
    },
  };
  const owned = (apiVersion: string, kind: string): KubeObject =>
    pod({}, { ownerReferences: [{ apiVersion, kind, name: 'o', uid: 'u', blockOwnerDeletion: true }] });
  await assert.rejects(
    through(enforcement(namespaced), { object: owned('v1', 'Node') }),
    /you can't set finalizers on/,
  );
  await through(enforcement(namespaced), { object: owned('shop.example.com/v1', 'Cart') });
  assert.deepEqual(asked, ['update nodes/finalizers in ""', 'update carts/finalizers in "n"']);
  await assert.rejects(
    through(enforcement(namespaced), { object: owned('v1', 'Cart') }),
    /cannot find RESTMapping .*: no matches for kind "Cart" in version "v1"/,
  );
});

test('OwnerReferencesPermissionEnforcement checks subresources, too, except for the status of pods', async () => {
  const owned = pod({}, { ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: 'o', uid: 'u' }] });
  const update = { operation: 'UPDATE', oldObject: pod({}), object: owned, subresource: 'status' } as const;
  await through(enforcement(allowing()), update);
  await refused(
    enforcement(allowing()),
    { ...update, group: 'apps', resource: 'deployments' },
    "cannot set an ownerRef on a resource you can't delete: , <nil>",
  );
});

test('ClusterTrustBundleAttest requires the permission to attest for the signer or its whole domain', async () => {
  const bundle = { metadata: { name: 'b' }, spec: { signerName: 'example.com/s' } } as KubeObject;
  const asked = { group: 'certificates.k8s.io', resource: 'clustertrustbundles', namespace: '', object: bundle };
  await refused(
    clusterTrustBundleAttest(allowing()),
    asked,
    'user not permitted to attest for signerName "example.com/s"',
  );
  for (const right of ['attest signers example.com/s', 'attest signers example.com/*'])
    await through(clusterTrustBundleAttest(allowing(right)), asked);
  const unsigned = { metadata: { name: 'b' }, spec: {} } as KubeObject;
  await through(clusterTrustBundleAttest(allowing()), { ...asked, object: unsigned });
});

test('CertificateSigning requires the permission to sign for the certificate of a pod', async () => {
  const request = (status: object): KubeObject =>
    ({ metadata: { name: 'r' }, spec: { signerName: 'example.com/s' }, status }) as KubeObject;
  const asked = {
    operation: 'UPDATE',
    group: 'certificates.k8s.io',
    resource: 'podcertificaterequests',
    subresource: 'status',
    oldObject: request({}),
    object: request({ certificateChain: 'c' }),
  } as const;
  await assert.rejects(through(certificateSigning(allowing()), asked), {
    code: 422,
    message: /spec.signerName: Forbidden: User "ann" is not permitted to "sign" for signer "example.com\/s"/,
  });
  await through(certificateSigning(allowing('sign signers example.com/s')), asked);
  await through(certificateSigning(allowing()), { ...asked, object: request({ conditions: [] }) });
});
