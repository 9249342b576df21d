import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { status as grpcStatus } from '@grpc/grpc-js';
import { probeGrpc, probeHttp, probeTcp } from '../../../../../agent/pods/prober/probes.ts';
import { type HealthAnswer, serveGrpcHealth } from '../../../../fakes/grpc-health.ts';

async function serve(t: TestContext, handler: RequestListener): Promise<number> {
  const server = createServer(handler).listen(0, '127.0.0.1');
  t.after(() => server.close().closeAllConnections());
  await new Promise((resolve) => server.once('listening', resolve));
  return (server.address() as AddressInfo).port;
}

/** Returns a port on which nothing listens. */
async function closedPort(): Promise<number> {
  const server = createTcpServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const PATIENCE_MS = 30_000;
const ask = (port: number, path = '/', headers: { name: string; value: string }[] = [], timeoutMs = PATIENCE_MS) =>
  probeHttp({ scheme: 'http', host: '127.0.0.1', port, path, headers, timeoutMs, pod: 'a' });

describe('an HTTP probe', () => {
  for (const [code, result] of [
    [200, 'success'],
    [204, 'success'],
    [304, 'warning'],
    [404, 'failure'],
    [500, 'failure'],
  ] as const) {
    it(`takes ${code} as ${result}`, async (t) => {
      const port = await serve(t, (_request, response) => response.writeHead(code).end());
      const outcome = await ask(port);
      assert.equal(outcome.result, result);
      if (result === 'failure') assert.equal(outcome.output, `HTTP probe failed with statuscode: ${code}`);
    });
  }

  it('sends the headers that it is given over its own, the host too', async (t) => {
    let seen: IncomingMessage['headers'] = {};
    const port = await serve(t, (request, response) => {
      seen = request.headers;
      response.end();
    });
    await ask(port);
    assert.deepEqual([seen['user-agent'], seen.accept, seen.host], ['kube-probe/1.36', '*/*', `127.0.0.1:${port}`]);
    await ask(port, '/', [
      { name: 'Host', value: 'example.org' },
      { name: 'user-agent', value: 'mine' },
      { name: 'Accept', value: '' },
      { name: 'X-A', value: '1' },
      { name: 'X-A', value: '2' },
    ]);
    assert.deepEqual(
      [seen['user-agent'], seen.accept, seen.host, seen['x-a']],
      ['mine', undefined, 'example.org', '1, 2'],
    );
  });

  it('sends headers with the names of members that every object has', async (t) => {
    let seen: IncomingMessage['headers'] = {};
    const port = await serve(t, (request, response) => {
      seen = request.headers;
      response.end();
    });
    const outcome = await ask(port, '/', [
      { name: 'constructor', value: '1' },
      { name: 'toString', value: '2' },
    ]);
    assert.equal(outcome.result, 'success', outcome.output);
    assert.deepEqual([Object.hasOwn(seen, 'constructor'), seen['tostring']], [true, '2']);
  });

  it('follows redirects on its host, and ten at most', async (t) => {
    const port = await serve(t, (request, response) => {
      const left = Number(new URL(request.url ?? '/', 'http://x').searchParams.get('left'));
      if (left === 0) response.end('there');
      else response.writeHead(302, { Location: `/?left=${left - 1}` }).end();
    });
    assert.deepEqual(await ask(port, '/?left=10'), { result: 'success', output: 'there' });
    const tooMany = await ask(port, '/?left=11');
    assert.equal(tooMany.result, 'failure');
    assert.match(tooMany.output, /stopped after 10 redirects$/);
  });

  it('is content with a redirect to another host, with a warning', async (t) => {
    const port = await serve(t, (_request, response) =>
      response.writeHead(301, { Location: 'http://elsewhere.invalid/' }).end('moved'),
    );
    assert.deepEqual(await ask(port), {
      result: 'warning',
      output: 'Probe terminated redirects, Response body: moved',
    });
  });

  it('fails if nothing listens, if the server does not respond, and if it closes the connection', async (t) => {
    const closed = await closedPort();
    assert.deepEqual(await ask(closed), {
      result: 'failure',
      output: `Get "http://127.0.0.1:${closed}/": dial tcp 127.0.0.1:${closed}: connect: connection refused`,
    });
    const silent = await serve(t, () => undefined);
    assert.deepEqual(await ask(silent, '/x', [], 20), {
      result: 'failure',
      output: `Get "http://127.0.0.1:${silent}/x": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`,
    });
    const rude = await serve(t, (request) => request.socket.destroy());
    assert.deepEqual(await ask(rude), { result: 'failure', output: `Get "http://127.0.0.1:${rude}/": EOF` });
  });

  it('shows both ends of a connection that the server resets', async (t) => {
    const server = createTcpServer((socket) => socket.once('data', () => socket.resetAndDestroy())).listen(
      0,
      '127.0.0.1',
    );
    t.after(() => server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as AddressInfo;
    const { result, output } = await ask(port);
    assert.equal(result, 'failure');
    assert.match(
      output,
      new RegExp(
        `^Get "http://127\\.0\\.0\\.1:${port}/": read tcp 127\\.0\\.0\\.1:\\d+->127\\.0\\.0\\.1:${port}: read: connection reset by peer$`,
      ),
    );
  });

  it('errors if a response does not come to its end, so that it does not count', async (t) => {
    const begin = (response: ServerResponse): void =>
      void response.writeHead(200, { 'Content-Length': 10 }).write('begin');
    const slow = await serve(t, (_request, response) => begin(response));
    assert.deepEqual(await ask(slow, '/', [], 200), {
      result: 'errored',
      state: 'failure',
      output: 'context deadline exceeded (Client.Timeout or context cancellation while reading body)',
    });
    const short = await serve(t, (request, response) => {
      begin(response);
      setTimeout(() => request.socket.end(), 20);
    });
    assert.deepEqual(await ask(short), { result: 'errored', state: 'failure', output: 'unexpected EOF' });
  });

  it('reads no more of a long answer than it needs', async (t) => {
    const port = await serve(t, (_request, response) => {
      const more = (): void => {
        while (response.write('x'.repeat(1 << 16)));
      };
      response.on('drain', more);
      more();
    });
    const { result, output } = await ask(port);
    assert.deepEqual([result, output.length], ['success', 1024]);
  });
});

describe('a TCP probe', () => {
  it('succeeds if a server listens, and reports the error otherwise', async (t) => {
    const port = await serve(t, () => undefined);
    assert.deepEqual(await probeTcp('127.0.0.1', port, PATIENCE_MS), { result: 'success', output: '' });
    const closed = await closedPort();
    assert.deepEqual(await probeTcp('127.0.0.1', closed, PATIENCE_MS), {
      result: 'failure',
      output: `dial tcp 127.0.0.1:${closed}: connect: connection refused`,
    });
  });
});

describe('a gRPC probe', () => {
  async function serveHealth(t: TestContext, answer: HealthAnswer): Promise<number> {
    const { port, close } = await serveGrpcHealth('127.0.0.1', answer);
    t.after(close);
    return port;
  }

  it('calls the health service with the given name', async (t) => {
    const port = await serveHealth(t, (service) => (service === 'good' ? 1 : service === 'bad' ? 2 : 0));
    assert.deepEqual(await probeGrpc('127.0.0.1', port, 'good', PATIENCE_MS), {
      result: 'success',
      output: 'service healthy',
    });
    assert.deepEqual(await probeGrpc('127.0.0.1', port, 'bad', PATIENCE_MS), {
      result: 'failure',
      output: 'service unhealthy (responded with "NOT_SERVING")',
    });
    assert.deepEqual(await probeGrpc('127.0.0.1', port, '', PATIENCE_MS), {
      result: 'failure',
      output: 'service unhealthy (responded with "UNKNOWN")',
    });
  });

  it('reports errors of the service, and servers without one', async (t) => {
    const port = await serveHealth(t, () => ({ code: grpcStatus.NOT_FOUND, details: 'no such service' }));
    assert.deepEqual(await probeGrpc('127.0.0.1', port, 'x', PATIENCE_MS), {
      result: 'failure',
      output: 'error: health rpc probe failed: rpc error: code = NotFound desc = no such service',
    });
    const without = await serveHealth(t, () => ({ code: grpcStatus.UNIMPLEMENTED, details: 'unknown' }));
    assert.match(
      (await probeGrpc('127.0.0.1', without, '', PATIENCE_MS)).output,
      /^error: this server does not implement the grpc health protocol \(grpc\.health\.v1\.Health\): /,
    );
  });

  it('fails when its time is over where nobody listens', async () => {
    const port = await closedPort();
    assert.deepEqual(await probeGrpc('127.0.0.1', port, '', 100), {
      result: 'failure',
      output: `timeout: failed to connect service "127.0.0.1:${port}" within 0.1s: context deadline exceeded`,
    });
  });
});
