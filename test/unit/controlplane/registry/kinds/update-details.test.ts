/**
 * Tests details of updates that kube-apiserver 1.36 has, by kind: what is compared, what is validated again and what errors
 * show.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { admissionRegistrationKinds } from '../../../../../controlplane/registry/kinds/admissionregistration/admissionregistration.ts';
import { appsKinds } from '../../../../../controlplane/registry/kinds/apps/apps.ts';
import { batchKinds } from '../../../../../controlplane/registry/kinds/batch/batch.ts';
import { coreObjectKinds } from '../../../../../controlplane/registry/kinds/core/core-objects.ts';
import { nodeObjectKinds } from '../../../../../controlplane/registry/kinds/core/nodes.ts';
import { podKinds } from '../../../../../controlplane/registry/kinds/core/pods.ts';
import { volumeKinds } from '../../../../../controlplane/registry/kinds/core/persistent-volumes.ts';
import { networkingKinds } from '../../../../../controlplane/registry/kinds/networking/networking.ts';
import { storageKinds } from '../../../../../controlplane/registry/kinds/storage/storage.ts';
import { rulesOf } from './strategy-fixture.ts';

const labels = { a: 'b' };
const selector = { matchLabels: labels };
const containers = [{ name: 'c', image: 'i' }];
const templateWith = (more: object): object => ({ metadata: { labels }, spec: { containers, ...more } });

describe('an update of a struct', () => {
  const daemonSets = rulesOf(appsKinds, 'apps', 'daemonsets');
  const withTemplate = (more: object): Record<string, unknown> => ({
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    spec: { selector, template: templateWith(more) },
  });
  test('is a change if it adds an empty struct', () => {
    const { newGeneration, object } = daemonSets.update(withTemplate({}), withTemplate({ affinity: {} }));
    assert.equal(newGeneration, true);
    assert.equal(object.metadata.annotations?.['deprecated.daemonset.template.generation'], '1');
  });
  test('is none if it adds an empty list', () => {
    assert.equal(daemonSets.update(withTemplate({}), withTemplate({ tolerations: [] })).newGeneration, false);
  });
  test('is a change also for an empty list in webhooks, which are compared strictly', () => {
    const webhooks = rulesOf(
      admissionRegistrationKinds(() => undefined),
      'admissionregistration.k8s.io',
      'validatingwebhookconfigurations',
    );
    const webhook = {
      name: 'a.b.c',
      clientConfig: { url: 'https://x' },
      sideEffects: 'None',
      admissionReviewVersions: ['v1'],
    };
    assert.equal(webhooks.update({ webhooks: [webhook] }, { webhooks: [webhook] }).newGeneration, false);
    assert.equal(
      webhooks.update({ webhooks: [webhook] }, { webhooks: [{ ...webhook, rules: [] }] }).newGeneration,
      true,
    );
  });
  test('is refused of a pod and of the source of a volume', () => {
    const pods = rulesOf(podKinds, '', 'pods');
    const refused = pods.update({ spec: { containers } }, { spec: { containers, dnsConfig: {} } }).errors;
    assert.equal(refused.length, 1);
    assert.match(refused[0] ?? '', /^spec: Forbidden: pod updates may not change/);
    const volumes = rulesOf(volumeKinds, '', 'persistentvolumes');
    const spec = { capacity: { storage: '1Gi' }, accessModes: ['ReadWriteOnce'], hostPath: { path: '/x' } };
    const fields = volumes
      .update({ spec }, { spec: { ...spec, flocker: {} } })
      .errors.map((error) => error.slice(0, error.indexOf(':')));
    assert.ok(fields.includes('spec.persistentvolumesource'));
  });
});

describe('an update of an immutable field', () => {
  test('shows the internal form of a policy of a job', () => {
    const jobs = rulesOf(batchKinds, 'batch', 'jobs');
    const rule = { action: 'FailJob', onExitCodes: { operator: 'In', values: [1] } };
    const job = (rules: readonly object[]): Record<string, unknown> => ({
      metadata: { uid: 'u', labels },
      spec: {
        manualSelector: true,
        selector,
        template: templateWith({ restartPolicy: 'Never' }),
        podFailurePolicy: { rules },
      },
    });
    assert.deepEqual(
      jobs
        .update(job([rule]), job([{ ...rule, onExitCodes: { operator: 'In', values: [2] } }]))
        .errors.filter((error) => error.includes('immutable')),
      [
        'spec.podFailurePolicy: Invalid value: {"Rules":[{"Action":"FailJob","OnExitCodes":{"ContainerName":null,"Operator":"In","Values":[2]},"OnPodConditions":null}]}: field is immutable',
      ],
    );
  });
  test('shows the internal form of the reference of an address', () => {
    const addresses = rulesOf(networkingKinds, 'networking.k8s.io', 'ipaddresses');
    const address = (name: string): Record<string, unknown> => ({
      spec: { parentRef: { resource: 'services', namespace: 'ns', name } },
    });
    assert.deepEqual(addresses.update(address('a'), address('b')).errors, [
      'spec.parentRef: Invalid value: {"Group":"","Resource":"services","Namespace":"ns","Name":"b"}: field is immutable',
    ]);
  });
  test('shows a driver of a node without what may change', () => {
    const nodes = rulesOf(storageKinds, 'storage.k8s.io', 'csinodes');
    const node = (nodeID: string): Record<string, unknown> => ({
      spec: { drivers: [{ name: 'd', nodeID, topologyKeys: ['k'], allocatable: { count: 3 } }] },
    });
    assert.deepEqual(nodes.update(node('a'), node('b')).errors, [
      'spec.drivers: Invalid value: {"Name":"d","NodeID":"b","TopologyKeys":["k"],"Allocatable":null}: field is immutable',
    ]);
  });
  test('is all that is said of service CIDRs, and of the service name and the claims of a stateful set', () => {
    const ranges = rulesOf(networkingKinds, 'networking.k8s.io', 'servicecidrs');
    assert.deepEqual(ranges.update({ spec: { cidrs: ['10.1.0.0/24'] } }, { spec: { cidrs: ['x'] } }).errors, [
      'spec.cidrs[0]: Invalid value: "x": field is immutable',
    ]);
    assert.deepEqual(ranges.update({ spec: { cidrs: ['10.1.0.0/24'] } }, { spec: {} }).errors, [
      'spec.cidrs: Invalid value: null: field is immutable',
    ]);
    const sets = rulesOf(appsKinds, 'apps', 'statefulsets');
    const spec = { selector, serviceName: 's', template: templateWith({}) };
    const refused = sets.update({ spec }, { spec: { ...spec, serviceName: 'Bad', volumeClaimTemplates: [{}] } }).errors;
    assert.deepEqual(
      refused.filter((error) => /^spec(: |\.serviceName|\.volumeClaim)/.test(error)).map((error) => error.slice(0, 16)),
      ['spec: Forbidden:'],
    );
  });
  test('compares the data of a revision exactly', () => {
    const revisions = rulesOf(appsKinds, 'apps', 'controllerrevisions');
    const revision = (data: object | null): Record<string, unknown> => ({ revision: 1, data });
    assert.deepEqual(revisions.update(revision({ a: 'b' }), revision({ a: 'b', x: {} })).errors, [
      'data: Invalid value: {"a":"b","x":{}}: field is immutable',
    ]);
    assert.deepEqual(revisions.update(revision({ a: 'b' }), revision(null)).errors, [
      'data: Invalid value: null: field is immutable',
    ]);
  });
  test('is reported before other faults of a daemon set', () => {
    const sets = rulesOf(appsKinds, 'apps', 'daemonsets');
    const refused = sets.update(
      { spec: { selector, template: templateWith({}) } },
      { spec: { selector: { matchLabels: { a: 'x' } }, template: templateWith({}) } },
    ).errors;
    assert.deepEqual(
      refused.map((error) => error.slice(0, error.indexOf(':'))),
      ['spec.selector', 'spec.template.metadata.labels'],
    );
    assert.match(
      refused[0] ?? '',
      /^spec\.selector: Invalid value: \{"matchLabels":\{"a":"x"\}\}: field is immutable$/,
    );
  });
});

describe('an update of the status', () => {
  const fieldsOf = (errors: readonly string[]): string[] => errors.map((error) => error.slice(0, error.indexOf(':')));
  const pods = rulesOf(podKinds, '', 'pods', 'status');
  const podStatus = (status: object): ReturnType<typeof pods.update> =>
    pods.update({ spec: { containers } }, { spec: { containers }, status });

  test('of a pod validates the claim for extended resources', () => {
    const at = 'status.extendedResourceClaimStatus';
    assert.deepEqual(podStatus({ extendedResourceClaimStatus: {} }).errors, [
      `${at}.requestMappings: Required value: at least one request mapping is required`,
      `${at}.resourceClaimName: Required value`,
    ]);
    const mapping = (containerName: string): object => ({ containerName, resourceName: 'r', requestName: 'q' });
    const mapped = (...names: string[]): object => ({
      extendedResourceClaimStatus: { requestMappings: names.map(mapping), resourceClaimName: 'x' },
    });
    assert.deepEqual(fieldsOf(podStatus(mapped('other')).errors), [`${at}.requestMappings[0].containerName`]);
    assert.deepEqual(fieldsOf(podStatus(mapped('c')).errors), [`${at}.requestMappings[0].resourceName`]);
    const limited = [{ ...containers[0], resources: { requests: { r: '1' } } }];
    const withRequest = (...names: string[]): readonly string[] =>
      pods.update({ spec: { containers: limited } }, { spec: { containers: limited }, status: mapped(...names) })
        .errors;
    assert.deepEqual(withRequest('c'), []);
    assert.deepEqual(
      fieldsOf(withRequest('c', 'c')),
      ['containerName', 'resourceName', 'requestName'].map((name) => `${at}.requestMappings[1].${name}`),
    );
  });
  test('of a pod names the field of a claim and the generation of a condition', () => {
    assert.deepEqual(fieldsOf(podStatus({ resourceClaimStatuses: [{ name: 'x', resourceClaimName: 'Bad' }] }).errors), [
      'status.resourceClaimStatuses[0].name',
      'status.resourceClaimStatuses[0].resourceClaimName',
    ]);
    assert.deepEqual(podStatus({ conditions: [{ type: 'Ready', observedGeneration: -1 }] }).errors, [
      'status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer',
    ]);
  });
  test('of a pod drops a field whose feature gate is off', () => {
    const { object } = podStatus({ nodeAllocatableResourceClaimStatuses: [{ resourceClaimName: 'x' }] });
    assert.deepEqual(object['status'], {});
  });
  test('of a namespace without a phase is active', () => {
    const namespaces = rulesOf(coreObjectKinds, '', 'namespaces', 'status');
    const { object, errors } = namespaces.update({ status: { phase: 'Active' } }, {});
    assert.deepEqual(errors, []);
    assert.deepEqual(object['status'], { phase: 'Active' });
  });
  test('of a volume keeps the time of its phase', () => {
    const volumes = rulesOf(volumeKinds, '', 'persistentvolumes', 'status');
    const before = { phase: 'Available', lastPhaseTransitionTime: '2020-01-01T00:00:00Z' };
    const after = (status: object): unknown => volumes.update({ status: before }, { status }).object['status'];
    assert.deepEqual(after({ phase: 'Available' }), before);
    assert.deepEqual(after({ phase: 'Bound' }), { phase: 'Bound', lastPhaseTransitionTime: '2024-05-06T07:08:09Z' });
    const chosen = { phase: 'Bound', lastPhaseTransitionTime: '2021-01-01T00:00:00Z' };
    assert.deepEqual(after(chosen), chosen);
  });
  test('of a node has no warnings, and shows the internal form of addresses', () => {
    const nodes = rulesOf(nodeObjectKinds, '', 'nodes', 'status');
    const address = { type: 'InternalIP', address: '192.0.2.1' };
    const spec = { externalID: 'x' };
    const { errors, warnings } = nodes.update({ spec }, { spec, status: { addresses: [address, address] } });
    assert.deepEqual(warnings, []);
    assert.deepEqual(errors, ['status.addresses[1]: Duplicate value: {"Type":"InternalIP","Address":"192.0.2.1"}']);
  });
});

test('a node that is given an unreadable pod CIDR has no CIDRs of two families', () => {
  const { errors } = rulesOf(nodeObjectKinds, '', 'nodes').create({ spec: { podCIDRs: ['10.1.0.0/24', 'x'] } });
  assert.deepEqual(errors.slice(-2), [
    'spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]: <nil> (invalid CIDR address: x)',
    'spec.podCIDRs: Invalid value: ["10.1.0.0/24","x"]: may specify no more than one CIDR for each IP family',
  ]);
});

test('a driver is warned about its tokens in creates, and in updates only if they change', () => {
  const drivers = rulesOf(storageKinds, 'storage.k8s.io', 'csidrivers');
  const driver = (audience: string, more: object = {}): Record<string, unknown> => ({
    spec: { tokenRequests: [{ audience }], ...more },
  });
  assert.equal(drivers.create(driver('a')).warnings.length, 1);
  assert.deepEqual(drivers.update(driver('a'), driver('a', { podInfoOnMount: true })).warnings, []);
  assert.equal(drivers.update(driver('a'), driver('b')).warnings.length, 1);
});
