/** Tests health check node ports: the responses to load balancers, and that ports open and close with their services. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { afterEach, test } from 'node:test';
import { HealthCheckPorts } from '../../../../../agent/network/serviceproxy/health-check-ports.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';

const service = { namespace: 'shop', name: 'web' };
const warnings: unknown[] = [];
const ports = new HealthCheckPorts({
  clock: systemClock,
  logger: { ...silentLogger, warn: (fields) => void warnings.push(fields) },
});
afterEach(() => ports.close());

/** Returns a port that is not in use. */
async function freePort(): Promise<number> {
  const server = createServer();
  const port = await new Promise<number>((resolve) => {
    server.listen(0, () => resolve((server.address() as { readonly port: number }).port));
  });
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const ask = (port: number): Promise<Response> => fetch(`http://127.0.0.1:${port}/`);

test('a node with local endpoints is healthy, one without is not, and the weight is their number', async () => {
  const port = await freePort();
  await ports.keep([{ service, port, localEndpoints: 2 }]);
  const healthy = await ask(port);
  assert.deepEqual([healthy.status, healthy.headers.get('X-Load-Balancing-Endpoint-Weight')], [200, '2']);
  assert.deepEqual(await healthy.json(), { service, localEndpoints: 2, serviceProxyHealthy: true });

  await ports.keep([{ service, port, localEndpoints: 0 }]);
  const unhealthy = await ask(port);
  assert.deepEqual([unhealthy.status, unhealthy.headers.get('X-Load-Balancing-Endpoint-Weight')], [503, '0']);
  await unhealthy.body?.cancel();
});

test('a port closes with its service, and others stay open', async () => {
  const [first, second] = [await freePort(), await freePort()];
  await ports.keep([
    { service, port: first, localEndpoints: 1 },
    { service, port: second, localEndpoints: 1 },
  ]);
  await ports.keep([{ service, port: second, localEndpoints: 1 }]);
  await assert.rejects(ask(first));
  assert.equal((await ask(second)).status, 200);
});

test('a port that another process has is logged, tried again, and does not hold up others', async () => {
  const other = createServer();
  const taken = await new Promise<number>((resolve) => {
    other.listen(0, () => resolve((other.address() as { readonly port: number }).port));
  });
  const free = await freePort();
  const wanted = [
    { service, port: taken, localEndpoints: 1 },
    { service, port: free, localEndpoints: 1 },
  ];
  await ports.keep(wanted);
  assert.equal((await ask(free)).status, 200);
  assert.equal(warnings.length, 1);
  await new Promise((resolve) => other.close(resolve));
  await ports.keep(wanted);
  assert.equal((await ask(taken)).status, 200);
});

test('all ports together hold no more connections than they may', async (t) => {
  const limited = new HealthCheckPorts({ clock: systemClock, logger: silentLogger, maxConnections: 2 });
  t.after(() => limited.close());
  const [first, second] = [await freePort(), await freePort()];
  await limited.keep([
    { service, port: first, localEndpoints: 1 },
    { service, port: second, localEndpoints: 1 },
  ]);
  const sockets = [first, first, second].map((port) => connect(port, '127.0.0.1').resume());
  t.after(() => sockets.forEach((socket) => socket.destroy()));
  await Promise.any(sockets.map((socket) => once(socket, 'close')));
  assert.equal((await ask(first)).status, 200);
});
