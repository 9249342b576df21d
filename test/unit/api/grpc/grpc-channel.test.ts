/** Tests the gRPC client with correct and with malicious servers. */
import assert from 'node:assert/strict';
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { test, type TestContext } from 'node:test';
import { gzipSync } from 'node:zlib';
import { connectGrpc } from '../../../../api/grpc/grpc-client.ts';
import { type GrpcChannel, openChannel } from '../../../../api/grpc/grpc-channel.ts';
import { GrpcError } from '../../../../api/grpc/grpc-error.ts';
import { join } from 'node:path';
import { temporaryFolder } from '../../../temporary-folder.ts';

/** A time limit far above the duration of any call. */
const PATIENCE_MS = 20_000;

type Answer = (stream: ServerHttp2Stream) => void;

async function serve(t: TestContext, answer: Answer, path?: string): Promise<string> {
  const server: Http2Server = createHttp2Server();
  server.on('stream', (stream: ServerHttp2Stream) => {
    stream.on('error', () => undefined);
    answer(stream);
  });
  const sessions = new Set<{ destroy(): void }>();
  server.on('session', (session) => {
    session.on('error', () => undefined);
    sessions.add(session);
  });
  t.after(() => {
    for (const session of sessions) session.destroy();
    server.close();
  });
  await new Promise<void>((resolve) =>
    path === undefined ? server.listen(0, '127.0.0.1', resolve) : server.listen(path, resolve),
  );
  return path === undefined ? `127.0.0.1:${(server.address() as AddressInfo).port}` : `unix:${path}`;
}

async function channelTo(t: TestContext, target: string, largestMessageBytes?: number): Promise<GrpcChannel> {
  const channel = await openChannel({ target, ...(largestMessageBytes === undefined ? {} : { largestMessageBytes }) });
  t.after(() => channel.close());
  return channel;
}

const OK = { ':status': 200, 'content-type': 'application/grpc' };

/** Returns a message with gRPC's prefix of five bytes. */
function framed(message: Buffer, options: { readonly compressed?: boolean; readonly claims?: number } = {}): Buffer {
  const head = Buffer.alloc(5);
  head[0] = options.compressed === true ? 1 : 0;
  head.writeUInt32BE(options.claims ?? message.length, 1);
  return Buffer.concat([head, message]);
}

/** Returns a server that responds with messages, a status and a text. */
function answering(messages: readonly Buffer[], trailers: Record<string, string>, headers = {}): Answer {
  return (stream) => {
    stream.respond({ ...OK, ...headers }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers(trailers));
    for (const message of messages) stream.write(message);
    stream.end();
  };
}

async function failure(promise: Promise<unknown>): Promise<GrpcError> {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof GrpcError, String(error));
    return error;
  }
  return assert.fail('the call succeeded');
}

test('a call resolves to the message of the answer', async (t) => {
  const target = await serve(t, answering([framed(Buffer.from('hello'))], { 'grpc-status': '0' }));
  const answer = await (await channelTo(t, target)).call('/a/B', Buffer.alloc(0), { timeoutMs: PATIENCE_MS });
  assert.equal(answer.toString(), 'hello');
});

test('a status becomes an error with the name of the status and the text of the server', async (t) => {
  const target = await serve(t, answering([], { 'grpc-status': '5', 'grpc-message': 'no such%20thing' }));
  const error = await failure((await channelTo(t, target)).call('/a/B', Buffer.alloc(0), { timeoutMs: PATIENCE_MS }));
  assert.deepEqual(
    [error.status, error.details, error.message],
    ['NotFound', 'no such thing', 'rpc error: code = NotFound desc = no such thing'],
  );
});

test('the text of a status is cut off', async (t) => {
  const target = await serve(t, answering([], { 'grpc-status': '2', 'grpc-message': 'x'.repeat(30_000) }));
  const error = await failure((await channelTo(t, target)).call('/a/B', Buffer.alloc(0), { timeoutMs: PATIENCE_MS }));
  assert.deepEqual([error.status, error.details.length], ['Unknown', 8192]);
});

