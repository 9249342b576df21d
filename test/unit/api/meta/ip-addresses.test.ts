import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  canonicalIp,
  cidrAddress,
  cidrContains,
  cidrErrors,
  cidrSize,
  formatCidr,
  formatIp,
  ipErrors,
  parseCidr,
  parseIp,
} from '../../../../api/meta/ip-addresses.ts';

test('an address has one canonical text', () => {
  const texts: Record<string, string | undefined> = {
    '10.0.0.1': '10.0.0.1',
    '010.0.0.1': '10.0.0.1',
    '2001:db8::0001': '2001:db8::1',
    '2001:0DB8:0:0:1:0:0:1': '2001:db8::1:0:0:1',
    '::': '::',
    '::1': '::1',
    '1::': '1::',
    '::ffff:1.2.3.4': '1.2.3.4',
    '256.0.0.1': undefined,
    '1.2.3': undefined,
    '1:2:3:4:5:6:7': undefined,
    '1::2::3': undefined,
    ':1': undefined,
    '': undefined,
  };
  for (const [text, wanted] of Object.entries(texts)) assert.equal(canonicalIp(text), wanted, text);
});

test('parsing and formatting an address returns the same address', () => {
  const address = fc.oneof(
    fc.bigInt({ min: 0n, max: 2n ** 32n - 1n }).map((value) => ({ family: 4 as const, value })),
    fc.bigInt({ min: 2n ** 64n, max: 2n ** 128n - 1n }).map((value) => ({ family: 6 as const, value })),
  );
  fc.assert(
    fc.property(address, ({ family, value }) => {
      const parsed = parseIp(formatIp({ family, value }));
      assert.equal(parsed?.family, family);
      assert.equal(parsed?.value, value);
    }),
  );
});

test('CIDRs contain their addresses', () => {
  const block = parseCidr('10.96.0.0/12');
  const inside = parseIp('10.111.255.255');
  const outside = parseIp('10.112.0.0');
  assert(block !== undefined && inside !== undefined && outside !== undefined);
  assert.equal(cidrSize(block), 2n ** 20n);
  assert.equal(cidrAddress(block, 10), '10.96.0.10');
  assert.equal(cidrContains(block, inside), true);
  assert.equal(cidrContains(block, outside), false);
  assert.equal(formatCidr(block), '10.96.0.0/12');
});

test('validation reports the reason', () => {
  assert.deepEqual(ipErrors('ip', 'x').map(String), [
    'ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
  ]);
  assert.deepEqual(cidrErrors('c', '10.0.0.0').map(String), [
    'c: Invalid value: "10.0.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)',
  ]);
  assert.deepEqual(
    ipErrors('ip', '010.0.0.1').map(({ detail }) => detail),
    ['must not have leading 0s'],
  );
  assert.deepEqual(
    cidrErrors('c', '10.0.0.1/8').map(({ detail }) => detail),
    ['must not have bits set beyond the prefix length'],
  );
});
