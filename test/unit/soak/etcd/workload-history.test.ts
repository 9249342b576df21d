/** Tests the checks of pods and services that a soak test has seen. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { repeatedStarts, sharedAddresses, type Tenure } from '../../../soak/etcd/workload-history.ts';

const tenure = (service: string, address: string, fromMs: number, untilMs = Infinity): Tenure => ({
  service,
  addresses: [address],
  fromMs,
  untilMs,
});

test('a pod that is started twice is found, on one node or on two', () => {
  const start = (node: string, podUid: string) => ({ node, podUid });
  assert.deepEqual(repeatedStarts([start('a', '1'), start('a', '2'), start('b', '3')]), []);
  assert.deepEqual(repeatedStarts([start('a', '1'), start('b', '1')]), ['pod 1 was started on a and b']);
  assert.deepEqual(repeatedStarts([start('a', '1'), start('a', '1')]), ['pod 1 was started on a and a']);
});

test('an address may be given again after its service was deleted, and not before', () => {
  assert.deepEqual(sharedAddresses([tenure('a', '10.0.0.1', 0, 5), tenure('b', '10.0.0.1', 6)]), []);
  assert.deepEqual(sharedAddresses([tenure('b', '10.0.0.1', 4), tenure('a', '10.0.0.1', 0, 5)]), [
    '10.0.0.1 was given to b while a had it',
  ]);
  const three = [tenure('a', '10.0.0.1', 0, 9), tenure('b', '10.0.0.1', 1, 2), tenure('c', '10.0.0.1', 3)];
  assert.deepEqual(sharedAddresses(three), [
    '10.0.0.1 was given to b while a had it',
    '10.0.0.1 was given to c while a had it',
  ]);
});
