/**
 * Clients of every protocol version open streams: directly to the agent, through the API server's exec, and through
 * `nodes/proxy`. The test takes the place of the container.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { request as httpsRequest } from 'node:https';
import { createServer, type AddressInfo, connect, type Server } from 'node:net';
import { type Duplex, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { after, before, describe, it } from 'node:test';
import { createDialer } from '../../../../../api/http/dialer.ts';
import { createWebSocketStream, WebSocket } from 'ws';
import type { PodHost } from '../../../../../agent/server/pod-host.ts';
import type { StreamIo } from '../../../../../agent/runtime/runtime.ts';
import { SpdyConnection } from '../../../../../agent/base/protocols/spdy/connection.ts';
import type { SpdyStream } from '../../../../../agent/base/protocols/spdy/stream.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import type { ConnectRequest, ConnectTarget, Rest } from '../../../../../controlplane/model/rest.ts';
import { strippedHeaders } from '../../../../../controlplane/server/connect/forwarded-headers.ts';
import { createConnector } from '../../../../../controlplane/server/connect/connector.ts';
import { FakeCatalog, fakeInfo } from '../../../../fakes/fake-catalog.ts';
import { type FakeServer, startFakeServer } from '../../../../fakes/fake-server.ts';
import { type ServerUnderTest, startServerUnderTest } from '../server-under-test.ts';

/** The maximum size of the input that waits in the agent for a slow container. */
const MAX_WAITING_BYTES = 3 << 20;
const ENOUGH_WAITING_BYTES = 50_000;

let mostWaiting = 0;
let abandoned = Promise.withResolvers<void>();

const host = {
  syncLoopHealth: () => '',
  devicePluginHealth: () => '',
  pods: () => [],
  runningContainer: async () => 'id',
  resolveSandbox: async () => 'sandbox',
  async exec(_id: string, [name, argument]: readonly string[], io: StreamIo): Promise<number> {
    const { stdin, stdout, stderr } = io;
    if (name === 'cat') for await (const chunk of stdin ?? []) stdout?.write(chunk);
    if (name === 'size')
      for await (const { width, height } of io.resize ?? []) return stop(stdout, `${width}x${height}`);
    if (name === 'exit') {
      stdout?.write('out');
      stderr?.write('err');
      return Number(argument);
    }
    if (name === 'hang') {
      await new Promise((resolve) => io.signal.addEventListener('abort', resolve, { once: true }));
      abandoned.resolve();
    }
    if (name === 'sum') {
      const hash = createHash('sha256');
      // Reading begins only when much input waits, and the client had enough time to send more than the limit.
      const waiting = (): number => (stdin as Readable).readableLength;
      for (let turns = 0; turns < 200; turns += waiting() < ENOUGH_WAITING_BYTES ? 0 : 1) {
        await new Promise((resolve) => setImmediate(resolve));
        mostWaiting = Math.max(mostWaiting, waiting());
      }
      for await (const chunk of stdin ?? []) hash.update(chunk);
      stdout?.write(hash.digest('hex'));
    }
    return 0;
  },
  async attach(_id: string, io: StreamIo): Promise<void> {
    io.stdout?.write('attached');
  },
  async portForward(_id: string, port: number): Promise<NodeJS.ReadWriteStream> {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    // Runtimes add listeners to the streams that they return, as Docker's does.
    socket.once('close', () => undefined).once('close', () => undefined);
    await once(socket, 'connect');
    return socket;
  },
} as unknown as PodHost;

const stop = (stdout: NodeJS.WritableStream | undefined, text: string): number => {
  stdout?.write(text);
  return 0;
};

let agent: ServerUnderTest;
let impatient: ServerUnderTest;
let api: FakeServer;
let echo: Server;

