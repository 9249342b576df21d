/** Tests the client of a runtime's streams against a server that behaves like containerd, or worse. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { PassThrough, Writable, type Duplex } from 'node:stream';
import { afterEach, describe, it } from 'node:test';
import { forwardRemotePort, runRemoteCommand } from '../../../../../agent/runtime/cri/remote-streams.ts';
import { RuntimeError } from '../../../../../agent/runtime/runtime.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { SpdyConnection } from '../../../../../agent/base/protocols/spdy/connection.ts';
import type { SpdyStream } from '../../../../../agent/base/protocols/spdy/stream.ts';

type Streams = ReadonlyMap<string, SpdyStream>;

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** Serves one connection when all streams of `wanted` exist. */
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

  it('fails if the runtime answers without an upgrade, and reads nothing of an answer without an end', async () => {
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    server = createServer((_request, response) => {
      const more = (): void => {
        while (response.write(Buffer.alloc(1 << 16)));
      };
      response.on('close', () => resolve()).on('drain', more);
      more();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/exec/token`;
    await assert.rejects(
      runRemoteCommand(url, { stdout: new PassThrough(), tty: false, signal }, systemClock),
      /responded with status 200/,
    );
    await closed;
  });

  it('passes its whole input, and returns its output and exit code', async () => {
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

  it('fails with the cause, without what the server of the runtime writes before it', async () => {
    const message = 'Internal error occurred: error executing command in container: no such file';
    const url = await serve(['error', 'stdout'], (streams) => {
      streams.get('stdout')?.end();
      streams.get('error')?.end(JSON.stringify({ status: 'Failure', reason: 'InternalError', message, code: 500 }));
    });
    const io = { stdout: new PassThrough().resume(), tty: false, signal };
    await assert.rejects(runRemoteCommand(url, io, systemClock), { name: 'RuntimeError', message: 'no such file' });
  });

  it('leaves no listeners on an output that is slow', async () => {
    const url = await serve(['error', 'stdout'], async (streams) => {
      const out = streams.get('stdout');
      for (let part = 0; part < 60; part += 1) {
        out?.write(Buffer.alloc(2000, 'x'));
        await new Promise((resolve) => setImmediate(resolve));
      }
      out?.end();
      streams.get('error')?.end(success);
    });
    let size = 0;
    const stdout = new Writable({
      highWaterMark: 1,
      write(chunk: Buffer, _encoding, done) {
        size += chunk.length;
        setImmediate(done);
      },
    });
    const before = stdout.listenerCount('close');
    assert.equal(await runRemoteCommand(url, { stdout, tty: false, signal }, systemClock), 0);
    assert.equal(size, 120_000);
    assert.ok(stdout.listenerCount('close') <= before, `${stdout.listenerCount('close')} listeners`);
  });

  it('loses no data if the runtime resets its streams at the end', async () => {
    const size = 600_000;
    const url = await serve(['error', 'stdout'], async (streams) => {
      const out = streams.get('stdout');
      await new Promise((done) => out?.write('x'.repeat(size), done));
      await new Promise((done) => streams.get('error')?.write(success, done));
      // Reset without an end of stream, as spdystream does when its connection is closed.
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

  it('reads the last message of a runtime that resets the connection during input', async () => {
    const stdin = new PassThrough();
    stdin.write('early');
    const url = await serve(['error', 'stdin', 'stdout'], async (streams, _connection, socket) => {
      await once(streams.get('stdin') ?? socket, 'data');
      streams.get('stdout')?.end('last words');
      streams.get('error')?.end(failure(7));
      (socket as Socket).resetAndDestroy();
      // The write fails in the kernel before the client reads the data above.
      stdin.write('too late');
    });
    const stdout = collect();
    assert.equal(await runRemoteCommand(url, { stdin, stdout: stdout.stream, tty: false, signal }, systemClock), 7);
    assert.equal(stdout.text(), 'last words');
  });

  it('does not reset a stream that the runtime has ended, because the connection may be closed', async () => {
    let frames = Buffer.alloc(0);
    const url = await serve(['error', 'stdout'], async (streams, _connection, socket) => {
      socket.on('data', (chunk: Buffer) => (frames = Buffer.concat([frames, chunk])));
      streams.get('stdout')?.end('x');
      await once(streams.get('stdout') ?? socket, 'finish');
      // Anything that the client sent for its stdout would arrive before the response to a later ping.
      const asked = once(socket, 'data');
      socket.write(Buffer.from('800300060000000400000002', 'hex'));
      await asked;
      streams.get('error')?.end(success);
    });
    assert.equal(await runRemoteCommand(url, { stdout: collect().stream, tty: false, signal }, systemClock), 0);
    assert.equal(frames.toString('hex'), '800300060000000400000002');
  });

  for (const [what, errorText] of [
    ['without a result', ''],
    ['in the middle of the result', '{"status":"Succ'],
  ] as const) {
    it(`fails if the connection ends ${what}`, async () => {
      const url = await serve(['error', 'stdout'], (streams, _connection, socket) => {
        if (errorText !== '') streams.get('error')?.write(errorText);
        socket.end();
      });
      await assert.rejects(
        runRemoteCommand(url, { stdout: collect().stream, tty: false, signal }, systemClock),
        (error: unknown) => error instanceof RuntimeError && /result of the command/.test(error.message),
      );
    });
  }

  it('does not wait forever for an exited command whose input never ends', async () => {
    const url = await serve(['error', 'stdin', 'stdout'], (streams) => {
      // The server neither reads the input nor reports the result of the command.
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

  it('stops when the caller aborts', async () => {
    const url = await serve(['error', 'stdout'], () => undefined);
    const abort = new AbortController();
    const running = runRemoteCommand(url, { stdout: collect().stream, tty: false, signal: abort.signal }, systemClock);
    abort.abort();
    await assert.rejects(running);
  });
});

describe('a port over the streams of a runtime', () => {
  it('carries data in both directions', async () => {
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

  it("fails with the runtime's error", async () => {
    const url = await serve(
      ['error', 'data'],
      (streams) => void streams.get('error')?.end('error forwarding port 8080 to pod 1a2b, uid : connection refused'),
    );
    const connection = await forwardRemotePort(url, 8080, AbortSignal.timeout(60_000));
    await assert.rejects(
      (async () => {
        for await (const chunk of connection) assert.fail(String(chunk));
      })(),
      (error: unknown) => error instanceof RuntimeError && error.message === 'connection refused',
    );
  });
});
