/** Tests that nodes with the images of a pod are preferred. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { TimeSlice } from '../../../../api/machinery/time-slice.ts';
import { PodInfo } from '../../../../controlplane/scheduler/pod-info.ts';
import { bestNode } from '../../../../controlplane/scheduler/scores.ts';
import { podOf, SchedulerCluster } from '../../../fakes/scheduler-cluster.ts';

const MIB = 2 ** 20;

/** Returns the name of the node that a pod gets if only the node `b` has the image `model:1`. */
async function chosenFor(spec: object): Promise<string | undefined> {
  const cluster = new SchedulerCluster();
  const status = {
    allocatable: { cpu: '4', memory: '8Gi', pods: '110' },
    images: [{ names: ['model:1'], sizeBytes: 900 * MIB }],
  };
  cluster.node('a').node('b', { node: { status } });
  const choice = {
    cluster: cluster.cluster,
    random: () => 0,
    slice: new TimeSlice({ monotonic: () => 0 }),
  };
  return (await bestNode(new PodInfo(podOf('p', { spec })), cluster.state.nodes, choice))?.name;
}

for (const [what, spec] of [
  ['a container', { containers: [{ name: 'c', image: 'model:1' }] }],
  ['an init container', { initContainers: [{ name: 'i', image: 'model:1' }] }],
  ['an image volume', { volumes: [{ name: 'v', image: { reference: 'model:1' } }] }],
] as const)
  it(`a node that has the image of ${what} is preferred`, async () => {
    assert.equal(await chosenFor(spec), 'b');
  });