/** Returns an endpoint of the API server that leads to the agent, like pods/exec and nodes/proxy. */
function row(resource: string, name: string, path: (request: ConnectRequest) => string): Rest {
  return {
    info: fakeInfo(resource, 'Any', { namespaced: resource !== 'nodes' }),
    subresource: { name, group: '', version: 'v1', kind: 'Any', verbs: ['get', 'create'] },
    connect: async (
      _context: unknown,
      _namespace: string,
      _name: string,
      request: ConnectRequest,
    ): Promise<ConnectTarget> => ({
      origin: { secure: true, host: '127.0.0.1', port: agent.port },
      target: `${path(request)}?${request.query.toString()}`,
      purpose: 'proxy' as const,
      name: 'service/ns/target',
      plain: false,
    }),
  };
}

before(async () => {
  agent = await startServerUnderTest({ host });
  impatient = await startServerUnderTest({ host, idleTimeoutMs: 100 });
  const catalog = new FakeCatalog([
    row('pods', 'exec', () => '/exec/ns/p/c'),
    row('pods', 'portforward', () => '/portForward/ns/p'),
    row('nodes', 'proxy', ({ path }) => path),
  ]);
  const connector = createConnector({
    dialer: createDialer({ loopbackTargets: new Set(['service/ns/target']) }),
    stripped: strippedHeaders({ names: ['X-Foo-User'], prefixes: ['X-Foo-Extra-'] }),
    agentCredentials: () => undefined,
    clock: systemClock,
    logger: silentLogger,
  });
  api = await startFakeServer(catalog, { connector });
  echo = createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket));
  echo.listen(0, '127.0.0.1');
  await once(echo, 'listening');
});
after(async () => {
  await Promise.all([agent.close(), impatient.close(), api.close()]);
  echo.close();
});

interface Way {
  readonly name: string;
  readonly port: () => number;
  readonly path: (action: string) => string;
}

const straight: Way = {
  name: 'straight to the agent',
  port: () => agent.port,
  path: (action) => (action === 'portForward' ? '/portForward/ns/p' : `/${action}/ns/p/c`),
};
const throughPods: Way = {
  name: 'through pods/exec',
  port: () => api.port,
  path: (action) => `/api/v1/namespaces/ns/pods/p/${action.toLowerCase()}`,
};
const throughNodes: Way = {
  name: 'through nodes/proxy',
  port: () => api.port,
  path: (action) => `/api/v1/nodes/n/proxy${straight.path(action)}`,
};
const ways = [straight, throughPods, throughNodes];

const AUTHORIZATION = { authorization: 'Bearer ann' };

interface Command {
  readonly command: readonly string[];
  readonly stdin?: Readable | string;
  readonly size?: { readonly Width: number; readonly Height: number };
}

interface Outcome {
  readonly stdout: string;
  readonly stderr: string;
  readonly error: string;
}

function queryOf({ command, stdin, size }: Command): string {
  const query = new URLSearchParams({ output: '1' });
  if (size === undefined) query.set('error', '1');
  else query.set('tty', '1');
  if (stdin !== undefined) query.set('input', '1');
  for (const word of command) query.append('command', word);
  return query.toString();
}

const sourceOf = ({ stdin = '' }: Command): Readable =>
  typeof stdin === 'string' ? Readable.from([Buffer.from(stdin)]) : stdin;

/** Resolves to the upgraded socket and the data that came with the response. */
function upgrade(way: Way, target: string, protocol: string): Promise<readonly [Duplex, Buffer]> {
  return new Promise((resolve, reject) => {
    const request = httpsRequest({
      host: '127.0.0.1',
      port: way.port(),
      path: target,
      method: 'POST',
      agent: false,
      rejectUnauthorized: false,
      headers: { ...AUTHORIZATION, Connection: 'Upgrade', Upgrade: 'SPDY/3.1', 'X-Stream-Protocol-Version': protocol },
    });
    request.once('upgrade', (response, socket, head) => {
      assert.equal(response.headers['x-stream-protocol-version'], protocol);
      socket.on('error', () => undefined);
      resolve([socket, head]);
    });
    request.once('response', (response) => reject(new Error(`answered ${response.statusCode}`)));
    request.once('error', reject);
    request.end();
  });
}

