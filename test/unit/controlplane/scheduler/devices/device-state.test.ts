/** Tests the devices that are allocated, as the scheduler counts them from the changes of claims. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import fc from 'fast-check';
import type { Informer, Informers } from '../../../../../api/client/informer.ts';
import type { ResourceClaim } from '../../../../../api/kinds/kinds.ts';
import { resourceClaims, type ResourceOf } from '../../../../../api/client/resources.ts';
import { AllocatedDevices } from '../../../../../controlplane/scheduler/devices/allocated-devices.ts';
import { DeviceState } from '../../../../../controlplane/scheduler/devices/device-state.ts';

type Handler = Parameters<Informer<ResourceClaim>['addHandler']>[0];

const allocationOf = (...devices: readonly string[]) => ({
  devices: { results: devices.map((device) => ({ driver: 'gpu.example.com', pool: 'p', device, request: 'r' })) },
});
const claimOf = (uid: string, ...devices: readonly string[]): ResourceClaim =>
  ({
    metadata: { name: uid, namespace: 'a', uid },
    spec: {},
    ...(devices.length === 0 ? {} : { status: { allocation: allocationOf(...devices) } }),
  }) as ResourceClaim;

/** Returns informers whose claims cannot be listed. `handler` is the one that the state adds for claims. */
function unlistable(): { readonly informers: Informers; handler(): Handler } {
  let added: Handler = {};
  const informerOf = (resource: ResourceOf<unknown>): object => ({
    hasSynced: true,
    list: () => assert.fail('a scheduling decision lists claims'),
    addHandler(handler: Handler) {
      if (resource === resourceClaims) added = handler;
      return { remove: () => undefined };
    },
  });
  return { informers: { for: informerOf } as unknown as Informers, handler: () => added };
}

const devicesIn = (state: DeviceState): string[] =>
  ['d1', 'd2', 'd3', 'd4'].filter((device) => state.allocatedDevices().isTaken(`gpu.example.com/p/${device}`));

it('devices count as allocated from the reservation on, until no allocation holds them, without a list of all claims', () => {
  const { informers, handler } = unlistable();
  const state = new DeviceState(informers);
  state.onChange(() => undefined);
  const { add, update, delete: removed } = handler();
  add?.(claimOf('one', 'd1'));
  state.assume([{ claim: claimOf('two'), allocation: allocationOf('d2', 'd3') }]);
  assert.deepEqual(devicesIn(state), ['d1', 'd2', 'd3']);
  assert.equal(state.isBeingAllocated('two'), true);
  update?.(claimOf('two'), claimOf('two', 'd2', 'd3'));
  assert.equal(state.isBeingAllocated('two'), false);
  assert.deepEqual(devicesIn(state), ['d1', 'd2', 'd3']);
  update?.(claimOf('two', 'd2', 'd3'), claimOf('two', 'd3'));
  assert.deepEqual(devicesIn(state), ['d1', 'd3']);
  const refused = { claim: claimOf('three'), allocation: allocationOf('d4') };
  state.assume([refused]);
  state.forget([refused]);
  update?.(claimOf('one', 'd1'), claimOf('one'));
  removed?.(claimOf('two', 'd3'));
  assert.deepEqual(devicesIn(state), []);
});

it('the counted devices are those of all current allocations, without administrative access', () => {
  const result = fc.record({
    driver: fc.constant('gpu.example.com'),
    pool: fc.constant('p'),
    request: fc.constant('r'),
    device: fc.constantFrom('d1', 'd2', 'd3', 'd4'),
    adminAccess: fc.constantFrom(true, false, undefined),
  });
  const change = fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.option(fc.array(result, { maxLength: 4 })));
  fc.assert(
    fc.property(fc.array(change), (changes) => {
      const allocated = new AllocatedDevices();
      const current = new Map<string, Set<string>>();
      for (const [id, results] of changes) {
        const given = (results ?? []).map(({ adminAccess, ...rest }) =>
          adminAccess === undefined ? rest : { ...rest, adminAccess },
        );
        allocated.set(id, results === null ? undefined : { devices: { results: given } });
        current.set(id, new Set(given.flatMap((one) => ('adminAccess' in one && one.adminAccess ? [] : [one.device]))));
      }
      const expected = new Set([...current.values()].flatMap((devices) => [...devices]));
      for (const device of ['d1', 'd2', 'd3', 'd4'])
        assert.equal(allocated.isTaken(`gpu.example.com/p/${device}`), expected.has(device));
    }),
  );
});
