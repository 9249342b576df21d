/** Tests which allocations use a device that one node, or several nodes, can use. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { ResourceClaim, ResourceSlice } from '../../../../../api/kinds/kinds.ts';
import { AllocatedDevices } from '../../../../../controlplane/scheduler/devices/allocated-devices.ts';
import { allocateDevices } from '../../../../../controlplane/scheduler/devices/device-allocator.ts';
import { DevicePools } from '../../../../../controlplane/scheduler/devices/device-pools.ts';
import type { DeviceAllocation } from '../../../../../controlplane/scheduler/devices/device-requests.ts';
import { DeviceSelection } from '../../../../../controlplane/scheduler/devices/device-selection.ts';
import { SearchBudget } from '../../../../../controlplane/scheduler/devices/search-budget.ts';

const DRIVER = 'gpu.example.com';
const KEY = `${DRIVER}/victim/gpu-0`;

/** Returns an allocation of `gpu-0` of the pool `victim`, for a node or for several. */
const allocation = (node?: string, share?: string): DeviceAllocation =>
  ({
    devices: {
      results: [
        {
          ...{ driver: DRIVER, pool: 'victim', device: 'gpu-0', request: 'r' },
          ...(share === undefined ? {} : { shareID: share, consumedCapacity: { memory: '1' } }),
        },
      ],
    },
    ...(node === undefined
      ? {}
      : {
          nodeSelector: {
            nodeSelectorTerms: [{ matchFields: [{ key: 'metadata.name', operator: 'In', values: [node] }] }],
          },
        }),
  }) as DeviceAllocation;

it('a device of one node is taken by allocations for that node, and for no single one', () => {
  const allocated = new AllocatedDevices();
  allocated.set('hostile', allocation('hostile'));
  assert.deepEqual(
    [allocated.isTaken(KEY, 'victim'), allocated.isTaken(KEY, 'hostile'), allocated.isTaken(KEY)],
    [false, true, true],
  );
  allocated.set('several', allocation());
  assert.equal(allocated.isTaken(KEY, 'victim'), true);
  allocated.set('several', undefined);
  assert.equal(allocated.isTaken(KEY, 'victim'), false);
  allocated.set('hostile', undefined);
  assert.equal(allocated.isTaken(KEY), false);
});

it('the consumption of a shared device is the sum of the allocations that count', () => {
  const allocated = new AllocatedDevices();
  const memory = (node?: string): bigint | undefined => allocated.consumed(KEY, node)?.get('memory')?.nano;
  for (const [at, node] of ['a', 'a', 'b', undefined].entries())
    allocated.set(`claim ${at}`, allocation(node, `share ${at}`));
  assert.deepEqual([memory('a'), memory('b'), memory('c'), memory()].map(Number), [3e9, 2e9, 1e9, 4e9]);
  allocated.set('claim 3', undefined);
  assert.equal(memory('c'), undefined);
});

it('a node that published the devices of another one takes none of them from claims by what is allocated on it', () => {
  const allocated = new AllocatedDevices();
  allocated.set('on the hostile node', allocation('hostile'));
  const slice = (nodeName: string): ResourceSlice =>
    ({
      metadata: { name: nodeName },
      spec: {
        ...{ driver: DRIVER, nodeName, devices: [{ name: 'gpu-0' }] },
        pool: { name: 'victim', generation: 1, resourceSliceCount: 1 },
      },
    }) as ResourceSlice;
  const requests = [{ name: 'r', exactly: { deviceClassName: 'gpu', allocationMode: 'ExactCount', count: 1 } }];
  const claim = { metadata: { name: 'c', namespace: 'n', uid: 'c' }, spec: { devices: { requests } } };
  const on = (name: string): string =>
    allocateDevices({
      claims: [claim as unknown as ResourceClaim],
      pools: new DevicePools([slice('victim'), slice('hostile')]).for({ name, labels: {} }, allocated),
      allocated,
      deviceClass: () => ({ metadata: { name: 'gpu' }, spec: {} }),
      selection: new DeviceSelection(),
      budget: new SearchBudget(),
      newShareId: () => 'share',
    }).kind;
  assert.equal(on('victim'), 'allocated');
  assert.equal(on('hostile'), 'unavailable');
});
