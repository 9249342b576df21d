import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  CHAINS_PER_PART,
  IptablesTransactions,
} from '../../../../../agent/network/serviceproxy/iptables-transactions.ts';
import type { RuleSettings } from '../../../../../agent/network/serviceproxy/rule-writer.ts';
import { inOneSlice } from '../../../../../api/machinery/time-slice.ts';
import type { ServicePort } from '../../../../../agent/network/serviceproxy/service-ports.ts';
import { servicePort as port, SETTINGS } from './service-port.ts';

/** Work that ends in its first slice. */
const SLICE = { isSpent: false };

function transactions(ports: readonly ServicePort[], settings: RuleSettings = SETTINGS): IptablesTransactions {
  const made = new IptablesTransactions(settings);
  inOneSlice(made.change([{ before: [], after: ports }], SLICE));
  return made;
}

const textOf = (ports: readonly ServicePort[], settings?: RuleSettings): string =>
  transaction(transactions(ports, settings));

function transaction(rules: IptablesTransactions): string {
  const parts = inOneSlice(rules.transaction(SLICE));
  assert.ok(parts.length <= 1);
  return parts[0] ?? '';
}

const lines = (text: string, ...parts: readonly string[]): string[] =>
  text.split('\n').filter((line) => parts.every((part) => line.includes(part)));

