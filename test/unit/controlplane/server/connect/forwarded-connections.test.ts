/** Tests the limit of connections to other servers, with a target that takes connections and never answers. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { createDialer } from '../../../../../api/http/dialer.ts';
import type { Rest } from '../../../../../controlplane/model/rest.ts';
import { createConnector } from '../../../../../controlplane/server/connect/connector.ts';
import { ForwardedConnections } from '../../../../../controlplane/server/connect/forwarded-connections.ts';
import { strippedHeaders } from '../../../../../controlplane/server/connect/forwarded-headers.ts';
import { FakeCatalog, fakeInfo } from '../../../../fakes/fake-catalog.ts';
import { type FakeServer, startFakeServer } from '../../../../fakes/fake-server.ts';
import { until } from '../../../../until.ts';

const HOST = '127.0.0.1';
const MOST = 3;
const PROXY = '/api/v1/namespaces/n/pods/p/proxy/';

interface Running {
  readonly fake: FakeServer;
  readonly sockets: Set<Socket>;
}

async function withTarget(run: (running: Running) => Promise<void>): Promise<void> {
  const sockets = new Set<Socket>();
  const target = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
    socket.resume();
  });
  await once(target.listen(0, HOST), 'listening');
  const { port } = target.address() as AddressInfo;
  const pods: Rest = {
    info: fakeInfo('pods', 'Pod'),
    subresource: { name: 'proxy', group: '', version: 'v1', kind: 'Pod', verbs: ['get', 'create'] },
    connect: async () => ({
      origin: { secure: false, host: HOST, port },
      target: '/',
      purpose: 'proxy',
      name: 'service/n/target',
      plain: false,
    }),
  };
  const connector = createConnector({
    dialer: createDialer({ loopbackTargets: new Set(['service/n/target']) }),
    stripped: strippedHeaders({ names: [], prefixes: [] }),
    agentCredentials: () => undefined,
    clock: systemClock,
    logger: silentLogger,
    connections: new ForwardedConnections(MOST),
  });
  const fake = await startFakeServer(new FakeCatalog([pods]), { connector });
  try {
    await run({ fake, sockets });
  } finally {
    for (const socket of sockets) socket.destroy();
    target.close();
    await fake.close();
  }
}

test('a user who opens thousands of requests to pods takes no descriptors beyond the limit, and yields to others', async () => {
  await withTarget(async ({ fake, sockets }) => {
    const statuses: number[] = [];
    const proxied = (user: string, at: number): void => {
      fake.request('GET', PROXY, { authorization: `Bearer ${user}` }).then(
        ({ status }) => (statuses[at] = status),
        () => undefined,
      );
    };
    for (let at = 0; at < MOST; at += 1) proxied('alice', at);
    await until('connections', () => sockets.size === MOST);
    for (let at = MOST; at < 20; at += 1) proxied('alice', at);
    await until(
      'refusals',
      () => statuses.slice(MOST).length === 17 && !statuses.slice(MOST).includes(undefined as never),
    );
    assert.deepEqual(new Set(statuses.slice(MOST)), new Set([429]));
    assert.equal(sockets.size, MOST);
    proxied('bob', 20);
    await until('the end of the newest request of alice', () => statuses[MOST - 1] === 429);
    await until('the connection of bob', () => sockets.size === MOST);
    assert.equal(statuses[0], undefined);
    assert.equal(statuses[20], undefined);
  });
});