async function textOf(stream: Readable | undefined): Promise<string> {
  let text = '';
  for await (const chunk of stream ?? []) text += String(chunk);
  return text;
}

async function bySpdy(way: Way, protocol: string, wanted: Command): Promise<Outcome> {
  const [socket, head] = await upgrade(way, `${way.path('exec')}?${queryOf(wanted)}`, protocol);
  const connection = new SpdyConnection(socket, head);
  const open = (streamtype: string): Promise<SpdyStream> => connection.open({ streamtype });
  const error = await open('error');
  const stdin = wanted.stdin === undefined ? undefined : await open('stdin');
  const stdout = await open('stdout');
  const stderr = wanted.size === undefined ? await open('stderr') : undefined;
  if (wanted.size !== undefined) (await open('resize')).write(JSON.stringify(wanted.size));
  const feeding = stdin === undefined ? undefined : pipeline(sourceOf(wanted), stdin);
  const [out, err, outcome] = await Promise.all([textOf(stdout), textOf(stderr), textOf(error), feeding]);
  connection.close();
  return { stdout: out, stderr: err, error: outcome };
}

async function byWebSocket(way: Way, protocol: string, wanted: Command): Promise<Outcome> {
  const url = `wss://127.0.0.1:${way.port()}${way.path('exec')}?${queryOf(wanted)}`;
  const socket = new WebSocket(url, protocol === '' ? [] : protocol, {
    rejectUnauthorized: false,
    headers: AUTHORIZATION,
  });
  const isBase64 = protocol.includes('base64');
  const channels = ['', '', '', '', ''];
  socket.on('message', (data: Buffer) => {
    const channel = isBase64 ? Number(String.fromCharCode(data[0] ?? 0)) : (data[0] ?? 0);
    channels[channel] += isBase64
      ? Buffer.from(data.toString('latin1', 1), 'base64').toString()
      : data.toString('utf8', 1);
  });
  const closed = once(socket, 'close');
  await once(socket, 'open');
  const send = (channel: number, payload: Buffer): Promise<void> =>
    new Promise((resolve) => {
      const message = isBase64
        ? `${channel}${payload.toString('base64')}`
        : Buffer.concat([Buffer.from([channel]), payload]);
      socket.send(message, () => resolve());
    });
  if (wanted.size !== undefined) await send(4, Buffer.from(JSON.stringify(wanted.size)));
  if (wanted.stdin !== undefined) {
    for await (const part of sourceOf(wanted)) await send(0, part as Buffer);
    if (protocol.startsWith('v5')) socket.send(Buffer.from([255, 0]));
  }
  await closed;
  return { stdout: channels[1] ?? '', stderr: channels[2] ?? '', error: channels[3] ?? '' };
}

const exitCodeOf = (error: string): string | undefined =>
  (JSON.parse(error) as { details?: { causes: { message: string }[] } }).details?.causes[0]?.message;

const SPDY = ['v4.channel.k8s.io', 'v3.channel.k8s.io', 'v2.channel.k8s.io', 'channel.k8s.io'] as const;
const WEBSOCKET = [
  'v5.channel.k8s.io',
  'v4.channel.k8s.io',
  'v4.base64.channel.k8s.io',
  'channel.k8s.io',
  'base64.channel.k8s.io',
  '',
] as const;