test('a call to a server that never responds fails at the deadline', async (t) => {
  const target = await serve(t, () => undefined);
  const error = await failure((await channelTo(t, target)).call('/a/B', Buffer.alloc(0), { timeoutMs: 200 }));
  assert.equal(error.status, 'DeadlineExceeded');
});

test('a call to a server that sends a message byte by byte fails at the deadline', async (t) => {
  const target = await serve(t, (stream) => {
    stream.respond(OK);
    stream.write(framed(Buffer.alloc(0), { claims: 1000 }));
    const drip = setInterval(() => (stream.destroyed ? clearInterval(drip) : stream.write('x')), 10);
    stream.on('close', () => clearInterval(drip));
  });
  const error = await failure((await channelTo(t, target)).call('/a/B', Buffer.alloc(0), { timeoutMs: 300 }));
  assert.equal(error.status, 'DeadlineExceeded');
});

test('a port that speaks another protocol, or nothing at all, is no connection', async (t) => {
  for (const greeting of ['', 'SSH-2.0-OpenSSH_9\r\n', 'HTTP/1.1 400 Bad Request\r\n\r\n']) {
    const server = createTcpServer((socket) => {
      t.after(() => socket.destroy());
      socket.on('error', () => undefined).write(greeting);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    t.after(() => server.close());
    const channel = await channelTo(t, `127.0.0.1:${(server.address() as AddressInfo).port}`);
    const error = await failure(channel.call('/a/B', Buffer.alloc(0), { timeoutMs: 500 }));
    assert.ok(['DeadlineExceeded', 'Unavailable'].includes(error.status), `${greeting}: ${error.message}`);
    channel.close();
  }
});

test('a message above the limit is refused by its actual, announced or decompressed size', async (t) => {
  const big = Buffer.alloc(200_000);
  const packed = framed(gzipSync(big), { compressed: true });
  assert.ok(packed.length < 1000);
  for (const [what, answer] of [
    ['comes', answering([framed(big)], { 'grpc-status': '0' })],
    ['is claimed', answering([framed(Buffer.alloc(10), { claims: 0xffffffff })], { 'grpc-status': '0' })],
    ['is unpacked', answering([packed], { 'grpc-status': '0' }, { 'grpc-encoding': 'gzip' })],
  ] as const) {
    const channel = await channelTo(t, await serve(t, answer), 100_000);
    const error = await failure(channel.call('/a/B', Buffer.alloc(0), { timeoutMs: PATIENCE_MS }));
    assert.equal(error.status, 'ResourceExhausted', `${what}: ${error.message}`);
  }
});

test('more headers than a server needs end the call', async (t) => {
  const many = Object.fromEntries(Array.from({ length: 2000 }, (_, at) => [`x-${at}`, 'y'.repeat(100)]));
  const target = await serve(t, (stream) => {
    try {
      stream.respond({ ...OK, ...many });
      stream.end(framed(Buffer.from('hello')));
    } catch {
      stream.destroy();
    }
  });
  const started = performance.now();
  await failure((await channelTo(t, target)).call('/a/B', Buffer.alloc(0), { timeoutMs: PATIENCE_MS }));
  assert.ok(performance.now() - started < PATIENCE_MS);
});

test('two messages as the answer to one call are an error', async (t) => {
  const target = await serve(
    t,
    answering([framed(Buffer.from('a')), framed(Buffer.from('b'))], { 'grpc-status': '0' }),
  );
  const channel = await channelTo(t, target);
  const outcome = await channel.call('/a/B', Buffer.alloc(0), { timeoutMs: 500 }).then(
    (answer) => answer.toString(),
    (error: unknown) => error,
  );
  assert.ok(outcome instanceof GrpcError, String(outcome));
});

test('a call ends with its signal', async (t) => {
  const channel = await channelTo(t, await serve(t, () => undefined));
  const abort = new AbortController();
  const running = channel.call('/a/B', Buffer.alloc(0), { timeoutMs: 0, signal: abort.signal });
  setTimeout(() => abort.abort(), 50);
  assert.equal((await failure(running)).status, 'Canceled');
  assert.equal(
    (await failure(channel.call('/a/B', Buffer.alloc(0), { timeoutMs: 0, signal: abort.signal }))).status,
    'Canceled',
  );
});

test('a stream passes messages on until its signal aborts', async (t) => {
  const target = await serve(t, (stream) => {
    stream.respond(OK);
    for (const text of ['a', 'b']) stream.write(framed(Buffer.from(text)));
  });
  const abort = new AbortController();
  const got: string[] = [];
  await (
    await channelTo(t, target)
  ).stream(
    '/a/B',
    Buffer.alloc(0),
    (message) => {
      got.push(message.toString());
      if (got.length === 2) abort.abort();
    },
    { signal: abort.signal },
  );
  assert.deepEqual(got, ['a', 'b']);
});

test('an error that the receiver of a stream throws ends the call, which rejects with it', async (t) => {
  let closed: () => void = () => undefined;
  const isClosed = new Promise<void>((resolve) => (closed = resolve));
  const target = await serve(t, (stream) => {
    stream.on('close', () => closed());
    stream.respond(OK);
    stream.write(framed(Buffer.from('a')));
  });
  const channel = await channelTo(t, target);
  const refuse = (): void => {
    throw new TypeError('not mine');
  };
  await assert.rejects(
    channel.stream('/a/B', Buffer.alloc(0), refuse, { signal: new AbortController().signal }),
    /^TypeError: not mine$/,
  );
  await isClosed;
});

test('bytes that are no message of the table are an error of the call', async (t) => {
  const directory = temporaryFolder();
  const socket = join(directory, 's');
  // The length of a field exceeds that of the message.
  await serve(t, answering([framed(Buffer.from([0x0a, 0x7f]))], { 'grpc-status': '0' }), socket);
  const client = await connectGrpc({
    socket,
    messages: { Request: {}, Answer: { name: '1 string' } },
    methods: { get: ['a.B', 'Request', 'Answer'] },
  });
  t.after(() => client.close());
  const error = await failure(client.call('get', {}, { timeoutMs: PATIENCE_MS }));
  assert.deepEqual([error.status, error.details], ['Internal', 'the response is not a valid Answer']);
});

/** Sets the wall clock, but not the clock that `performance` has had since the start of the process. */
function setClock(t: TestContext, byMs: number): void {
  const RealDate = Date;
  t.after(() => (globalThis.Date = RealDate));
  globalThis.Date = class extends RealDate {
    constructor(value?: number | string | Date) {
      super(value ?? RealDate.now() + byMs);
    }
    static override now(): number {
      return RealDate.now() + byMs;
    }
  } as DateConstructor;
}

for (const [what, byMs] of [
  ['forward, as on a host without a clock of its own once it hears of the time', 3_600_000],
  ['back', -3_600_000],
] as const)
  test(`calls keep their deadlines when the clock is set ${what}`, { timeout: 60_000 }, async (t) => {
    setClock(t, byMs);
    const answered = await channelTo(t, await serve(t, answering([framed(Buffer.from('ok'))], { 'grpc-status': '0' })));
    assert.equal(await answered.connected(PATIENCE_MS), true);
    assert.equal(String(await answered.call('/a.B/C', Buffer.alloc(0), { timeoutMs: PATIENCE_MS })), 'ok');
    const silent = await channelTo(t, await serve(t, () => undefined));
    await assert.rejects(
      silent.call('/a.B/C', Buffer.alloc(0), { timeoutMs: 50 }),
      (error) => error instanceof GrpcError && error.status === 'DeadlineExceeded',
    );
  });
