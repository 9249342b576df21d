import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { evictionMessage } from '../../../../../agent/resources/eviction/messages.ts';
import { type Observation, parseThresholds, type Signal } from '../../../../../agent/resources/eviction/thresholds.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { pod } from './pods.ts';

const MI = 1024 * 1024;
const thresholds = (hard: Record<string, string>) =>
  parseThresholds({ hard, soft: {}, softGracePeriod: {}, minimumReclaim: {}, enforcePods: false });
const observed = (signal: Signal, observation: Observation) => new Map([[signal, observation]]);

describe('the message of an eviction', () => {
  it('names the pod as a whole too, if it requests memory as a whole', () => {
    const whole = pod({ name: 'web', memory: '10Mi' });
    const limited: Pod = { ...whole, spec: { ...whole.spec, resources: { requests: { memory: '100Mi' } } } };
    const { message, annotations } = evictionMessage(limited, {
      resource: 'memory',
      usage: { memoryBytes: 60 * MI, containers: [{ name: 'main', memoryBytes: 20 * MI, diskBytes: 0 }] },
      thresholds: thresholds({ 'memory.available': '100Mi' }),
      observations: observed('memory.available', { available: 50 * MI, capacity: 1000 * MI }),
    });
    assert.equal(
      message,
      'The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ' +
        'Pod web was using 60Mi, request is 100Mi, has larger consumption of memory. ' +
        'Container main was using 20Mi, request is 10Mi, has larger consumption of memory. ',
    );
    assert.deepEqual(annotations, {
      offending_pod: 'web',
      offending_pod_usage: '60Mi',
      offending_containers: 'main',
      offending_containers_usage: '20Mi',
      starved_resource: 'memory',
    });
  });

  it('has no annotations for a pod that was not measured', () => {
    const { message, annotations } = evictionMessage(pod({ name: 'web' }), {
      resource: 'memory',
      usage: undefined,
      thresholds: [],
      observations: new Map(),
    });
    assert.deepEqual([message, annotations], ['The node was low on resource: memory. ', {}]);
  });

  it('shows an amount in its own units, and a share in binary ones', () => {
    const shown = (hard: Record<string, string>, signal: Signal) =>
      evictionMessage(pod({ name: 'web' }), {
        resource: signal.endsWith('inodesFree') ? 'inodes' : 'memory',
        usage: undefined,
        thresholds: thresholds(hard),
        observations: observed(signal, { available: 5000, capacity: 6_553_600 }),
      }).message;
    assert.match(
      shown({ 'memory.available': '100M' }, 'memory.available'),
      /Threshold quantity: 100M, available: 5000\./,
    );
    assert.match(
      shown({ 'nodefs.inodesFree': '10%' }, 'nodefs.inodesFree'),
      /Threshold quantity: 640Ki, available: 5k\./,
    );
  });
});