for (const way of ways) {
  describe(`a command ${way.name}`, () => {
    for (const [kind, protocols, run] of [
      ['SPDY', SPDY, bySpdy],
      ['WebSocket', WEBSOCKET, byWebSocket],
    ] as const) {
      for (const protocol of protocols) {
        it(`over ${kind} ${protocol} reports both outputs and the exit code`, async () => {
          const outcome = await run(way, protocol, { command: ['exit', '7'] });
          assert.deepEqual([outcome.stdout, outcome.stderr], ['out', 'err']);
          if (/^v[45]/.test(protocol)) assert.equal(exitCodeOf(outcome.error), '7');
          else assert.match(outcome.error, /command terminated with exit code 7/);
        });
      }
    }
    for (const [kind, run, protocol] of [
      ['SPDY', bySpdy, 'v4.channel.k8s.io'],
      ['WebSocket', byWebSocket, 'v5.channel.k8s.io'],
    ] as const) {
      it(`over ${kind} reads its input to the end, and answers then`, async () => {
        const outcome = await run(way, protocol, { command: ['cat'], stdin: 'hello' });
        assert.deepEqual([outcome.stdout, JSON.parse(outcome.error)], ['hello', { metadata: {}, status: 'Success' }]);
      });
      it(`over ${kind} receives the size of the terminal`, async () => {
        const outcome = await run(way, protocol, { command: ['size'], size: { Width: 101, Height: 33 } });
        assert.equal(outcome.stdout, '101x33');
      });
    }
  });

  describe(`a port ${way.name}`, () => {
    const warned: string[] = [];
    const onWarning = ({ name }: Error): void => void warned.push(name);
    before(() => void process.on('warning', onWarning));
    after(() => {
      process.off('warning', onWarning);
      // Node.js warns if there are more listeners on a connection than it considers plausible.
      assert.equal(warned.includes('MaxListenersExceededWarning'), false);
    });
    const target = (): string => `${way.path('portForward')}?port=${(echo.address() as AddressInfo).port}`;
    const talk = async (connection: SpdyConnection): Promise<void> => {
      const port = String((echo.address() as AddressInfo).port);
      const pair = async (requestid: string): Promise<string> => {
        const error = await connection.open({ streamtype: 'error', port, requestid });
        const data = await connection.open({ streamtype: 'data', port, requestid });
        error.end();
        data.end(`ping ${requestid}`);
        const [text, problem] = await Promise.all([textOf(data), textOf(error)]);
        assert.equal(problem, '');
        return text;
      };
      assert.deepEqual(await Promise.all([pair('0'), pair('1')]), ['ping 0', 'ping 1']);
      connection.close();
    };
    it('is forwarded over SPDY, several connections at once', async () => {
      const [socket, head] = await upgrade(way, target(), 'portforward.k8s.io');
      await talk(new SpdyConnection(socket, head));
    });
    it('is forwarded over SPDY in a WebSocket', async () => {
      const protocol = 'SPDY/3.1+portforward.k8s.io';
      const socket = new WebSocket(`wss://127.0.0.1:${way.port()}${way.path('portForward')}`, {
        rejectUnauthorized: false,
        headers: { ...AUTHORIZATION, 'Sec-WebSocket-Protocol': protocol },
      });
      // This library expects no protocol header in this case, but kubectl sends it.
      socket.on('upgrade', ({ headers }) => {
        assert.equal(headers['sec-websocket-protocol'], protocol);
        delete headers['sec-websocket-protocol'];
      });
      await once(socket, 'open');
      const stream = createWebSocketStream(socket);
      stream.on('error', () => undefined);
      await talk(new SpdyConnection(stream, Buffer.alloc(0)));
    });
    for (const protocol of ['v4.channel.k8s.io', 'v4.base64.channel.k8s.io']) {
      it(`is forwarded over the channels of ${protocol}`, async () => {
        const socket = new WebSocket(`wss://127.0.0.1:${way.port()}${target()}`, protocol, {
          rejectUnauthorized: false,
          headers: AUTHORIZATION,
        });
        const isBase64 = protocol.includes('base64');
        let text = '';
        const came = Promise.withResolvers<void>();
        socket.on('message', (message: Buffer) => {
          const data = isBase64 ? Buffer.from(message.toString('latin1', 1), 'base64') : message.subarray(1);
          const channel = isBase64 ? (message[0] ?? 0) - 48 : message[0];
          if (channel === 0) text += data.toString('latin1');
          if (text.endsWith('ping')) came.resolve();
        });
        await once(socket, 'open');
        socket.send(isBase64 ? `0${Buffer.from('ping').toString('base64')}` : Buffer.from('\0ping'));
        await came.promise;
        const announced = Buffer.alloc(2);
        announced.writeUInt16LE((echo.address() as AddressInfo).port);
        assert.equal(text, `${announced.toString('latin1')}ping`);
        socket.terminate();
      });
    }
  });
}

