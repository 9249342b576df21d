/** Tests devices whose capacity several claims consume (`allowMultipleAllocations`). */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { ResourceClaim, ResourceSlice } from '../../../../../api/kinds/kinds.ts';
import { AllocatedDevices } from '../../../../../controlplane/scheduler/devices/allocated-devices.ts';
import { allocateDevices } from '../../../../../controlplane/scheduler/devices/device-allocator.ts';
import { DevicePools } from '../../../../../controlplane/scheduler/devices/device-pools.ts';
import { DeviceSelection } from '../../../../../controlplane/scheduler/devices/device-selection.ts';
import { SearchBudget } from '../../../../../controlplane/scheduler/devices/search-budget.ts';

const DRIVER = 'gpu.example.com';

/** A node whose driver publishes the devices, and the allocations of the claims so far. */
class Node {
  readonly #slice: object;
  readonly allocated = new AllocatedDevices();

  constructor(devices: readonly object[], more: object = {}) {
    this.#slice = {
      metadata: { name: 's' },
      spec: {
        driver: DRIVER,
        nodeName: 'n',
        pool: { name: 'p', generation: 1, resourceSliceCount: 1 },
        devices,
        ...more,
      },
    };
  }

  /** Allocates a claim, and returns the devices with what it consumes of them. */
  allocate(name: string, requests: readonly object[], constraints: readonly object[] = []): string[] | 'unavailable' {
    const claim = { metadata: { name, namespace: 'ns', uid: name }, spec: { devices: { requests, constraints } } };
    const outcome = allocateDevices({
      claims: [claim as unknown as ResourceClaim],
      pools: new DevicePools([this.#slice as ResourceSlice]).for({ name: 'n', labels: {} }, this.allocated),
      allocated: this.allocated,
      deviceClass: () => ({ metadata: { name: 'gpu' }, spec: {} }),
      selection: new DeviceSelection(),
      budget: new SearchBudget(),
      newShareId: () => `share of ${name}`,
    });
    assert.ok(outcome.kind !== 'invalid');
    if (outcome.kind === 'unavailable') return 'unavailable';
    const [allocation] = outcome.allocations;
    this.allocated.set(name, allocation);
    return (allocation?.devices?.results ?? []).map(({ device, shareID, consumedCapacity }) =>
      [device, shareID ?? 'whole', JSON.stringify(consumedCapacity ?? {})].join(' '),
    );
  }
}

const request = (name: string, requests?: object, more: object = {}): object => ({
  name,
  exactly: {
    deviceClassName: 'gpu',
    allocationMode: 'ExactCount',
    count: 1,
    ...(requests === undefined ? {} : { capacity: { requests } }),
    ...more,
  },
});
const shared = (capacity: object, more: object = {}): object => ({
  name: 'd',
  allowMultipleAllocations: true,
  capacity,
  ...more,
});
const memory = (value: string, requestPolicy?: object): object => ({
  memory: { value, ...(requestPolicy === undefined ? {} : { requestPolicy }) },
});

it('claims share a device until its capacity is consumed, and again when one of them has gone', () => {
  const node = new Node([shared(memory('8Gi'))]);
  assert.deepEqual(node.allocate('a', [request('r', { memory: '4Gi' })]), ['d share of a {"memory":"4Gi"}']);
  assert.equal(node.allocate('b', [request('r', { memory: '8Gi' })]), 'unavailable');
  assert.deepEqual(node.allocate('c', [request('r', { memory: '4Gi' })]), ['d share of c {"memory":"4Gi"}']);
  assert.equal(node.allocate('d', [request('r', { memory: '1' })]), 'unavailable');
  for (const name of ['a', 'c']) node.allocated.set(name, undefined);
  assert.deepEqual(node.allocate('b', [request('r', { memory: '8Gi' })]), ['d share of b {"memory":"8Gi"}']);
});

it('a claim without an amount consumes the default of the policy, or all', () => {
  assert.deepEqual(new Node([shared(memory('8Gi'))]).allocate('a', [request('r')]), ['d share of a {"memory":"8Gi"}']);
  const policy = { default: '1Gi', validValues: ['1Gi', '2Gi'] };
  assert.deepEqual(new Node([shared(memory('8Gi', policy))]).allocate('a', [request('r')]), [
    'd share of a {"memory":"1Gi"}',
  ]);
});

it('amounts are rounded up as the policy says, and others are refused', () => {
  const values = { default: '1Gi', validValues: ['1Gi', '4Gi'] };
  const range = { default: '1Gi', validRange: { min: '1Gi', step: '2Gi', max: '6Gi' } };
  const consumed = (policy: object, amount: string): string => {
    const got = new Node([shared(memory('8Gi', policy))]).allocate('a', [request('r', { memory: amount })]);
    return got === 'unavailable' ? got : (/"memory":"(.*)"/.exec(got[0] ?? '')?.[1] ?? '');
  };
  assert.equal(consumed(values, '2Gi'), '4Gi');
  assert.equal(consumed(values, '5Gi'), 'unavailable');
  assert.equal(consumed(range, '1'), '1Gi');
  assert.equal(consumed(range, '2Gi'), '3Gi');
  assert.equal(consumed(range, '6Gi'), 'unavailable', '7Gi would be the next step');
  assert.equal(new Node([shared(memory('8Gi'))]).allocate('a', [request('r', { cores: '1' })]), 'unavailable');
});

it('one claim may use a shared device several times, unless a constraint forbids it', () => {
  const two = [request('r', { memory: '4Gi' }, { count: 2 })];
  const node = new Node([shared(memory('8Gi'), { attributes: { 'gpu.example.com/id': { string: 'x' } } })]);
  const distinct = [{ distinctAttribute: 'gpu.example.com/id' }];
  assert.equal(node.allocate('a', two, distinct), 'unavailable');
  assert.equal(node.allocate('b', two).length, 2);
  assert.equal(node.allocate('c', [request('r', { memory: '1' })]), 'unavailable');
});

it('the counters of a shared device are consumed once for all its claims', () => {
  const consumesCounters = [{ counterSet: 'card', counters: { slots: { value: '1' } } }];
  const sharedCounters = [{ name: 'card', counters: { slots: { value: '1' } } }];
  const whole = { name: 'e', capacity: {}, consumesCounters };
  const node = new Node([shared(memory('8Gi'), { consumesCounters }), whole], { sharedCounters });
  for (const name of ['a', 'b'])
    assert.deepEqual(node.allocate(name, [request('r', { memory: '1Gi' })]), [`d share of ${name} {"memory":"1Gi"}`]);
  assert.equal(
    node.allocate('c', [request('r', { memory: '7Gi' })]),
    'unavailable',
    'the other device has no counter left',
  );
});
