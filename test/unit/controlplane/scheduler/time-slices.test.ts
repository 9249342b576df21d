/** Terms of pods that are matched with all pods of the cluster yield to the event loop. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { TimeSlice } from '../../../../api/machinery/time-slice.ts';
import { PodInfo } from '../../../../controlplane/scheduler/pod-info.ts';
import { bestNode } from '../../../../controlplane/scheduler/scores.ts';
import { podOf, SchedulerCluster } from '../../../fakes/scheduler-cluster.ts';

const ZONE = 'zone';
const labels = { app: 'web' };
const labelSelector = { matchLabels: labels };
const term = { labelSelector, topologyKey: ZONE };
const spread = (whenUnsatisfiable: string): object => ({
  topologySpreadConstraints: Array.from({ length: 150 }, () => ({ ...term, maxSkew: 500, whenUnsatisfiable })),
});
const preferred = [{ weight: 1, podAffinityTerm: term }];

/** Returns two nodes with 150 pods each. Each read of the clock takes a millisecond. */
function busyCluster(): { readonly cluster: SchedulerCluster; readonly clock: { monotonic(): number } } {
  let readings = 0;
  const clock = { monotonic: () => (readings += 1) };
  const cluster = new SchedulerCluster(clock);
  for (const node of ['a', 'b']) {
    cluster.node(node, { cpu: '1000', labels: { zone: node } });
    const affinity = { podAffinity: { preferredDuringSchedulingIgnoredDuringExecution: preferred } };
    for (let at = 0; at < 150; at += 1) cluster.pod(`${node}-${at}`, node, { labels, spec: { affinity } });
  }
  return { cluster, clock };
}

/** Returns the number of turns of the event loop during the work. */
async function turnsOf(work: () => Promise<unknown>): Promise<number> {
  let [turns, counting] = [0, true];
  const count = (): void => {
    turns += 1;
    if (counting) setImmediate(count);
  };
  setImmediate(count);
  await work();
  counting = false;
  return turns;
}

describe('the scheduler gives the event loop back', () => {
  for (const [what, spec] of [
    [
      'while a filter counts the pods that a term selects',
      { affinity: { podAntiAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] } } },
    ],
    ['while a filter counts the pods of each spread constraint', spread('DoNotSchedule')],
  ] as const) {
    it(what, async () => {
      const { cluster } = busyCluster();
      const turns = await turnsOf(() => cluster.fit(podOf('p', { labels: { app: 'other' }, spec })));
      assert.ok(turns >= 25, `${turns} turns of the event loop`);
    });
  }

  for (const [what, spec] of [
    [
      'while a score counts the pods that a preference selects',
      { affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: preferred } } },
    ],
    ['while a score counts the pods that prefer this one', {}],
    ['while a score counts the pods of each spread constraint', spread('ScheduleAnyway')],
  ] as const) {
    it(what, async () => {
      const { cluster, clock } = busyCluster();
      const choice = { cluster: cluster.cluster, random: () => 0, slice: new TimeSlice(clock) };
      const nodes = cluster.state.nodes;
      const turns = await turnsOf(() => bestNode(new PodInfo(podOf('p', { labels, spec })), nodes, choice));
      assert.ok(turns >= 25, `${turns} turns of the event loop`);
    });
  }
});
