import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { NodeObject } from '../../../../../agent/base/model/node.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { createPodAdmission } from '../../../../../agent/pods/workers/pod-admission.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';

const node = {
  metadata: { name: 'n', labels: { disk: 'fast' } },
  status: { allocatable: { cpu: '2', memory: '1Gi', pods: '3', 'example.com/gpu': '0' } },
} as unknown as NodeObject;

function podOf(spec: object = {}, metadata: object = {}): Pod {
  return {
    metadata: { name: 'p', namespace: 'ns', uid: 'u', ...metadata },
    spec: { containers: [{ name: 'c' }], ...spec },
  } as unknown as Pod;
}

interface Host {
  readonly appArmor?: boolean;
  readonly features?: object;
  readonly pressure?: readonly ('memory' | 'disk' | 'pid')[];
  readonly others?: readonly Pod[];
  readonly taints?: readonly object[];
}

function refusal(pod: Pod, { appArmor = false, features, pressure = [], others = [], taints }: Host = {}): string {
  const admission = createPodAdmission({
    node: () =>
      ({
        ...node,
        ...(taints === undefined ? {} : { spec: { taints } }),
        status: { ...node.status, ...(features === undefined ? {} : { features }) },
      }) as NodeObject,
    allowedUnsafeSysctls: ['net.core.somaxconn', 'kernel.msg*'],
    pressure: (kind) => pressure.includes(kind),
    appArmor: () => appArmor,
  });
  const early = admission.refusal(pod);
  if (early !== undefined) return `${early.reason}: ${early.message}`;
  const verdict = admission.admit(pod, others);
  switch (verdict.kind) {
    case 'admit':
      return 'taken';
    case 'refuse':
      return `${verdict.refusal.reason}: ${verdict.refusal.message}`;
    case 'preempt':
      return `preempts ${verdict.victims.map(({ metadata }) => metadata.name).join(',')} for ${verdict.resource}`;
  }
}

const sysctl = (name: string): Pod => podOf({ securityContext: { sysctls: [{ name, value: '1' }] } });
const port = (more: object, spec: object = {}): Pod =>
  podOf({ containers: [{ name: 'c', ports: [{ containerPort: 80, hostPort: 8080, ...more }] }], ...spec });
const affinity = (operator: string, disk: string): Pod => {
  const nodeSelectorTerms = [{ matchExpressions: [{ key: 'disk', operator, values: [disk] }] }];
  return podOf({
    affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } } },
  });
};
const taint = (effect: string): object => ({ key: 'down', effect });
const TAINT = "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
const requests = (cpu: string): object => ({ containers: [{ name: 'c', resources: { requests: { cpu } } }] });
const gpu = podOf({ containers: [{ name: 'c', resources: { requests: { 'example.com/gpu': '1' } } }] });
const ofClaim = (pod: Pod): Pod => {
  const requestMappings = [{ containerName: 'c', resourceName: 'example.com/gpu', requestName: 'r' }];
  return { ...pod, status: { extendedResourceClaimStatus: { resourceClaimName: 'x', requestMappings } } } as never;
};
const named = (name: string, spec: object = {}): Pod => podOf(spec, { name, uid: name });
const critical = (spec: object = {}): Pod => podOf({ priority: 2_000_001_000, ...spec });
const staticPod = (spec: object = {}): Pod => podOf(spec, { annotations: { 'kubernetes.io/config.source': 'file' } });
const PREEMPTION =
  'UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: ';
const PORTS = "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
const SELECTOR = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
const ARMOUR = 'AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host';
const STRICT = 'SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node';