describe('the service rules', () => {
  it('select each endpoint with the same probability', () => {
    const text = textOf([port()]);
    const chances = lines(text, '--probability').map((line) => Number(/--probability (\S+)/.exec(line)?.[1]));
    assert.deepEqual(chances, [0.3333333333, 0.5]);
    assert.equal(lines(text, 'DNAT --to-destination').length, 3);
  });

  it('masquerade traffic from this host, from outside, and from the endpoint itself', () => {
    const text = textOf([port({ nodePort: 30_080 })]);
    assert.equal(lines(text, '-d 10.96.0.7', '-j ORC-INSIDE').length, 1);
    assert.deepEqual(
      lines(text, '-A ORC-INSIDE').map((line) => line.slice(14)),
      ['-m addrtype --src-type LOCAL -j ORC-MASQUERADE', '-s 10.0.0.0/24 -j RETURN', '-j ORC-MASQUERADE'],
    );
    assert.equal(lines(text, 'ORC-EXT-', '-j ORC-MASQUERADE').length, 1);
    assert.equal(lines(text, '-s 10.0.0.2 -j ORC-MASQUERADE').length, 1);
    assert.equal(lines(text, '-A ORC-NODEPORTS', '--dport 30080').length, 1);
  });

  it('keep the source address of local traffic, except for the host and its pods', () => {
    const local = port({ nodePort: 30_080, externalLocal: true, external: [{ ip: '10.0.0.1', port: 8080 }] });
    const text = textOf([local]);
    const outside = lines(text, '-A ORC-EXT-');
    assert.match(outside[0] ?? '', /-s 10\.0\.0\.0\/24 -j ORC-SVC-/);
    assert.match(outside.at(-1) ?? '', /^-A \S+ -j ORC-SVL-/);
    assert.ok(outside.every((line) => !line.endsWith('ORC-MASQUERADE') || line.includes('--src-type LOCAL')));
  });

  it('mark packets with each bit that the flag allows', () => {
    const text = textOf([port()], { ...SETTINGS, masqueradeBit: 31 });
    assert.equal(lines(text, '--or-mark 0x80000000').length, 1);
  });

  it('match UDP, SCTP and IPv6', () => {
    const cluster = [{ ip: 'fd00::1', port: 3868 }];
    for (const protocol of ['UDP', 'SCTP'] as const) {
      const text = textOf([port({ protocol, clusterIp: 'fd96::7', port: 3868, cluster })], {
        ...SETTINGS,
        family: 'IPv6',
        podCidrs: ['fd00::/64'],
      });
      const match = `-p ${protocol.toLowerCase()} -m ${protocol.toLowerCase()}`;
      assert.equal(lines(text, `-d fd96::7 ${match} --dport 3868`, '-j ORC-SVC-').length, 1);
      assert.equal(lines(text, `${match} -j DNAT --to-destination [fd00::1]:3868`).length, 1);
    }
  });

  it('keep a client at its endpoint', () => {
    const text = textOf([port({ affinitySeconds: 60 })]);
    assert.equal(lines(text, '--rcheck --seconds 60 --reap').length, 3);
    assert.equal(lines(text, '-m recent --name', '--set', 'DNAT').length, 3);
  });

  it('reject traffic without endpoints, and drop traffic that only other nodes can serve', () => {
    const none = { internal: [], external: [] };
    const refused = textOf([port({ ...none, hasEndpoints: false, nodePort: 30_080 })]);
    assert.equal(lines(refused, '-A ORC-REFUSE', 'REJECT').length, 2);
    const dropped = textOf([port({ ...none, externalLocal: true })]);
    assert.equal(lines(dropped, '-A ORC-REFUSE -d 10.96.0.7', '-j DROP').length, 1);
  });

  it("only allow the source ranges at a load balancer's address", () => {
    const text = textOf([port({ loadBalancerIps: ['192.0.2.9'], sourceRanges: ['198.51.100.0/24'] })]);
    assert.equal(lines(text, '-A ORC-SERVICES -s 198.51.100.0/24 -d 192.0.2.9').length, 1);
    assert.equal(lines(text, '-A ORC-REFUSE -d 192.0.2.9', '-j DROP').length, 1);
  });

  it('are written as far as they differ from the last transaction', () => {
    const [web, old] = [port(), port({ id: 'shop/old:http', clusterIp: '10.96.0.8' })];
    const rules = transactions([web, old]);
    const first = transaction(rules);
    assert.equal(lines(first, 'DNAT --to-destination').length, 6);
    inOneSlice(rules.commit(SLICE));
    assert.equal(transaction(rules), '');
    inOneSlice(rules.change([{ before: [old], after: [] }], SLICE));
    const second = transaction(rules);
    assert.equal(lines(second, '--to-destination').length, 0, 'the chains of the other service stay');
    assert.equal(lines(second, '-A ORC-SERVICES', '10.96.0.7').length, 2);
    const deleted = lines(second, '-X ').map((line) => line.slice(3));
    assert.equal(deleted.length, 4);
    // A chain must be flushed in the same transaction before it can be deleted.
    for (const chain of deleted) assert.equal(lines(second, `:${chain} - [0:0]`).length, 1);
    assert.doesNotMatch(second, /\*filter/);
    inOneSlice(rules.commit(SLICE));
    assert.equal(transaction(rules), '');
  });

  it('delete the chains of an earlier process, and are written again after they were lost', () => {
    const rules = transactions([port()]);
    inOneSlice(rules.forget(['ORC-SVC-OF-ANOTHER', 'ORC-SERVICES'], SLICE));
    const text = transaction(rules);
    assert.equal(lines(text, '-X ORC-SVC-OF-ANOTHER').length, 1);
    assert.equal(lines(text, '-X ORC-SERVICES').length, 0);
    inOneSlice(rules.commit(SLICE));
    inOneSlice(rules.forget([], SLICE));
    assert.equal(lines(transaction(rules), 'DNAT --to-destination').length, 3);
  });

  it('of many services are written in parts, of which none needs a later one', () => {
    const kernel = new Chains();
    const portsOf = (endpoints: number): ServicePort[] =>
      Array.from({ length: 600 }, (_, number) =>
        port({
          id: `shop/s${number}:http`,
          clusterIp: `10.96.${number >> 8}.${number & 255}`,
          nodePort: 30_000 + number,
          cluster: Array.from({ length: endpoints }, (_each, at) => ({ ip: `10.${at}.0.${number & 255}`, port: 8080 })),
        }),
      );
    const [few, many] = [portsOf(2), portsOf(3)];
    const rules = transactions(few);
    const write = (): number => {
      const parts = inOneSlice(rules.transaction(SLICE));
      for (const part of parts) kernel.apply(part);
      inOneSlice(rules.commit(SLICE));
      return parts.length;
    };
    assert.ok(write() > 2);
    assert.equal(kernel.rulesOf('ORC-SERVICES').length, 1201);
    inOneSlice(rules.change([{ before: few, after: many }], SLICE));
    assert.ok(write() > 1);
    inOneSlice(rules.change([{ before: many, after: portsOf(1).slice(0, 10) }], SLICE));
    assert.ok(write() > 2);
    assert.equal(kernel.names.filter((name) => name.startsWith('ORC-SEP-')).length, 10);
  });

  it('of many services are computed in slices', () => {
    const ports = Array.from({ length: 600 }, (_, number) => port({ id: `shop/s${number}:http` }));
    const rules = new IptablesTransactions(SETTINGS);
    const changes = ports.map((each) => ({ before: [], after: [each] }));
    const spent = { isSpent: true };
    const pauses = (work: Generator<void, unknown>): number => [...work].length;
    assert.ok(pauses(rules.change(changes, spent)) >= ports.length);
    assert.ok(pauses(rules.forget([], spent)) >= ports.length);
    assert.ok(pauses(rules.transaction(spent)) >= ports.length);
    assert.ok(pauses(rules.commit(spent)) >= ports.length);
    const moved = { ...SETTINGS, podCidrs: ['10.9.0.0/24'] };
    assert.ok(pauses(rules.configure(moved, spent)) >= ports.length);
  });

  it('have chain names within the maximum length', () => {
    const text = textOf([port({ nodePort: 30_080, externalLocal: true })]);
    const chains = [...text.matchAll(/^:(\S+) /gm)].map(([, chain = '']) => chain);
    assert.ok(chains.length > 5);
    for (const chain of chains) assert.ok(chain.length <= 28, chain);
  });

  it('open node ports on 127.0.0.1 if asked to, and keep neighbors away from it', () => {
    const closed = textOf([port({ nodePort: 30_080 })]);
    assert.equal(lines(closed, '-A ORC-SERVICES ! -d 127.0.0.0/8', '-j ORC-NODEPORTS').length, 1);
    const open = textOf([port({ nodePort: 30_080 })], { ...SETTINGS, localhostNodePorts: true });
    assert.equal(lines(open, '-A ORC-SERVICES -m addrtype --dst-type LOCAL -j ORC-NODEPORTS').length, 1);
    assert.equal(lines(open, '-A ORC-REFUSE ! -s 127.0.0.0/8 -d 127.0.0.0/8', '-j DROP').length, 1);
    const limited = textOf([port({ nodePort: 30_080 })], { ...SETTINGS, nodePortRanges: ['192.0.2.0/24'] });
    assert.equal(lines(limited, '-d 192.0.2.0/24', '-j ORC-NODEPORTS').length, 1);
    assert.equal(lines(limited, '-j ORC-NODEPORTS').length, 1);
  });

  it("redirect DNS queries to the agent's server, which other clients cannot reach", () => {
    const text = textOf([], { ...SETTINGS, nameServer: { addresses: ['10.96.0.10'], port: 5300 } });
    assert.equal(lines(text, '-d 10.96.0.10 -p udp', 'REDIRECT --to-ports 5300').length, 1);
    assert.equal(lines(text, '-A ORC-REFUSE -p udp', '--dport 5300', '! --src-type LOCAL -j DROP').length, 1);
  });
});

