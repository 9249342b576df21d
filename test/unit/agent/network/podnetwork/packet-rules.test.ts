import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { jumps, mergedRanges, packetRules } from '../../../../../agent/network/podnetwork/packet-rules.ts';
import { type Cidr, cidrContains, cidrSize, formatCidr, parseCidr } from '../../../../../api/meta/ip-addresses.ts';

const cidrs = (...texts: readonly string[]): Cidr[] => texts.flatMap((text) => parseCidr(text) ?? []);

function rules(bridge: string, { tunnel = '', uplink = '' } = {}): readonly string[] {
  const [range] = cidrs('10.244.0.0/24');
  assert.ok(range);
  const peerRanges = cidrs('10.244.1.0/24', '10.244.5.0/24');
  return packetRules({ family: 4, range, peerRanges, bridge, masqueradeBit: 14, tunnel, uplink }).trim().split('\n');
}

describe('the rules of the pod network', () => {
  it('masquerade only what leaves the ranges of the cluster', () => {
    assert.deepEqual(
      rules('orchlet.pods').filter((line) => line.includes('-NAT ')),
      [
        ':ORCHLET-POD-NAT - [0:0]',
        '-A ORCHLET-POD-NAT -m mark --mark 0x4000/0x4000 -j RETURN',
        '-A ORCHLET-POD-NAT -s 10.244.0.0/24 -d 10.244.0.0/23 -j ACCEPT',
        '-A ORCHLET-POD-NAT -s 10.244.0.0/24 -d 10.244.5.0/24 -j ACCEPT',
        '-A ORCHLET-POD-NAT -s 10.244.0.0/24 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully',
      ],
    );
  });

  it('accept packets between pods of this node and others, and nothing between other nodes', () => {
    assert.deepEqual(
      rules('').filter((line) => line.startsWith('-A ORCHLET-POD-NET ')),
      [
        '-A ORCHLET-POD-NET -s 10.244.0.0/24 -d 10.244.0.0/23 -j ACCEPT',
        '-A ORCHLET-POD-NET -s 10.244.0.0/23 -d 10.244.0.0/24 -j ACCEPT',
        '-A ORCHLET-POD-NET -s 10.244.0.0/24 -d 10.244.5.0/24 -j ACCEPT',
        '-A ORCHLET-POD-NET -s 10.244.5.0/24 -d 10.244.0.0/24 -j ACCEPT',
      ],
    );
  });

  it('drop packets that claim to be of pods and arrive by another way, before any are accepted', () => {
    const chain = rules('', { tunnel: 'orchlet.wg', uplink: 'eth0' }).filter((line) =>
      line.startsWith('-A ORCHLET-POD-NET '),
    );
    assert.deepEqual(chain.slice(0, 4), [
      '-A ORCHLET-POD-NET ! -i orchlet.wg -s 10.244.1.0/24 -j DROP',
      '-A ORCHLET-POD-NET ! -i orchlet.wg -s 10.244.5.0/24 -j DROP',
      '-A ORCHLET-POD-NET -i eth0 -s 10.244.0.0/24 -d 10.244.0.0/24 -j DROP',
      '-A ORCHLET-POD-NET -s 10.244.0.0/24 -d 10.244.0.0/23 -j ACCEPT',
    ]);
    assert.equal(
      rules('', { uplink: 'eth0' }).filter((line) => line.endsWith('DROP')).length,
      1,
      'packets of other nodes come by the uplink where there is no tunnel',
    );
  });

  it('drop packets of pods of this node that claim to be of pods of others, wherever they go', () => {
    const dropped = rules('', { tunnel: 'orchlet.vxlan' }).filter((line) => line.endsWith('DROP'));
    assert.ok(dropped.some((line) => line.includes('! -i orchlet.vxlan -s 10.244.5.0/24')));
    for (const line of dropped) assert.doesNotMatch(line, / -d /);
  });

  it('pass by the rules of Docker in the raw table, and accept for the own bridge after the rules of a firewall', () => {
    assert.ok(rules('').includes('-A ORCHLET-POD-RAW -s 10.244.5.0/24 -d 10.244.0.0/24 -j ACCEPT'));
    assert.ok(!rules('').some((line) => line.includes('-OUT ')));
    assert.ok(!rules('orchlet.pods').includes('*raw'));
    assert.ok(rules('orchlet.pods').includes('-A ORCHLET-POD-OUT -i orchlet.pods -s 10.244.0.0/24 -j ACCEPT'));
    assert.deepEqual(
      jumps({ bridge: 'orchlet.pods' })
        .filter(({ isLast }) => isLast)
        .map(({ from, to }) => `${from} ${to}`),
      ['FORWARD ORCHLET-POD-OUT'],
    );
  });

  it('jump to chains that the rules have', () => {
    for (const bridge of ['', 'orchlet.pods']) {
      const text = rules(bridge);
      for (const { table, to } of jumps({ bridge })) {
        const part = text.slice(text.indexOf(`*${table}`));
        assert.ok(part.slice(0, part.indexOf('COMMIT')).includes(`:${to} - [0:0]`), `${table} ${to}`);
      }
    }
  });
});

describe('merged ranges', () => {
  it('are few where ranges are neighbors', () => {
    const all = Array.from({ length: 256 }, (_none, index) => `10.244.${255 - index}.0/24`);
    assert.deepEqual(mergedRanges(cidrs(...all)).map(formatCidr), ['10.244.0.0/16']);
    assert.deepEqual(mergedRanges(cidrs('10.0.1.0/24', '10.0.2.0/24')).map(formatCidr), ['10.0.1.0/24', '10.0.2.0/24']);
  });

  it('have exactly the addresses of the ranges, and do not overlap', () => {
    const anyRange = fc
      .tuple(fc.integer({ min: 0, max: 255 }), fc.integer({ min: 24, max: 32 }))
      .map(([base, bits]) => parseCidr(`10.0.0.${base}/${bits}`))
      .filter((range) => range !== undefined);
    fc.assert(
      fc.property(fc.array(anyRange, { maxLength: 12 }), (ranges) => {
        const merged = mergedRanges(ranges);
        const has = (list: readonly Cidr[], value: bigint): boolean =>
          list.some((one) => cidrContains(one, { family: 4, value, mapped: false }));
        for (let value = 0x0a000000n; value < 0x0a000100n; value++)
          assert.equal(has(merged, value), has(ranges, value));
        const total = merged.reduce((sum, one) => sum + cidrSize(one), 0n);
        const covered = Array.from({ length: 256 }, (_none, index) => 0x0a000000n + BigInt(index)).filter((value) =>
          has(ranges, value),
        );
        assert.equal(total, BigInt(covered.length));
      }),
    );
  });
});
