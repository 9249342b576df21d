import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import type { KindOptions } from '../../../../../controlplane/registry/kind-options.ts';
import { DEVICE_CONVERSIONS } from '../../../../../controlplane/registry/kinds/resource/device-conversions.ts';
import { deviceKinds } from '../../../../../controlplane/registry/kinds/resource/devices.ts';
import { eventKinds } from '../../../../../controlplane/registry/kinds/core/events.ts';
import {
  MANDATORY_LEVELS,
  MANDATORY_SCHEMAS,
  SUGGESTED_LEVELS,
  SUGGESTED_SCHEMAS,
} from '../../../../../controlplane/registry/kinds/flowcontrol/flowcontrol-defaults.ts';
import { flowControlKinds } from '../../../../../controlplane/registry/kinds/flowcontrol/flowcontrol.ts';
import { nodeKinds } from '../../../../../controlplane/registry/kinds/node/node.ts';
import { nodeObjectKinds } from '../../../../../controlplane/registry/kinds/core/nodes.ts';
import { rulesOf } from './strategy-fixture.ts';

const options: KindOptions = {
  clock: systemClock,
  serviceClusterCidrs: ['10.96.0.0/16'],
  serviceNodePorts: { from: 30_000, to: 32_767 },
  eventTtlMs: 3_600_000,
  stores: {
    get() {
      throw new Error('these rules ask for no other objects');
    },
  },
};

const nodes = rulesOf(nodeObjectKinds, '', 'nodes');
const runtimeClasses = rulesOf(nodeKinds, 'node.k8s.io', 'runtimeclasses');
const looseEvents = rulesOf(eventKinds(options), '', 'events');
const strictEvents = rulesOf(eventKinds(options), 'events.k8s.io', 'events');
const schemas = rulesOf(flowControlKinds, 'flowcontrol.apiserver.k8s.io', 'flowschemas');
const levels = rulesOf(flowControlKinds, 'flowcontrol.apiserver.k8s.io', 'prioritylevelconfigurations');
const devices = deviceKinds(() => undefined, options);
const claims = rulesOf(devices, 'resource.k8s.io', 'resourceclaims');
const slices = rulesOf(devices, 'resource.k8s.io', 'resourceslices');
const claimTemplates = rulesOf(devices, 'resource.k8s.io', 'resourceclaimtemplates');
const deviceClasses = rulesOf(devices, 'resource.k8s.io', 'deviceclasses');
const taintRules = rulesOf(devices, 'resource.k8s.io', 'devicetaintrules');

// --- nodes

test('the one range of pod addresses is the first of all', () => {
  const spec = (given: object): unknown => nodes.create({ spec: given }).object['spec'];
  assert.deepEqual(spec({ podCIDR: '10.1.0.0/24' }), { podCIDR: '10.1.0.0/24', podCIDRs: ['10.1.0.0/24'] });
  assert.deepEqual(spec({ podCIDRs: ['10.1.0.0/24'] }), { podCIDR: '10.1.0.0/24', podCIDRs: ['10.1.0.0/24'] });
  assert.deepEqual(spec({ podCIDR: '10.1.0.0/24', podCIDRs: ['10.2.0.0/24'] }), {
    podCIDR: '10.1.0.0/24',
    podCIDRs: ['10.1.0.0/24'],
  });
});

test('the pod CIDRs and the provider id of a node can be set once', () => {
  const old = { spec: { podCIDRs: ['10.1.0.0/24'], providerID: 'a://b' } };
  assert.deepEqual(nodes.update(old, { spec: { podCIDRs: ['10.2.0.0/24'], providerID: 'c://d' } }).errors, [
    'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid',
    'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid',
  ]);
  assert.deepEqual(nodes.update({ spec: {} }, old).errors, []);
});

test('taints differ in key or effect', () => {
  const taint = { key: 'a', effect: 'NoSchedule' };
  const { errors } = nodes.create({
    spec: { taints: [taint, { ...taint, effect: 'NoExecute' }, { ...taint, value: 'b' }] },
  });
  assert.equal(errors.length, 1);
  assert.match(
    errors[0] ?? '',
    /^metadata\.taints\[2\]: Duplicate value: .*: taints must be unique by key and effect pair$/,
  );
});