/** Chains as the kernel has them: it refuses jumps to chains that do not exist, and to delete chains that others jump to. */
class Chains {
  readonly #rules = new Map<string, string[]>();

  get names(): string[] {
    return [...this.#rules.keys()];
  }

  rulesOf(chain: string): readonly string[] {
    return this.#rules.get(chain) ?? [];
  }

  apply(part: string): void {
    const declared = lines(part, ' - [0:0]');
    assert.ok(declared.length <= CHAINS_PER_PART + 2, 'and those of the filter table');
    for (const line of part.split('\n')) {
      const [verb = '', chain = ''] = line.split(' ');
      if (verb.startsWith(':')) this.#rules.set(verb.slice(1), []);
      if (verb === '-A') this.#append(chain, line);
      if (verb === '-X') this.#delete(chain);
    }
  }

  #append(chain: string, rule: string): void {
    const target = / -j (ORC-\S+)/.exec(rule)?.[1];
    assert.ok(target === undefined || this.#rules.has(target), `${rule}: the target does not exist`);
    this.#rules.get(chain)?.push(rule);
  }

  #delete(chain: string): void {
    assert.deepEqual(this.rulesOf(chain), []);
    assert.ok(this.#rules.delete(chain));
    const jumps = [...this.#rules.values()].flat().filter((rule) => rule.endsWith(` -j ${chain}`));
    assert.deepEqual(jumps, []);
  }
}
