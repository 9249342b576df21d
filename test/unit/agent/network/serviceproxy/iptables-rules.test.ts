import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { serviceRules } from '../../../../../agent/network/serviceproxy/iptables-rules.ts';
import type { ServicePort } from '../../../../../agent/network/serviceproxy/service-ports.ts';

const SETTINGS = { family: 'IPv4', masqueradeBit: 14, podCidrs: ['10.0.0.0/24'] } as const;

function port(more: Partial<ServicePort> = {}): ServicePort {
  const endpoints = [
    { ip: '10.0.0.1', port: 8080 },
    { ip: '10.0.0.2', port: 8080 },
    { ip: '10.0.0.3', port: 8080 },
  ];
  return {
    id: 'shop/web:http',
    protocol: 'TCP',
    clusterIp: '10.96.0.7',
    port: 80,
    nodePort: 0,
    externalIps: [],
    loadBalancerIps: [],
    sourceRanges: [],
    affinitySeconds: 0,
    externalLocal: false,
    internal: endpoints,
    external: endpoints,
    hasEndpoints: true,
    ...more,
  };
}

const lines = (text: string, ...parts: readonly string[]): string[] =>
  text.split('\n').filter((line) => parts.every((part) => line.includes(part)));

describe('the service rules', () => {
  it('select each endpoint with the same probability', () => {
    const { text } = serviceRules([port()], SETTINGS);
    const chances = lines(text, '--probability').map((line) => Number(/--probability (\S+)/.exec(line)?.[1]));
    assert.deepEqual(chances, [0.3333333333, 0.5]);
    assert.equal(lines(text, 'DNAT --to-destination').length, 3);
  });

  it('masquerade traffic from this host, from outside, and from the endpoint itself', () => {
    const { text } = serviceRules([port({ nodePort: 30_080 })], SETTINGS);
    assert.equal(lines(text, '-d 10.96.0.7', '--src-type LOCAL -j ORC-MASQUERADE').length, 1);
    assert.equal(lines(text, 'ORC-EXT-', '-j ORC-MASQUERADE').length, 1);
    assert.equal(lines(text, '-s 10.0.0.2 -j ORC-MASQUERADE').length, 1);
    assert.equal(lines(text, '-A ORC-NODEPORTS', '--dport 30080').length, 1);
  });

  it('keep the source address of local traffic, except for the host and its pods', () => {
    const local = port({ nodePort: 30_080, externalLocal: true, external: [{ ip: '10.0.0.1', port: 8080 }] });
    const { text } = serviceRules([local], SETTINGS);
    const outside = lines(text, '-A ORC-EXT-');
    assert.match(outside[0] ?? '', /-s 10\.0\.0\.0\/24 -j ORC-SVC-/);
    assert.match(outside.at(-1) ?? '', /^-A \S+ -j ORC-SVX-/);
    assert.ok(outside.every((line) => !line.endsWith('ORC-MASQUERADE') || line.includes('--src-type LOCAL')));
  });

  it('mark packets with each bit that the flag allows', () => {
    const { text } = serviceRules([port()], { ...SETTINGS, masqueradeBit: 31 });
    assert.equal(lines(text, '--or-mark 0x80000000').length, 1);
  });

  it('keep a client at its endpoint', () => {
    const { text } = serviceRules([port({ affinitySeconds: 60 })], SETTINGS);
    assert.equal(lines(text, '--rcheck --seconds 60 --reap').length, 3);
    assert.equal(lines(text, '-m recent --name', '--set', 'DNAT').length, 3);
  });

  it('reject traffic without endpoints, and drop traffic that only other nodes can serve', () => {
    const none = { internal: [], external: [] };
    const refused = serviceRules([port({ ...none, hasEndpoints: false, nodePort: 30_080 })], SETTINGS).text;
    assert.equal(lines(refused, '-A ORC-REFUSE', 'REJECT').length, 2);
    const dropped = serviceRules([port({ ...none, externalLocal: true })], SETTINGS).text;
    assert.equal(lines(dropped, '-A ORC-REFUSE -d 10.96.0.7', '-j DROP').length, 1);
  });

  it("only allow the source ranges at a load balancer's address", () => {
    const { text } = serviceRules(
      [port({ loadBalancerIps: ['192.0.2.9'], sourceRanges: ['198.51.100.0/24'] })],
      SETTINGS,
    );
    assert.equal(lines(text, '-A ORC-SERVICES -s 198.51.100.0/24 -d 192.0.2.9').length, 1);
    assert.equal(lines(text, '-A ORC-REFUSE -d 192.0.2.9', '-j DROP').length, 1);
  });

  it('delete the chains of removed services only', () => {
    const before = serviceRules([port(), port({ id: 'shop/old:http', clusterIp: '10.96.0.8' })], SETTINGS);
    const after = serviceRules([port()], SETTINGS, new Set([...before.chains, 'ORC-SERVICES']));
    const deleted = lines(after.text, '-X ').map((line) => line.slice(3));
    assert.deepEqual(new Set(deleted), new Set([...before.chains].filter((chain) => !after.chains.has(chain))));
    // A chain must be flushed in the same transaction before it can be deleted.
    for (const chain of deleted) assert.equal(lines(after.text, `:${chain} - [0:0]`).length, 1);
  });

  it('have chain names within the maximum length', () => {
    const { chains } = serviceRules([port({ nodePort: 30_080, externalLocal: true })], SETTINGS);
    assert.ok(chains.size > 0);
    for (const chain of chains) assert.ok(chain.length <= 28, chain);
  });

  it("redirect DNS queries to the agent's server, which other clients cannot reach", () => {
    const { text } = serviceRules([], { ...SETTINGS, nameServer: { addresses: ['10.96.0.10'], port: 5300 } });
    assert.equal(lines(text, '-d 10.96.0.10 -p udp', 'REDIRECT --to-ports 5300').length, 1);
    assert.equal(lines(text, '-A ORC-REFUSE -p udp', '--dport 5300', '! --src-type LOCAL -j DROP').length, 1);
  });
});
