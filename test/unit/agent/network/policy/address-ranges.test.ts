/** Tests the ranges of address blocks with exceptions. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blockRanges } from '../../../../../agent/network/policy/address-ranges.ts';
import { formatIp } from '../../../../../api/meta/ip-addresses.ts';

const textsOf = (block: Parameters<typeof blockRanges>[0]): readonly string[] =>
  blockRanges(block).map(({ family, first, last }) =>
    [first, last].map((value) => formatIp({ family, value })).join('-'),
  );

test('an exception leaves the addresses around it', () =>
  assert.deepEqual(textsOf({ cidr: '10.1.0.0/24', except: ['10.1.0.16/28'] }), [
    '10.1.0.0-10.1.0.15',
    '10.1.0.32-10.1.0.255',
  ]));

test('an exception outside the block does not widen it', () => {
  for (const except of ['10.0.0.0/24', '10.2.0.0/24', '::/0'])
    assert.deepEqual(textsOf({ cidr: '10.1.0.0/24', except: [except] }), ['10.1.0.0-10.1.0.255'], except);
});

test('an exception that has the whole block leaves nothing', () =>
  assert.deepEqual(textsOf({ cidr: '10.1.0.0/24', except: ['10.0.0.0/8'] }), []));
