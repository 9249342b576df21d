import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { preemptionVictims } from '../../../../../agent/pods/workers/critical-preemption.ts';
import type { LackingResource } from '../../../../../agent/pods/workers/node-fit.ts';

type Amounts = Readonly<Record<string, string>>;

function pod(name: string, requests: Amounts = {}, limits: Amounts = {}): Pod {
  return {
    metadata: { name, namespace: 'ns', uid: name },
    spec: { priority: 0, containers: [{ name: 'c', resources: { requests, limits } }] },
  } as unknown as Pod;
}

const guaranteed = (name: string, cpu: string, memory: string): Pod => pod(name, { cpu, memory }, { cpu, memory });
const critical = { ...pod('critical'), spec: { priority: 2_000_000_000, containers: [] } } as unknown as Pod;

const lack = (resource: string, missing: bigint): LackingResource => ({
  kind: 'resource',
  resource,
  requested: missing,
  used: 10n,
  capacity: 10n,
});

function victims(others: readonly Pod[], lacking: readonly LackingResource[]): unknown {
  const choice = preemptionVictims(critical, others, lacking);
  return choice.kind === 'victims' ? choice.pods.map(({ metadata }) => metadata.name) : choice.missing;
}

describe('a critical pod preempts', () => {
  for (const [what, others, lacking, expected] of [
    [
      'a burstable pod before a guaranteed one',
      [guaranteed('g', '1', '1'), pod('b', { cpu: '1' })],
      [lack('cpu', 500n)],
      ['b'],
    ],
    [
      'a best-effort pod where the node has too many pods',
      [pod('b', { cpu: '1' }), pod('e')],
      [lack('pods', 1n)],
      ['e'],
    ],
    [
      'the guaranteed pod that is needed beyond all others',
      [guaranteed('g1', '1', '1'), guaranteed('g2', '2', '1'), pod('b', { cpu: '1' })],
      [lack('cpu', 2_000n)],
      ['b', 'g1'],
    ],
    [
      'one pod rather than several',
      [pod('s1', { cpu: '1' }), pod('s2', { cpu: '1' }), pod('l', { cpu: '2' })],
      [lack('cpu', 2_000n)],
      ['l'],
    ],
    [
      'the smaller of two pods that suffice',
      [pod('l', { cpu: '1', memory: '2Gi' }), pod('s', { cpu: '1', memory: '1Gi' })],
      [lack('cpu', 1_000n)],
      ['s'],
    ],
    [
      'the pod that frees most of all lacking resources',
      [pod('cpu', { cpu: '4' }), pod('both', { cpu: '2', memory: '1k' })],
      [lack('cpu', 2_000n), lack('memory', 1_000n)],
      ['both'],
    ],
    [
      'nobody if all less important pods together free too little',
      [pod('a', { cpu: '1' })],
      [lack('cpu', 1_500n)],
      [{ resource: 'cpu', amount: 500n }],
    ],
    ['no other critical pod of its priority', [critical], [lack('pods', 1n)], [{ resource: 'pods', amount: 1n }]],
  ] as const) {
    it(what, () => assert.deepEqual(victims(others, lacking), expected));
  }
});
