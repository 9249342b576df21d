/** Tests which slices make the pool of a node, as GatherPools of kube-scheduler 1.36 decides it. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { ResourceSlice } from '../../../../../api/kinds/kinds.ts';
import { AllocatedDevices } from '../../../../../controlplane/scheduler/devices/allocated-devices.ts';
import { DevicePools } from '../../../../../controlplane/scheduler/devices/device-pools.ts';

interface Slice {
  readonly nodeName?: string;
  readonly generation?: number;
  readonly count?: number;
  readonly more?: object;
}

const slice = (devices: readonly object[], { nodeName, generation = 1, count = 1, more = {} }: Slice): ResourceSlice =>
  ({
    metadata: { name: 's' },
    spec: {
      ...{ driver: 'gpu.example.com', pool: { name: 'victim', generation, resourceSliceCount: count }, devices },
      ...(nodeName === undefined ? {} : { nodeName }),
      ...more,
    },
  }) as ResourceSlice;

/** Returns the devices of the pool for a node, and the counters that are left; `incomplete` for a pool that is. */
function seenBy(name: string, slices: readonly ResourceSlice[], labels = {}): string {
  const [pool, ...others] = new DevicePools(slices).for({ name, labels }, new AllocatedDevices());
  assert.deepEqual(others, []);
  if (pool === undefined) return 'none';
  if (pool.isIncomplete) return 'incomplete';
  const counters = [...pool.counters].map(
    ([set, values]) => `${set}: ${[...values].map(([key, { nano }]) => `${key}=${nano / 1_000_000_000n}`).join()}`,
  );
  return [...pool.devices.map(({ device }) => device.name), ...counters].join(' ');
}

const own = slice([{ name: 'gpu-0' }], { nodeName: 'victim' });
const counters = (value: string): object => ({
  sharedCounters: [{ name: 'memory', counters: { bytes: { value } } }],
});

describe('the pool of a node whose slices are complete', () => {
  for (const [what, hostile] of [
    ['a newer generation', slice([{ name: 'x' }], { nodeName: 'hostile', generation: 999 })],
    ['the same generation', slice([{ name: 'gpu-0' }], { nodeName: 'hostile' })],
    ['the same generation of more slices', slice([{ name: 'x' }], { nodeName: 'hostile', count: 7 })],
    ['counters', slice([], { nodeName: 'hostile', more: counters('0') })],
  ] as const)
    it(`is not changed by a slice that another node publishes with its name and ${what}`, () => {
      for (const slices of [
        [own, hostile],
        [hostile, own],
      ])
        assert.equal(seenBy('victim', slices), 'gpu-0');
    });

  it('keeps its counters, whatever another node publishes', () => {
    const device = { name: 'part', consumesCounters: [{ counterSet: 'memory', counters: { bytes: { value: '1' } } }] };
    const slices = [
      slice([device], { nodeName: 'victim', count: 2 }),
      slice([], { nodeName: 'victim', count: 2, more: counters('8') }),
      slice([{ name: 'x' }], { nodeName: 'hostile', count: 2, more: counters('0') }),
    ];
    assert.equal(seenBy('victim', slices), 'part memory: bytes=8');
  });

  it('is that of its newest generation', () => {
    assert.equal(seenBy('victim', [own, slice([{ name: 'gpu-1' }], { nodeName: 'victim', generation: 2 })]), 'gpu-1');
  });
});

describe('a pool of several nodes', () => {
  it('is complete with the slices of all of them', () => {
    const slices = [slice([{ name: 'a' }], { nodeName: 'a', count: 2 })];
    assert.equal(seenBy('a', slices), 'incomplete');
    slices.push(slice([{ name: 'b' }], { nodeName: 'b', count: 2 }));
    assert.equal(seenBy('a', slices), 'a');
    assert.equal(seenBy('b', slices), 'b');
  });

  it('has no devices for a node of which only the previous generation is there', () => {
    const slices = [
      slice([{ name: 'a' }], { nodeName: 'a', count: 2 }),
      slice([{ name: 'b' }], { nodeName: 'b', count: 2, generation: 2 }),
    ];
    assert.equal(seenBy('a', slices), 'none');
    assert.equal(seenBy('b', slices), 'incomplete');
  });

  it('has the devices that each node can use', () => {
    const slices = [
      slice(
        [
          { name: 'a', nodeName: 'a' },
          { name: 'all', allNodes: true },
        ],
        { count: 2, more: { perDeviceNodeSelection: true } },
      ),
      slice([{ name: 'fast' }], {
        count: 2,
        more: {
          nodeSelector: {
            nodeSelectorTerms: [{ matchExpressions: [{ key: 'fast', operator: 'Exists' }] }],
          },
        },
      }),
    ];
    assert.equal(seenBy('a', slices), 'a all');
    assert.equal(seenBy('b', slices, { fast: 'yes' }), 'all fast');
  });
});
