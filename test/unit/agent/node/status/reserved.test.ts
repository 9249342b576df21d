import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseThresholds } from '../../../../../agent/resources/eviction/thresholds.ts';
import { chooseAddresses } from '../../../../../agent/node/status/node-addresses.ts';
import { countCpus, podLimits, reservedFor, withEviction } from '../../../../../agent/node/status/reserved.ts';

const capacity = { cpus: 4, memoryBytes: 8 * 2 ** 30, storageBytes: 1000, pids: 32_768 };

describe('the reserved amounts', () => {
  it('is the sum of the reservations for the agent and the system', () => {
    assert.deepEqual(reservedFor({ kube: { cpu: '100m', memory: '1Gi' }, system: { cpu: '200m' }, cpus: '' }), {
      cpu: 0.1 + 0.2,
      memory: 2 ** 30,
    });
  });

  it('has the number of reserved processors in place of a share of them', () => {
    assert.equal(countCpus('0-2,5'), 4);
    assert.equal(reservedFor({ kube: { cpu: '100m' }, system: {}, cpus: '0,1' })['cpu'], 2);
  });

  it('with hard thresholds leaves pods the amounts for which they are not evicted', () => {
    const thresholds = parseThresholds({
      hard: { 'memory.available': '100Mi', 'nodefs.available': '50%' },
      soft: { 'memory.available': '1Gi' },
      softGracePeriod: { 'memory.available': '1m' },
      minimumReclaim: {},
      enforcePods: true,
    });
    assert.deepEqual(withEviction({ memory: 2 ** 20 }, thresholds, capacity), {
      memory: 101 * 2 ** 20,
      'ephemeral-storage': 500,
    });
  });

  it('does not count thresholds in the limit of the kernel: eviction comes first', () => {
    assert.deepEqual(podLimits({ cpu: 1, memory: 2 ** 30, pid: 768 }, capacity), {
      milliCpu: 3000,
      memoryBytes: 7 * 2 ** 30,
      pids: 32_000,
    });
    assert.equal(podLimits({}, capacity).pids, 0);
  });
});

describe('the addresses of a node', () => {
  const found = (): string[] => ['192.0.2.1', '2001:db8::1', '192.0.2.9'];
  it('are the first that was found, of one family', () => assert.deepEqual(chooseAddresses([], found), ['192.0.2.1']));
  it('are those that were given, one of each family', () =>
    assert.deepEqual(chooseAddresses(['2001:db8::7', '192.0.2.7'], found), ['2001:db8::7', '192.0.2.7']));
  it('stand alone where one was given', () => assert.deepEqual(chooseAddresses(['192.0.2.7'], found), ['192.0.2.7']));
  it('of both families begin with the one that is preferred', () =>
    assert.deepEqual(chooseAddresses(['::'], found), ['2001:db8::1', '192.0.2.1']));
});