describe('a node takes a pod', () => {
  for (const [what, pod, host, expected] of [
    ['that asks for nothing', podOf(), {}, 'taken'],
    ['with a safe sysctl', sysctl('net.ipv4.ping_group_range'), {}, 'taken'],
    ['with an unsafe one that is allowed by name', sysctl('net.core.somaxconn'), {}, 'taken'],
    ['with one that is allowed by pattern, written with slashes', sysctl('kernel/msgmax'), {}, 'taken'],
    [
      'whose extended resource its device plugin no longer has',
      gpu,
      {},
      "OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 1, used: 0, capacity: 0",
    ],
    ['whose extended resource comes from a claim', ofClaim(gpu), {}, 'taken'],
    [
      'with another unsafe one',
      sysctl('kernel.sem'),
      {},
      'SysctlForbidden: forbidden sysctl: "kernel.sem" not allowlisted',
    ],
    [
      'of another system',
      podOf({ os: { name: 'windows' } }),
      {},
      "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
    ],
    [
      'labelled for another system',
      podOf({}, { labels: { 'kubernetes.io/os': 'windows' } }),
      {},
      "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
    ],
    ['of its own system', podOf({ os: { name: 'linux' } }, { labels: { 'kubernetes.io/os': 'linux' } }), {}, 'taken'],
    ['with strict groups', podOf({ securityContext: { supplementalGroupsPolicy: 'Strict' } }), {}, STRICT],
    ['with merged groups', podOf({ securityContext: { supplementalGroupsPolicy: 'Merge' } }), {}, 'taken'],
    [
      'with strict groups where the runtime can',
      podOf({ securityContext: { supplementalGroupsPolicy: 'Strict' } }),
      { features: { supplementalGroupsPolicy: true } },
      'taken',
    ],
    [
      'with an AppArmor profile',
      podOf({ securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } }),
      {},
      ARMOUR,
    ],
    [
      'with a container of a profile',
      podOf({ containers: [{ name: 'c', securityContext: { appArmorProfile: { type: 'Localhost' } } }] }),
      {},
      ARMOUR,
    ],
    [
      'with an AppArmor profile that runs already',
      { ...podOf({ securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } }), status: { phase: 'Running' } },
      {},
      'taken',
    ],
    ['that wants no profile', podOf({ securityContext: { appArmorProfile: { type: 'Unconfined' } } }), {}, 'taken'],
    [
      'with a profile where the kernel can',
      podOf({ securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } }),
      { appArmor: true },
      'taken',
    ],
    ['with a free port', port({}), { others: [port({ hostPort: 8081 })] }, 'taken'],
    ['with a port that is taken', port({}), { others: [port({})] }, PORTS],
    ['with a port of another protocol', port({}), { others: [port({ protocol: 'UDP' })] }, 'taken'],
    [
      'with a port of another address',
      port({ hostIP: '10.0.0.1' }),
      { others: [port({ hostIP: '10.0.0.2' })] },
      'taken',
    ],
    [
      'with a port that is taken on all addresses',
      port({ hostIP: '10.0.0.1' }),
      { others: [port({ hostIP: '0.0.0.0' })] },
      PORTS,
    ],
    [
      "whose port on the node's network is taken",
      port({ containerPort: 8080, hostPort: undefined }, { hostNetwork: true }),
      { others: [port({})] },
      PORTS,
    ],
    ['that selects it', podOf({ nodeSelector: { disk: 'fast' } }), {}, 'taken'],
    ['that selects another', podOf({ nodeSelector: { disk: 'slow' } }), {}, SELECTOR],
    ['whose affinity requires it', affinity('In', 'fast'), {}, 'taken'],
    ['whose affinity requires another', affinity('NotIn', 'fast'), {}, SELECTOR],
    ['that does not tolerate a NoExecute taint', podOf(), { taints: [taint('NoExecute')] }, TAINT],
    ['that does not tolerate a NoSchedule taint', podOf(), { taints: [taint('NoSchedule')] }, 'taken'],
    [
      'that tolerates its taint',
      podOf({ tolerations: [{ key: 'down', operator: 'Exists' }] }),
      { taints: [taint('NoExecute')] },
      'taken',
    ],
    [
      'that asks for more than is left',
      podOf(requests('1500m')),
      { others: [podOf(requests('1'))] },
      "OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
    ],
    [
      'that asks for more as a whole',
      podOf({ resources: { requests: { cpu: '3' } } }),
      {},
      "OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000",
    ],
    [
      'that is one too many',
      podOf(),
      { others: [podOf(), podOf(), podOf()] },
      "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
    ],
    [
      'of the best effort under pressure',
      podOf(),
      { pressure: ['memory'] },
      'Evicted: The node had condition: [MemoryPressure]. ',
    ],
    ['with requests under that pressure', podOf(requests('1')), { pressure: ['memory'] }, 'taken'],
    [
      'of the best effort that tolerates every taint, under memory pressure',
      podOf({ tolerations: [{ operator: 'Exists' }] }),
      { pressure: ['memory'] },
      'taken',
    ],
    [
      'of the best effort that tolerates the taint of memory pressure with another effect',
      podOf({ tolerations: [{ key: 'node.kubernetes.io/memory-pressure', operator: 'Exists', effect: 'NoExecute' }] }),
      { pressure: ['memory'] },
      'Evicted: The node had condition: [MemoryPressure]. ',
    ],
    [
      'when its disk is full',
      podOf(requests('1')),
      { pressure: ['disk'] },
      'Evicted: The node had condition: [DiskPressure]. ',
    ],
    [
      'that tolerates every taint, under pressure of memory and disk',
      podOf({ tolerations: [{ operator: 'Exists' }] }),
      { pressure: ['memory', 'disk'] },
      'Evicted: The node had condition: [MemoryPressure DiskPressure]. ',
    ],
    [
      'that is critical, on a full node',
      critical(requests('1500m')),
      { others: [named('a', requests('1'))] },
      'preempts a for cpu',
    ],
    [
      'that is static, on a full node',
      staticPod(),
      { others: ['a', 'b', 'c'].map((name) => named(name)) },
      /^preempts [abc] for pods$/,
    ],
    [
      'that is critical, on a node full of critical pods',
      critical(requests('1500m')),
      { others: [critical(requests('1'))] },
      `${PREEMPTION}[(res: cpu, q: 500), ]`,
    ],
    [
      'that is more critical than a critical one',
      critical(requests('1500m')),
      { others: [podOf({ priority: 2_000_000_000, ...requests('1') }, { name: 'less' })] },
      'preempts less for cpu',
    ],
    [
      'that is critical, on a full node that it does not select',
      critical({ ...requests('1500m'), nodeSelector: { disk: 'slow' } }),
      { others: [named('a', requests('1'))] },
      SELECTOR,
    ],
    [
      'that is critical, on a full node that cannot run it',
      critical({ ...requests('1500m'), securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } }),
      { others: [named('a', requests('1'))] },
      ARMOUR,
    ],
    [
      'that lacks both resources and its selection',
      podOf({ ...requests('3'), nodeSelector: { disk: 'slow' } }),
      {},
      "OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000",
    ],
    ['that must run when its disk is full', podOf({ priority: 2_000_000_000 }), { pressure: ['disk'] }, 'taken'],
  ] as const) {
    if (typeof expected !== 'string') it(what, () => assert.match(refusal(pod, host), expected));
    else it(`${what}: ${expected.split(':')[0] ?? ''}`, () => assert.equal(refusal(pod, host), expected));
  }
});

it('a node compares tens of thousands of host ports in time that grows with their number', async () => {
  const run = (size: number): void => {
    const ports = (from: number): Pod =>
      podOf({ containers: [{ name: 'c', ports: Array.from({ length: size }, (_, at) => ({ hostPort: from + at })) }] });
    const other = ports(30_000);
    assert.equal(refusal(ports(1), { others: [other] }), 'taken');
    assert.equal(refusal(ports(30_001 - size), { others: [other] }), PORTS);
  };
  await assertLinearTime(run, { minBytes: 1_000, maxBytes: 25_000 });
});

it('a node takes a pod that has devices whose plugin has not registered again after a restart', () => {
  const limits = { 'example.com/gpu': '1' };
  const user = podOf({ containers: [{ name: 'c', resources: { limits, requests: limits } }] });
  const decide = (count: number): string =>
    createPodAdmission({
      node: () => node,
      allowedUnsafeSysctls: [],
      allocatedDevices: () => new Map([['example.com/gpu', count]]),
      pressure: () => false,
      appArmor: () => false,
    }).admit(user, []).kind;
  assert.deepEqual([decide(1), decide(0)], ['admit', 'refuse']);
});