test('the handler of a runtime class never changes', () => {
  assert.deepEqual(runtimeClasses.create({}).errors, ['handler: Required value']);
  assert.deepEqual(runtimeClasses.update({ handler: 'a' }, { handler: 'b' }).errors, [
    'handler: Invalid value: "b": field is immutable',
  ]);
});

// --- events

const complete = {
  eventTime: '2024-05-06T07:08:09.123456Z',
  reportingComponent: 'example.com/c',
  reportingInstance: 'c-1',
  action: 'Doing',
  reason: 'Because',
  type: 'Normal',
  involvedObject: { kind: 'Pod', namespace: 'ns', name: 'p' },
};

test('an event is about an object of its namespace', () => {
  assert.deepEqual(looseEvents.create({ involvedObject: { namespace: 'elsewhere' } }).errors, [
    'involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace',
  ]);
});

test('through its own group an event is complete, through the core group it need not be', () => {
  const partial = { involvedObject: { namespace: 'ns' }, count: 1 };
  assert.deepEqual(looseEvents.create(partial).errors, []);
  assert.deepEqual(strictEvents.create(partial).errors, [
    'eventTime: Required value',
    'type: Invalid value: "": has invalid value: ',
    'count: Invalid value: "": needs to be unset',
  ]);
  assert.deepEqual(strictEvents.create(complete).errors, []);
});

test('an event cannot be changed, except for its count and its last time', () => {
  const again = { ...complete, series: { count: 2, lastObservedTime: complete.eventTime } };
  assert.deepEqual(strictEvents.update(complete, again).errors, []);
  const otherwise = { ...complete, action: 'Undoing' };
  assert.deepEqual(strictEvents.update(complete, otherwise).errors, [
    'action: Invalid value: "Undoing": field is immutable',
  ]);
  assert.deepEqual(looseEvents.update(complete, otherwise).errors, []);
  const related = { kind: 'Pod', name: 'p' };
  assert.deepEqual(strictEvents.update(complete, { ...complete, related }).errors, [
    'related: Invalid value: {"Kind":"Pod","Namespace":"","Name":"p","UID":"","APIVersion":"","ResourceVersion":"","FieldPath":""}: field is immutable',
  ]);
});

// --- flow control

test('the schemas and levels of every cluster are valid', () => {
  for (const [name, spec] of Object.entries({ ...SUGGESTED_SCHEMAS, ...MANDATORY_SCHEMAS }))
    assert.deepEqual(schemas.create({ metadata: { name }, spec }).errors, [], name);
  for (const [name, spec] of Object.entries({ ...SUGGESTED_LEVELS, ...MANDATORY_LEVELS }))
    assert.deepEqual(levels.create({ metadata: { name }, spec }).errors, [], name);
});

test('each schema of every cluster has its level', () => {
  const known = new Set([...Object.keys(SUGGESTED_LEVELS), ...Object.keys(MANDATORY_LEVELS)]);
  for (const spec of Object.values({ ...SUGGESTED_SCHEMAS, ...MANDATORY_SCHEMAS }))
    assert.ok(known.has(spec.priorityLevelConfiguration?.name ?? ''));
});

test('a mandatory level cannot be changed, but for what is exempt', () => {
  const changed = { type: 'Limited', limited: { nominalConcurrencyShares: 6, limitResponse: { type: 'Reject' } } };
  const { errors } = levels.create({ metadata: { name: 'catch-all' }, spec: changed });
  assert.match(errors.join(), /spec of 'catch-all' must equal the fixed value$/);
  const exempt = { type: 'Exempt', exempt: { nominalConcurrencyShares: 9 } };
  assert.deepEqual(levels.create({ metadata: { name: 'exempt' }, spec: exempt }).errors, []);
});

test('a hand of queues is not dealt from too large a deck', () => {
  const of = (queues: number, handSize: number) =>
    levels.create({
      spec: { type: 'Limited', limited: { limitResponse: { type: 'Queue', queuing: { queues, handSize } } } },
    }).errors;
  assert.deepEqual(of(128, 6), []);
  assert.deepEqual(of(1024, 7), [
    'spec.limited.limitResponse.queuing.handSize: Invalid value: 7: required entropy bits of deckSize 1024 and handSize 7 should not be greater than 60',
  ]);
});

// --- devices

test('a request for devices is for one of a class unless it says otherwise', () => {
  const { object, errors } = claims.create({
    spec: { devices: { requests: [{ name: 'a', exactly: { deviceClassName: 'c' } }] } },
  });
  assert.deepEqual(errors, []);
  assert.deepEqual(object['spec'], {
    devices: { requests: [{ name: 'a', exactly: { deviceClassName: 'c', allocationMode: 'ExactCount', count: 1 } }] },
  });
});

