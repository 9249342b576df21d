/** The client's side of a runtime's streams against a server that behaves as containerd's does, and worse. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { PassThrough, type Duplex } from 'node:stream';
import { afterEach, describe, it } from 'node:test';
import { forwardRemotePort, runRemoteCommand } from '../../../../../agent/runtime/cri/remote-streams.ts';
import { RuntimeError } from '../../../../../agent/runtime/runtime.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { SpdyConnection, type SpdyStream } from '../../../../../agent/protocols/spdy/connection.ts';

type Streams = ReadonlyMap<string, SpdyStream>;

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** Serves one connection when the streams that `wanted` names are there. */
async function serve(
  wanted: readonly string[],
  run: (streams: Streams, connection: SpdyConnection, socket: Duplex) => Promise<void> | void,
): Promise<string> {
  server = createServer();
  server.on('upgrade', (_request, socket, head) => {
    socket.on('error', () => undefined);
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n');
    const streams = new Map<string, SpdyStream>();
    const connection = new SpdyConnection(socket, head, (stream) => {
      streams.set(stream.headers['streamtype'] ?? '', stream);
      if (wanted.every((type) => streams.has(type))) void run(streams, connection, socket);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/exec/token`;
}

const success = JSON.stringify({ metadata: {}, status: 'Success' });
const failure = (code: number): string =>
  JSON.stringify({
    metadata: {},
    status: 'Failure',
    reason: 'NonZeroExitCode',
    details: { causes: [{ reason: 'ExitCode', message: String(code) }] },
  });

const collect = (): { readonly stream: PassThrough; readonly text: () => string } => {
  const stream = new PassThrough();
  let text = '';
  stream.on('data', (chunk: Buffer) => (text += chunk.toString()));
  return { stream, text: () => text };
};

describe('a command over the streams of a runtime', () => {
  const signal = AbortSignal.timeout(60_000);

  it('gets its input to the end, gives its output and exit code', async () => {
    const url = await serve(['error', 'stdin', 'stdout', 'stderr'], async (streams) => {
      let input = '';
      for await (const chunk of streams.get('stdin') ?? []) input += String(chunk);
      streams.get('stderr')?.end('err');
      streams.get('stdout')?.end(input.toUpperCase());
      streams.get('error')?.end(failure(7));
    });
    const [stdin, stdout, stderr] = [new PassThrough(), collect(), collect()];
    stdin.end('hello');
    const io = { stdin, stdout: stdout.stream, stderr: stderr.stream, tty: false, signal };
    assert.equal(await runRemoteCommand(url, io, systemClock), 7);
    assert.deepEqual([stdout.text(), stderr.text()], ['HELLO', 'err']);
  });

  it('loses nothing when the runtime resets its streams at the end', async () => {
    const size = 600_000;
    const url = await serve(['error', 'stdout'], async (streams) => {
      const out = streams.get('stdout');
      await new Promise((done) => out?.write('x'.repeat(size), done));
      await new Promise((done) => streams.get('error')?.write(success, done));
      // Reset without an end, as spdystream's connection does when it is closed.
      for (const stream of streams.values()) stream.destroy();
    });
    const stdout = collect();
    assert.equal(await runRemoteCommand(url, { stdout: stdout.stream, tty: false, signal }, systemClock), 0);
    assert.equal(stdout.text().length, size);
  });

  it('sends the sizes of the terminal', async () => {
    let sizes = '';
    const url = await serve(['error', 'stdout', 'resize'], async (streams) => {
      for await (const chunk of streams.get('resize') ?? []) sizes += String(chunk);
      streams.get('stdout')?.end();
      streams.get('error')?.end(success);
    });
    const resize = (async function* () {
      yield { width: 80, height: 25 };
    })();
    assert.equal(await runRemoteCommand(url, { stdout: collect().stream, tty: true, resize, signal }, systemClock), 0);
    assert.equal(sizes, '{"Width":80,"Height":25}');
  });

  it('reads the last word of a runtime that resets the connection while input is on its way', async () => {
    const stdin = new PassThrough();
    stdin.write('early');
    const url = await serve(['error', 'stdin', 'stdout'], async (streams, _connection, socket) => {
      await once(streams.get('stdin') ?? socket, 'data');
      streams.get('stdout')?.end('last words');
      streams.get('error')?.end(failure(7));
      (socket as Socket).resetAndDestroy();
      // Fails in the kernel before anything of the above is read.
      stdin.write('too late');
    });
    const stdout = collect();
    assert.equal(await runRemoteCommand(url, { stdin, stdout: stdout.stream, tty: false, signal }, systemClock), 7);
    assert.equal(stdout.text(), 'last words');
  });

  it('resets no stream that the runtime has ended: the connection may be closed already', async () => {
    let frames = Buffer.alloc(0);
    const url = await serve(['error', 'stdout'], async (streams, _connection, socket) => {
      socket.on('data', (chunk: Buffer) => (frames = Buffer.concat([frames, chunk])));
      streams.get('stdout')?.end('x');
      await once(streams.get('stdout') ?? socket, 'finish');
      // What the client would send for its stdout comes before the answer to a question that is asked now.
      const asked = once(socket, 'data');
      socket.write(Buffer.from('800300060000000400000002', 'hex'));
      await asked;
      streams.get('error')?.end(success);
    });
    assert.equal(await runRemoteCommand(url, { stdout: collect().stream, tty: false, signal }, systemClock), 0);
    assert.equal(frames.toString('hex'), '800300060000000400000002');
  });

  for (const [what, said] of [
    ['without a word', ''],
    ['in the middle of its last word', '{"status":"Succ'],
  ] as const) {
    it(`takes a connection that ends ${what} for a failure, not for success`, async () => {
      const url = await serve(['error', 'stdout'], (streams, _connection, socket) => {
        if (said !== '') streams.get('error')?.write(said);
        socket.end();
      });
      await assert.rejects(
        runRemoteCommand(url, { stdout: collect().stream, tty: false, signal }, systemClock),
        (error: unknown) => error instanceof RuntimeError && /result of the command/.test(error.message),
      );
    });
  }

  it('does not wait for ever for a command that has ended while its input goes on without end', async () => {
    const url = await serve(['error', 'stdin', 'stdout'], (streams) => {
      // Neither reads the input nor says how the command ended.
      streams.get('stdout')?.end('done');
    });
    const stdin = new PassThrough();
    const more = (): void => {
      while (stdin.write(Buffer.alloc(64 * 1024)));
      stdin.once('drain', more);
    };
    more();
    const clock = new FakeClock();
    const stdout = collect();
    let problem: unknown;
    runRemoteCommand(url, { stdin, stdout: stdout.stream, tty: false, signal }, clock).catch(
      (error: unknown) => (problem = error),
    );
    while (problem === undefined) {
      await new Promise((resolve) => setImmediate(resolve));
      if (stdin.writableNeedDrain) await clock.advance(1_000);
    }
    assert.match(String(problem), /stopped reading its input/);
    assert.equal(stdout.text(), 'done');
  });

  it('ends when the caller gives up', async () => {
    const url = await serve(['error', 'stdout'], () => undefined);
    const abort = new AbortController();
    const running = runRemoteCommand(url, { stdout: collect().stream, tty: false, signal: abort.signal }, systemClock);
    abort.abort();
    await assert.rejects(running);
  });
});

describe('a port over the streams of a runtime', () => {
  it('is a connection both ways', async () => {
    const url = await serve(['error', 'data'], async (streams) => {
      const data = streams.get('data');
      assert.equal(data?.headers['port'], '8080');
      for await (const chunk of data ?? []) data?.write(String(chunk).toUpperCase());
      data?.end();
      streams.get('error')?.end();
    });
    const connection = await forwardRemotePort(url, 8080, AbortSignal.timeout(60_000));
    connection.end('ping');
    let text = '';
    for await (const chunk of connection) text += String(chunk);
    assert.equal(text, 'PING');
  });

  it('fails with what the runtime says', async () => {
    const url = await serve(['error', 'data'], (streams) => void streams.get('error')?.end('connection refused'));
    const connection = await forwardRemotePort(url, 8080, AbortSignal.timeout(60_000));
    await assert.rejects(
      (async () => {
        for await (const chunk of connection) assert.fail(String(chunk));
      })(),
      (error: unknown) => error instanceof RuntimeError && error.message === 'connection refused',
    );
  });
});
