/** Tests which addresses lead to the host itself, to its link, or to a cloud's metadata, in all notations. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressClasses, addressKey } from '../../../../api/http/address-class.ts';

for (const [address, expected] of [
  ['127.0.0.1', ['loopback']],
  ['127.8.8.8', ['loopback']],
  ['::1', ['loopback']],
  ['[::1]', ['loopback']],
  ['0:0:0:0:0:0:0:1', ['loopback']],
  ['::ffff:127.0.0.1', ['loopback']],
  ['::ffff:7f00:1', ['loopback']],
  ['::127.0.0.1', ['loopback']],
  ['64:ff9b::127.0.0.1', ['loopback']],
  ['::ffff:0:127.0.0.1', ['loopback']],
  ['64:ff9b:1::127.0.0.1', ['loopback']],
  ['64:ff9b:1:fffe::169.254.169.254', ['link-local', 'metadata']],
  ['64:ff9b:1:7f00:0:100::', ['loopback']],
  ['64:ff9b:1:a9fe:a9:fe00::', ['link-local', 'metadata']],
  ['64:ff9b:1:ffa9:fe:a9fe::', ['link-local', 'metadata']],
  ['64:ff9b:1:fffe:a9:fea9:fe00:0', ['link-local', 'metadata']],
  ['64:ff9b:1::8.8.8.8', []],
  ['64:ff9b:1:808:8:800::', []],
  ['64:ff9b:1:808:0:800::', []],
  ['64:ff9b:1:fffe::0.0.0.0', ['unspecified']],
  ['2002:7f00:1::', ['loopback']],
  ['0.0.0.0', ['unspecified']],
  ['::', ['unspecified']],
  ['::ffff:0.0.0.0', ['unspecified']],
  ['169.254.1.1', ['link-local']],
  ['169.254.169.254', ['link-local', 'metadata']],
  ['::ffff:169.254.169.254', ['link-local', 'metadata']],
  ['64:ff9b::a9fe:a9fe', ['link-local', 'metadata']],
  ['fd00:ec2::254', ['metadata']],
  ['fd00:0ec2:0::0254', ['metadata']],
  ['100.100.100.200', ['metadata']],
  ['168.63.129.16', ['metadata']],
  ['169.254.0.23', ['link-local', 'metadata']],
  ['169.254.42.42', ['link-local', 'metadata']],
  ['fe80::a9fe:a9fe%eth0', ['link-local', 'metadata']],
  ['fd00:42::42', ['metadata']],
  ['fd00:a9fe:a9fe::1', ['metadata']],
  ['fd00:c1::a9fe:a9fe', ['metadata']],
  ['fd00:100::100:200', ['metadata']],
  ['fe80::1', ['link-local']],
  ['fe80::1%eth0', ['link-local']],
  ['febf::1', ['link-local']],
  ['224.0.0.1', ['multicast']],
  ['255.255.255.255', ['multicast']],
  ['ff02::1', ['multicast']],
  ['10.0.0.1', []],
  ['192.168.1.1', []],
  ['128.0.0.1', []],
  ['2001:db8::1', []],
  ['fd00::1', []],
  ['hook.example', []],
  ['127.1', []],
] as const) {
  test(`${address} is ${expected.length === 0 ? 'an ordinary address or none' : expected.join(' and ')}`, () =>
    assert.deepEqual(addressClasses(address), expected));
}

test('spellings of one address have one key', () => {
  assert.equal(addressKey('::ffff:10.0.0.1'), addressKey('10.0.0.1'));
  assert.equal(addressKey('2001:DB8:0::1'), addressKey('[2001:db8::1]'));
  assert.notEqual(addressKey('10.0.0.1'), addressKey('10.0.0.2'));
  assert.equal(addressKey('name'), '');
});