describe('streams', () => {
  it('attaches to a running container', async () => {
    const [socket, head] = await upgrade(straight, `${straight.path('attach')}?output=1`, 'v4.channel.k8s.io');
    const connection = new SpdyConnection(socket, head);
    const error = await connection.open({ streamtype: 'error' });
    const stdout = await connection.open({ streamtype: 'stdout' });
    assert.deepEqual(await Promise.all([textOf(stdout), textOf(error)]), [
      'attached',
      JSON.stringify({ metadata: {}, status: 'Success' }),
    ]);
    connection.close();
  });

  for (const [kind, run, protocol] of [
    ['SPDY', bySpdy, 'v4.channel.k8s.io'],
    ['WebSocket', byWebSocket, 'v5.channel.k8s.io'],
  ] as const) {
    it(`over ${kind} hold a client back whose container reads slowly, and change no byte of 50 MB`, async () => {
      const hash = createHash('sha256');
      const block = Buffer.alloc(1 << 16);
      const input = Readable.from(
        (function* () {
          for (let index = 0; index < 800; index++) {
            for (let at = 0; at < block.length; at += 4)
              block.writeUInt32LE((index * 2654435761 + at * 40503) >>> 0, at);
            hash.update(block);
            yield Buffer.from(block);
          }
        })(),
      );
      mostWaiting = 0;
      const outcome = await run(straight, protocol, { command: ['sum'], stdin: input });
      assert.equal(outcome.stdout, hash.digest('hex'));
      assert.equal(mostWaiting < MAX_WAITING_BYTES, true, `${mostWaiting} bytes waited`);
    });
  }

  it('end for the container when the client disconnects', async () => {
    for (const way of ways) {
      abandoned = Promise.withResolvers();
      const [socket, head] = await upgrade(way, `${way.path('exec')}?output=1&command=hang`, 'v4.channel.k8s.io');
      const connection = new SpdyConnection(socket, head);
      await connection.open({ streamtype: 'error' });
      await connection.open({ streamtype: 'stdout' });
      socket.destroy();
      await abandoned.promise;
    }
  });

  it('that carry nothing for too long are ended', async () => {
    const way = { ...straight, port: () => impatient.port };
    abandoned = Promise.withResolvers();
    const [socket, head] = await upgrade(way, `${way.path('exec')}?output=1&command=hang`, 'v4.channel.k8s.io');
    const connection = new SpdyConnection(socket, head);
    await connection.open({ streamtype: 'error' });
    await connection.open({ streamtype: 'stdout' });
    await Promise.all([connection.closed, abandoned.promise]);
  });

  it('are independent of each other, fifty at once', async () => {
    const all = Array.from({ length: 50 }, (_unused, index) => {
      const wanted = { command: ['exit', String(index + 1)] };
      return index % 2 === 0
        ? bySpdy(throughPods, 'v4.channel.k8s.io', wanted)
        : byWebSocket(throughPods, 'v5.channel.k8s.io', wanted);
    });
    const codes = (await Promise.all(all)).map(({ error }) => Number(exitCodeOf(error)));
    assert.deepEqual(
      codes,
      Array.from({ length: 50 }, (_unused, index) => index + 1),
    );
  });
});