test('devices of a slice are for nodes that are named in one way', () => {
  const slice = { driver: 'd.example.com', pool: { name: 'p', generation: 1, resourceSliceCount: 1 } };
  const way = 'exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required';
  assert.deepEqual(slices.create({ spec: slice }).errors, [`spec: Required value: ${way}`]);
  assert.deepEqual(slices.create({ spec: { ...slice, nodeName: 'n', allNodes: true } }).errors, [
    `spec: Invalid value: "{\`nodeName\`, \`allNodes\`}": ${way}, but multiple fields are set`,
  ]);
});

const poolOf = { driver: 'd.example.com', pool: { name: 'p', generation: 1, resourceSliceCount: 1 }, nodeName: 'n' };
const device = (fields: object) => ({ spec: { ...poolOf, devices: [{ name: 'd', ...fields }] } });

test('wrong names of properties and counters are reported at their map', () => {
  const long = `${'a'.repeat(40)}-${'b'.repeat(40)}`;
  const identifier = 'a valid C identifier must start with alphabetic character or';
  const { errors } = slices.create(
    device({ attributes: { 'a-b': { bool: true } }, capacity: { '1': { value: '1' } } }),
  );
  assert.equal(errors.length, 2);
  assert.ok(errors[0]?.startsWith(`spec.devices[0].attributes: Invalid value: "a-b": ${identifier}`), errors.join());
  assert.ok(errors[1]?.startsWith(`spec.devices[0].capacity: Invalid value: "1": ${identifier}`), errors.join());
  const counters = { spec: { ...poolOf, sharedCounters: [{ name: 'c', counters: { [long]: { value: '1' } } }] } };
  assert.deepEqual(slices.create(counters).errors, [
    `spec.sharedCounters[0].counters: Invalid value: "${long}": must be no more than 63 characters`,
  ]);
});

test('the policy of a capacity is checked on each update, and names what is wrong', () => {
  const policy = (requestPolicy: object) =>
    device({ allowMultipleAllocations: true, capacity: { memory: { value: '10Gi', requestPolicy } } });
  const at = 'spec.devices[0].capacity[memory].requestPolicy';
  const range = policy({ default: '512Mi', validRange: { min: '1Gi', max: '8Gi', step: '10Gi' } });
  const wrong = [
    `${at}.validRange.min: Invalid value: "512Mi": default is less than min: 1Gi`,
    `${at}.validRange.step: Invalid value: "10Gi": one step 11Gi is larger than capacity value: 10Gi`,
    `${at}.validRange.step: Invalid value: "512Mi": value is not a multiple of a given step (10Gi) from (1Gi)`,
    `${at}.validRange.step: Invalid value: "8Gi": value is not a multiple of a given step (10Gi) from (1Gi)`,
  ];
  assert.deepEqual(slices.create(range).errors, wrong);
  assert.deepEqual(slices.update(range, range).errors, wrong);
  assert.deepEqual(slices.create(policy({ default: '9Gi', validRange: { min: '1Gi', max: '8Gi' } })).errors, [
    `${at}.validRange.max: Invalid value: "9Gi": default is more than max: 8Gi`,
  ]);
  assert.deepEqual(slices.create(policy({ default: '1Gi', validValues: ['1Gi', '1024Mi'] })).errors, [
    `${at}.validValues[1]: Duplicate value: "1073741824"`,
  ]);
});

test('the template of a claim has labels and annotations only', () => {
  const spec = { devices: { requests: [{ name: 'a', exactly: { deviceClassName: 'c' } }] } };
  const metadata = { finalizers: ['a/b'], uid: 'u', name: 'x', labels: { a: 'b' }, creationTimestamp: null };
  assert.deepEqual(claimTemplates.create({ spec: { metadata, spec } }).errors, [
    'spec.metadata.name: Forbidden: cannot be set',
    'spec.metadata.uID: Forbidden: cannot be set',
    'spec.metadata.finalizers: Forbidden: cannot be set',
  ]);
});

