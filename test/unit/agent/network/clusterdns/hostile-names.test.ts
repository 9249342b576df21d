/** Large services and malicious name servers do not block the agent. */
import assert from 'node:assert/strict';
import { createServer, type AddressInfo } from 'node:net';
import { it } from 'node:test';
import { type ClusterNames, clusterRecords, reverseRecords } from '../../../../../agent/network/clusterdns/records.ts';
import { askOverTcp } from '../../../../../agent/network/clusterdns/upstream.ts';
import type { EndpointSlice, Service } from '../../../../../api/kinds/kinds.ts';

const NAME = 'crowd.shop.svc.cluster.local';

for (const [name, type] of [
  [NAME, 'A'],
  [NAME, 'SRV'],
  [`_sql._tcp.${NAME}`, 'SRV'],
] as const)
  it(`a query ${type} ${name} reads no more endpoints of a crowded service than a response may have`, () => {
    const read = new Set<number>();
    const endpoints = Array.from({ length: 5000 }, (_, at) => ({
      get addresses() {
        read.add(at);
        return [`10.0.${at >> 8}.${at & 255}`];
      },
      hostname: `h${at}`,
    }));
    const slice = {
      addressType: 'IPv4',
      ports: [{ name: 'sql', port: 5432, protocol: 'TCP' }],
      endpoints,
    } as unknown as EndpointSlice;
    const service = { metadata: { name: 'crowd', namespace: 'shop' }, spec: { clusterIPs: ['None'] } };
    const names = {
      service: () => service as unknown as Service,
      slicesOf: () => [slice],
    } as unknown as ClusterNames;
    const found = clusterRecords({ name, type }, { domain: 'cluster.local', names, most: 80 });
    // One answer more than fits shows that the response is truncated.
    assert.equal(found?.answers.length, 81);
    assert.ok(read.size <= 82, `${read.size} endpoints`);
  });

for (const [what, name, type] of [
  ['the name of an endpoint', `h4999.${NAME}`, 'A'],
  ['a name that no endpoint has', `nobody.${NAME}`, 'A'],
  ['a port that no endpoint has', `_none._tcp.${NAME}`, 'SRV'],
] as const)
  it(`queries for ${what} of a crowded service visit its endpoints once at most`, () => {
    let read = 0;
    const endpoints = Array.from({ length: 5000 }, (_, at) => ({
      addresses: [`10.0.${at >> 8}.${at & 255}`],
      get hostname() {
        read += 1;
        return `h${at}`;
      },
    }));
    const ports = [{ name: 'sql', port: 5432, protocol: 'TCP' }];
    const slice = { addressType: 'IPv4', ports, endpoints } as unknown as EndpointSlice;
    const service = { metadata: { name: 'crowd', namespace: 'shop' }, spec: { clusterIPs: ['None'] } };
    const names = {
      service: () => service as unknown as Service,
      slicesOf: () => [slice],
    } as unknown as ClusterNames;
    for (let count = 0; count < 100; count++) {
      const found = clusterRecords({ name, type }, { domain: 'cluster.local', names, most: 80 });
      assert.equal(found?.answers.length, name.startsWith('h') ? 1 : undefined);
    }
    assert.ok(read <= 4 * endpoints.length, `${read} names read`);
  });

it('reverse queries for an address of thousands of slices visit each endpoint once at most', () => {
  let read = 0;
  const sliceAt = (at: number): EndpointSlice =>
    ({
      metadata: { namespace: 'shop', labels: { 'kubernetes.io/service-name': `s${at}` } },
      endpoints: Array.from({ length: 20 }, (_, last) => ({
        get addresses() {
          read += 1;
          return [last === 19 ? '10.0.0.7' : `10.1.0.${last}`];
        },
      })),
    }) as unknown as EndpointSlice;
  const slices = Array.from({ length: 500 }, (_, at) => sliceAt(at));
  const names = { serviceAt: () => undefined, slicesAt: () => slices } as unknown as ClusterNames;
  const name = '7.0.0.10.in-addr.arpa';
  const question = { name, type: 'PTR' };
  const zone = { domain: 'cluster.local', names };
  assert.equal(reverseRecords(question, zone)?.answers.length, 500);
  assert.equal(reverseRecords(question, { ...zone, most: 80 })?.answers.length, 81);
  assert.equal(read, 500 * 20);
});

it('a query to a name server that responds byte by byte fails at the timeout', async (t) => {
  const server = createServer((socket) => {
    socket.on('error', () => socket.destroy());
    socket.write(Buffer.from([0xff, 0xff]));
    const drip = setInterval(() => socket.write(Buffer.from([0])), 20);
    socket.once('close', () => clearInterval(drip));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const upstream = { address: '127.0.0.1', port: (server.address() as AddressInfo).port };
  const late = new Promise<string>((resolve) => setTimeout(() => resolve('still waiting'), 3_000).unref());
  const outcome = askOverTcp(upstream, Buffer.alloc(12), 200).then(
    () => 'answered',
    (error: Error) => error.message,
  );
  assert.match(await Promise.race([outcome, late]), /no answer in time/);
});
