/** Tests which status of a resource claim the scheduler and DRA drivers may write. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { claimStatusErrors } from '../../../../../../controlplane/registry/kinds/resource/device-claim-validation.ts';
import type { ResourceClaim } from '../../../../../../controlplane/registry/kinds/resource/device-types.ts';

const UID = '0a1b2c3d-0000-4000-8000-00000000000f';
const result = { request: 'gpu', driver: 'gpu.example.com', pool: 'n1', device: 'gpu-0' };
const allocation = (...results: object[]): object => ({ devices: { results } });
const allocated = allocation(result);

function claim(status: object, metadata: object = {}): ResourceClaim {
  return {
    metadata: { name: 'c', namespace: 'n', ...metadata },
    spec: { devices: { requests: [{ name: 'gpu', exactly: { deviceClassName: 'gpu' } }] } },
    status,
  } as unknown as ResourceClaim;
}

/** Returns the errors as `field: detail`. */
const errorsOf = (status: object, before: object = {}, metadata: object = {}): string[] =>
  claimStatusErrors(claim(status, metadata), claim(before)).map(({ field, detail }) => `${field}: ${detail}`);

const pod = (uid: string): object => ({ resource: 'pods', name: 'p', uid });

describe('the allocation of a claim', () => {
  it('is written once, and stays as it is', () => {
    assert.deepEqual(errorsOf({ allocation: allocated }), []);
    assert.deepEqual(errorsOf({ allocation: allocated }, { allocation: allocated }), []);
    assert.deepEqual(errorsOf({}, { allocation: allocated }), []);
    const other = allocation({ ...result, device: 'gpu-1' });
    assert.deepEqual(errorsOf({ allocation: other }, { allocation: allocated }), [
      'status.allocation: field is immutable',
    ]);
  });

  for (const [what, part, field] of [
    ['a request that the claim lacks', { request: 'nic' }, 'request'],
    ['an invalid driver', { driver: 'Gpu_' }, 'driver'],
    ['an invalid pool', { pool: '' }, 'pool'],
    ['an invalid device', { device: 'gpu/0' }, 'device'],
    ['a share that is no UID', { shareID: 'x' }, 'shareID'],
    ['a share whose UID has capital letters', { shareID: UID.toUpperCase() }, 'shareID'],
  ] as const)
    it(`does not name ${what}`, () => {
      const [first, ...more] = errorsOf({ allocation: allocation({ ...result, ...part }) });
      assert.match(first ?? '', new RegExp(`^status\\.allocation\\.devices\\.results\\[0\\]\\.${field}: `));
      assert.deepEqual(more, []);
    });

  it('has configuration of a class or of the claim', () => {
    const opaque = { driver: 'gpu.example.com', parameters: { a: 1 } };
    const withSource = (source: string): object => ({ devices: { results: [result], config: [{ source, opaque }] } });
    assert.deepEqual(errorsOf({ allocation: withSource('FromClass') }), []);
    for (const source of ['', 'FromPod'])
      assert.match(
        errorsOf({ allocation: withSource(source) }).join(),
        /^status\.allocation\.devices\.config\[0\]\.source/,
      );
  });
});

describe('the consumers of a claim', () => {
  it('need an allocation', () => {
    assert.deepEqual(errorsOf({ allocation: allocated, reservedFor: [pod('u1')] }), []);
    assert.deepEqual(errorsOf({ reservedFor: [pod('u1')] }), [
      'status.reservedFor: may not be specified when `allocated` is not set',
    ]);
  });

  it('are complete, and each has another UID', () => {
    const errors = errorsOf({ allocation: allocated, reservedFor: [pod('u1'), pod('u1'), { resource: 'pods' }] });
    const fields = errors.map((error) => error.split(':')[0] ?? '').sort();
    assert.deepEqual(fields, ['status.reservedFor[1]', 'status.reservedFor[2].name', 'status.reservedFor[2].uid']);
  });

  it('may leave a claim that is deleted, but not join it', () => {
    const deleted = { deletionTimestamp: '2026-01-02T03:04:05Z' };
    const before = { allocation: allocated, reservedFor: [pod('u1'), pod('u2')] };
    assert.deepEqual(errorsOf({ allocation: allocated, reservedFor: [pod('u2')] }, before, deleted), []);
    assert.match(
      errorsOf({ allocation: allocated, reservedFor: [pod('u2'), pod('u3')] }, before, deleted).join(),
      /^status\.reservedFor: new entries may not be added/,
    );
  });
});

describe('what a driver reports of a device', () => {
  const device = { driver: 'gpu.example.com', pool: 'n1', device: 'gpu-0' };
  const reported = (part: object): string[] =>
    errorsOf({ allocation: allocated, devices: [{ ...device, ...part }] }, { allocation: allocated });

  it('is about an allocated device', () => {
    assert.deepEqual(reported({}), []);
    assert.deepEqual(reported({ device: 'gpu-1' }), ['status.devices[0]: must be an allocated device in the claim']);
  });

  it('has addresses in canonical form, with the length of their prefix', () => {
    const withIps = (...ips: string[]): string[] => reported({ networkData: { interfaceName: 'eth0', ips } });
    assert.deepEqual(withIps('10.9.8.7/24', '2001:db8::1/64'), []);
    assert.deepEqual(withIps('10.9.8.7'), [
      'status.devices[0].networkData.ips[0]: must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)',
    ]);
    assert.deepEqual(withIps('2001:DB8::1/64'), [
      'status.devices[0].networkData.ips[0]: must be in canonical form ("2001:db8::1/64")',
    ]);
  });

  it('has names of bounded length', () => {
    assert.match(reported({ networkData: { interfaceName: 'e'.repeat(257) } }).join(), /networkData\.interfaceName/);
    assert.match(
      reported({ networkData: { hardwareAddress: 'e'.repeat(129) } }).join(),
      /networkData\.hardwareAddress/,
    );
  });
});
