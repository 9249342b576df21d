import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { outdatedConnections, UdpConnections } from '../../../../../agent/network/serviceproxy/udp-connections.ts';
import { type Logger, silentLogger } from '../../../../../api/component/logger.ts';
import { until } from '../../../../until.ts';
import { servicePort } from './service-port.ts';

const [one, two] = [
  { ip: '10.0.0.1', port: 53 },
  { ip: '10.0.0.2', port: 53 },
];
const dns = (...cluster: (typeof one)[]) =>
  servicePort({ protocol: 'UDP', port: 53, nodePort: 30_053, externalIps: ['203.0.113.1'], cluster });
const texts = (before: ReturnType<typeof dns>[], after: ReturnType<typeof dns>[]): string[] =>
  outdatedConnections('IPv4', [{ before, after }]).map((args) => args.join(' '));

describe('outdated UDP connections', () => {
  it('are those of a service to an endpoint that it has no longer', () => {
    assert.deepEqual(texts([dns(one, two)], [dns(one)]), [
      '-D -f ipv4 -p udp --orig-dst 10.96.0.7 --orig-port-dst 53 --dst-nat 10.0.0.2 --reply-port-src 53',
      '-D -f ipv4 -p udp --orig-dst 203.0.113.1 --orig-port-dst 53 --dst-nat 10.0.0.2 --reply-port-src 53',
      '-D -f ipv4 -p udp --orig-port-dst 30053 --dst-nat 10.0.0.2 --reply-port-src 53',
    ]);
    assert.equal(texts([dns(one)], []).length, 3);
  });

  it('are all connections of a service that had no endpoint', () => {
    assert.deepEqual(texts([dns()], [dns(one)]), [
      '-D -f ipv4 -p udp --orig-dst 10.96.0.7 --orig-port-dst 53',
      '-D -f ipv4 -p udp --orig-dst 203.0.113.1 --orig-port-dst 53',
      '-D -f ipv4 -p udp --orig-port-dst 30053',
    ]);
    assert.equal(texts([], [dns(one)]).length, 3);
  });

  it('are those to the former port of an endpoint, when the target port of the service changes', () => {
    assert.deepEqual(texts([dns(one)], [dns({ ip: one.ip, port: 5353 })]), [
      '-D -f ipv4 -p udp --orig-dst 10.96.0.7 --orig-port-dst 53 --dst-nat 10.0.0.1 --reply-port-src 53',
      '-D -f ipv4 -p udp --orig-dst 203.0.113.1 --orig-port-dst 53 --dst-nat 10.0.0.1 --reply-port-src 53',
      '-D -f ipv4 -p udp --orig-port-dst 30053 --dst-nat 10.0.0.1 --reply-port-src 53',
    ]);
  });

  it('are all connections to a node port that a service with endpoints gets', () => {
    assert.deepEqual(texts([{ ...dns(one), nodePort: 0 }], [dns(one)]), ['-D -f ipv4 -p udp --orig-port-dst 30053']);
  });

  it('are none for more endpoints, and none of TCP', () => {
    assert.deepEqual(texts([dns(one)], [dns(one, two)]), []);
    assert.deepEqual(texts([servicePort({ cluster: [one] })], []), []);
  });

  it('are deleted one after the other, and their absence is no failure', async () => {
    const asked: string[] = [];
    const logged: unknown[] = [];
    const logger = { ...silentLogger, error: (fields: unknown) => logged.push(fields) } as unknown as Logger;
    const connections = new UdpConnections((args) => {
      asked.push(args.join(' '));
      return Promise.reject(Object.assign(new Error('0 flow entries have been deleted'), { code: 1 }));
    }, logger);
    connections.forget('IPv6', [{ before: [dns(one)], after: [] }]);
    await until('all deletions', () => asked.length === 3);
    assert.match(asked[0] ?? '', /^-D -f ipv6 /);
    assert.deepEqual(logged, []);
  });

  it('stay with one warning where the tool is missing', async () => {
    let [asked, warned] = [0, 0];
    const logger = { ...silentLogger, warn: () => (warned += 1) } as unknown as Logger;
    const connections = new UdpConnections(() => {
      asked += 1;
      return Promise.reject(Object.assign(new Error('spawn conntrack ENOENT'), { code: 'ENOENT' }));
    }, logger);
    connections.forget('IPv4', [{ before: [dns(one, two)], after: [] }]);
    await until('the warning', () => warned > 0);
    connections.forget('IPv4', [{ before: [dns(one)], after: [] }]);
    assert.deepEqual([asked, warned], [1, 1]);
  });
});