test('the size of stored classes and taints is not validated again', () => {
  const config = [{ opaque: { driver: 'd.example.com', parameters: { text: 'x'.repeat(10 * 1024) } } }];
  assert.deepEqual(deviceClasses.create({ spec: { config } }).errors, [
    'spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes',
  ]);
  assert.deepEqual(deviceClasses.update({ spec: { config } }, { spec: { config } }).errors, []);
  const taint = (effect: string) => ({ spec: { taint: { key: 'k', effect } } });
  assert.deepEqual(taintRules.update(taint('Later'), taint('Later')).errors, []);
  assert.equal(taintRules.update(taint('NoSchedule'), taint('Later')).errors.length, 1);
});

test('a claim of the older form comes back as it was', () => {
  const { v1beta1 } = DEVICE_CONVERSIONS.claims;
  const claim = {
    apiVersion: 'resource.k8s.io/v1beta1',
    kind: 'ResourceClaim',
    metadata: { name: 'c' },
    spec: {
      devices: {
        requests: [
          { name: 'a', deviceClassName: 'c' },
          { name: 'b', firstAvailable: [{ name: 's' }] },
        ],
      },
    },
  };
  const stored = v1beta1.toStored(structuredClone(claim));
  assert.deepEqual(stored['spec'], {
    devices: {
      requests: [
        { name: 'a', exactly: { deviceClassName: 'c' } },
        { name: 'b', firstAvailable: [{ name: 's' }] },
      ],
    },
  });
  // The class is also printed beside alternatives.
  Object.assign(claim.spec.devices.requests[1] ?? {}, { deviceClassName: '' });
  assert.deepEqual(v1beta1.fromStored(stored), claim);
});

test('a request of v1beta1 is stored with an exact request if one of its fields is set, also beside alternatives', () => {
  const firstAvailable = [{ name: 's' }];
  const stored = DEVICE_CONVERSIONS.claims.v1beta1.toStored({
    metadata: { name: 'c' },
    spec: {
      devices: {
        requests: [
          { name: 'a' },
          { name: 'b', deviceClassName: '', count: 0, adminAccess: null },
          { name: 'c', firstAvailable, count: 2 },
          { name: 'd', firstAvailable, selectors: [] },
        ],
      },
    },
  });
  assert.deepEqual(stored['spec'], {
    devices: {
      requests: [
        { name: 'a' },
        { name: 'b' },
        { name: 'c', firstAvailable, exactly: { count: 2 } },
        { name: 'd', firstAvailable, exactly: { selectors: [] } },
      ],
    },
  });
});

test('an attribute of a device with two values is shown with the fields of its Go type', () => {
  const { errors } = slices.create({
    spec: {
      driver: 'd',
      nodeName: 'n',
      pool: { name: 'p', generation: 1, resourceSliceCount: 1 },
      devices: [{ name: 'x', attributes: { a: { string: 's', int: 1 } } }],
    },
  });
  assert.deepEqual(errors, [
    'spec.devices[0].attributes[a]: Invalid value: {"IntValue":1,"BoolValue":null,"StringValue":"s","VersionValue":null,' +
      '"IntValues":null,"BoolValues":null,"StringValues":null,"VersionValues":null}: exactly one value must be specified',
  ]);
});

test('tolerations of a runtime class list the operators that kube-apiserver lists', () => {
  const scheduling = { tolerations: [{ key: 'k', operator: 'Gt', value: '1' }] };
  assert.deepEqual(runtimeClasses.create({ handler: 'h', scheduling }).errors, [
    'scheduling.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"',
  ]);
});

test('an update validates the spec of a claim template again, but not that of a claim, and both are immutable', () => {
  const devices = (deviceClassName: string): object => ({
    devices: { requests: [{ name: 'r', exactly: { deviceClassName } }] },
  });
  const fields = (errors: readonly string[]): string[] => errors.map((error) => error.slice(0, error.indexOf(':')));
  const claim = claims.update({ spec: devices('a') }, { spec: devices('Bad!') }).errors;
  assert.deepEqual(fields(claim), ['spec']);
  const template = (name: string): Record<string, unknown> => ({ spec: { spec: devices(name) } });
  const refused = claimTemplates.update(template('a'), template('Bad!')).errors;
  assert.deepEqual(fields(refused), ['spec.spec.devices.requests[0].exactly.deviceClassName', 'spec']);
  assert.match(refused[1] ?? '', /^spec: Invalid value: \{"Spec":\{"Devices":\{"Requests":\[\{"Name":"r","Exactly":/);
  assert.match(refused[1] ?? '', /: field is immutable$/);
});
