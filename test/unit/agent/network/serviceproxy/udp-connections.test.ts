import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  type Conntrack,
  deletionOf,
  frontendsOf,
  hostConntrack,
  UdpConnections,
} from '../../../../../agent/network/serviceproxy/udp-connections.ts';
import { type Logger, silentLogger } from '../../../../../api/component/logger.ts';
import { until } from '../../../../until.ts';
import { servicePort } from './service-port.ts';

const [one, two] = [
  { ip: '10.0.0.1', port: 53 },
  { ip: '10.0.0.2', port: 53 },
];
const dns = (...cluster: (typeof one)[]) =>
  servicePort({ protocol: 'UDP', port: 53, nodePort: 30_053, externalIps: ['203.0.113.1'], cluster });
const LOCAL = new Set(['192.0.2.1']);

/** Returns an entry as `conntrack -L` prints it: a client sends to `to`, and the responses come from `from`. */
const entry = (to: string, from: string, state = '[ASSURED]'): string => {
  const [address = '', port = ''] = to.split('#');
  const [place = '', placePort = ''] = from.split('#');
  return `udp      17 29 src=10.9.9.9 dst=${address} sport=40000 dport=${port} ${state} src=${place} dst=10.9.9.9 sport=${placePort} dport=40000 mark=0 use=1`;
};
const deletion = (line: string, ...ports: ReturnType<typeof dns>[]): string | undefined =>
  deletionOf(line, frontendsOf(ports), (address) => LOCAL.has(address))?.join(' ');

describe('outdated UDP connections', () => {
  it('are those of a service to an endpoint that does not serve, at each of its addresses', () => {
    for (const to of ['10.96.0.7#53', '203.0.113.1#53', '192.0.2.1#30053']) {
      const [address, port] = to.split('#');
      assert.equal(
        deletion(entry(to, '10.0.0.2#53'), dns(one)),
        `--orig-dst ${address} --orig-port-dst ${port} --reply-src 10.0.0.2 --reply-port-src 53`,
      );
      assert.equal(deletion(entry(to, '10.0.0.1#53'), dns(one)), undefined, 'those to an endpoint stay');
      assert.match(deletion(entry(to, '10.0.0.1#5353'), dns(one)) ?? '', /5353$/, 'another port of the endpoint');
    }
  });

  it('are those that were not translated, from the time when the service had no endpoint', () => {
    assert.equal(
      deletion(entry('10.96.0.7#53', '10.96.0.7#53', '[UNREPLIED]'), dns(one)),
      '--orig-dst 10.96.0.7 --orig-port-dst 53 --reply-src 10.96.0.7 --reply-port-src 53',
    );
  });

  it('are not those to other hosts on the number of a node port, nor those of a service without endpoints', () => {
    assert.equal(deletion(entry('198.51.100.1#30053', '198.51.100.1#30053'), dns(one)), undefined);
    assert.equal(deletion(entry('10.96.0.7#53', '10.0.0.2#53'), dns()), undefined);
    assert.equal(deletion(entry('10.96.0.7#80', '10.0.0.2#53'), dns(one)), undefined);
    assert.equal(deletion('conntrack v1.4.7 (conntrack-tools)', dns(one)), undefined);
  });

  it('are not those to endpoints that policies or topology leave out, or that terminate', () => {
    const port = { ...dns(one), serving: [one, two] };
    assert.equal(deletion(entry('10.96.0.7#53', '10.0.0.2#53'), port), undefined);
  });

  it('of IPv6 are found as well', () => {
    const six = servicePort({
      protocol: 'UDP',
      port: 53,
      clusterIp: 'fd96::a',
      cluster: [{ ip: 'fd98::1', port: 53 }],
    });
    assert.equal(
      deletion(entry('fd96::a#53', 'fd98::2#53'), six),
      '--orig-dst fd96::a --orig-port-dst 53 --reply-src fd98::2 --reply-port-src 53',
    );
  });
});

describe('the deletion of outdated UDP connections', () => {
  const cleaned = (tool: Conntrack, logger: Logger = silentLogger): UdpConnections =>
    new UdpConnections({ conntrack: tool, logger, localAddresses: () => LOCAL });

  it('reads the entries of the family once, and deletes those to one wrong place together', async () => {
    const asked: string[] = [];
    const connections = cleaned(async function* (args) {
      asked.push(args.join(' '));
      if (args[0] !== '-L') return;
      for (let client = 0; client < 100; client += 1) yield entry('10.96.0.7#53', '10.0.0.2#53');
      yield entry('10.96.0.7#53', '10.0.0.1#53');
    });
    for (let time = 0; time < 5; time += 1) connections.clean('IPv4', () => [dns(one)]);
    await until('the deletion', () => asked.length > 1);
    assert.deepEqual(asked, [
      '-L -f ipv4 -p udp',
      '-D -f ipv4 -p udp --orig-dst 10.96.0.7 --orig-port-dst 53 --reply-src 10.0.0.2 --reply-port-src 53',
    ]);
  });

  it('reads nothing where no service has UDP ports with endpoints', async () => {
    let asked = 0;
    const connections = cleaned(async function* () {
      asked += 1;
      yield '';
    });
    connections.clean('IPv4', () => [servicePort(), dns()]);
    connections.clean('IPv6', () => [dns(one)]);
    await until('the other family', () => asked > 0);
    assert.equal(asked, 1);
  });

  it('warns once where the tool is missing', async () => {
    let [asked, warned] = [0, 0];
    const logger = { ...silentLogger, warn: () => (warned += 1) } as unknown as Logger;
    const missing = hostConntrack(['/no/such/program']);
    const connections = cleaned((args) => {
      asked += 1;
      return missing(args);
    }, logger);
    connections.clean('IPv4', () => [dns(one)]);
    await until('the warning', () => warned > 0);
    connections.clean('IPv4', () => [dns(one)]);
    assert.deepEqual([asked, warned], [1, 1]);
  });

  it('logs what the tool says when it fails, and takes its exit code for no entries as success', async () => {
    const failures: string[] = [];
    const logger = {
      ...silentLogger,
      error: ({ err }: { err: Error }) => failures.push(String(err)),
    } as unknown as Logger;
    cleaned(hostConntrack(['sh', '-c', 'exit 1']), logger).clean('IPv4', () => [dns(one)]);
    cleaned(hostConntrack(['sh', '-c', 'echo no rights >&2; exit 2']), logger).clean('IPv4', () => [dns(one)]);
    await until('the failure', () => failures.length > 0);
    assert.match(failures.join(), /no rights/);
    assert.equal(failures.length, 1);
  });
});
