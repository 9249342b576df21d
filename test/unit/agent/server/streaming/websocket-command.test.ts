import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import type { RemoteCommand, WantedStreams } from '../../../../../agent/server/streaming/remote-command.ts';
import { acceptWebSocketCommand } from '../../../../../agent/server/streaming/websocket-command.ts';
import { until } from '../../../../until.ts';

async function open(t: TestContext, protocol: string, wanted: Partial<WantedStreams>) {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  t.after(() => server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  const accepted = new Promise<RemoteCommand>((resolve) =>
    server.once('connection', (socket) =>
      resolve(
        acceptWebSocketCommand(
          socket,
          { stdin: false, stdout: false, stderr: false, tty: false, ...wanted },
          () => undefined,
        ),
      ),
    ),
  );
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`, protocol);
  t.after(() => client.terminate());
  const messages: string[] = [];
  client.on('message', (data: Buffer) => messages.push(data.toString('latin1')));
  const closed = new Promise((resolve) => client.once('close', resolve));
  const command = await accepted;
  if (client.readyState !== client.OPEN) await new Promise((resolve) => client.once('open', resolve));
  return { client, command, messages, closed };
}

describe('a command over WebSocket', () => {
  it('begins with an empty message of its first output, and ends with how it went', async (t) => {
    const { command, messages, closed } = await open(t, 'v5.channel.k8s.io', { stdout: true, stderr: true });
    command.stdout?.write('out');
    command.stderr?.write('err');
    await command.finish({ state: 'exited', exitCode: 3 });
    await closed;
    assert.deepEqual(messages.slice(0, 3), ['\u0001', '\u0001out', '\u0002err']);
    assert.equal(messages[3]?.charCodeAt(0), 3);
    assert.match(messages[3]?.slice(1) ?? '', /^\{.*"NonZeroExitCode".*"ExitCode","message":"3"/);
  });

  it('reports a command that failed as the failure of an answer of the runtime', async (t) => {
    const { command, messages, closed } = await open(t, 'v5.channel.k8s.io', { stdout: true });
    await command.finish({ state: 'failed', message: 'error executing command in container: nope' });
    await closed;
    const { message } = JSON.parse(messages.at(-1)?.slice(1) ?? '') as { message: string };
    assert.equal(
      message,
      'Internal error occurred: Internal error occurred: error executing command in container: nope',
    );
  });

  it('closes only stdin in version 5, and survives later messages for it', async (t) => {
    const { client, command, messages, closed } = await open(t, 'v5.channel.k8s.io', { stdin: true });
    client.send(Buffer.from('\u0000hello'));
    client.send(Buffer.from([255, 0]));
    client.send(Buffer.from('\u0000late'));
    const chunks: Buffer[] = [];
    for await (const chunk of command.stdin ?? []) chunks.push(chunk as Buffer);
    assert.equal(Buffer.concat(chunks).toString(), 'hello');
    await command.finish({ state: 'exited', exitCode: 0 });
    await closed;
    assert.deepEqual(messages, ['\u0003', '\u0003{"metadata":{},"status":"Success"}']);
  });

  it('is held back while a command does not read, and single bytes are joined', async () => {
    const socket = Object.assign(new EventEmitter(), {
      ...{ protocol: 'v5.channel.k8s.io', readyState: 1, OPEN: 1, isPaused: false },
      send: (_message: Buffer, done: () => void) => done(),
      pause: () => void (socket.isPaused = true),
      resume: () => void (socket.isPaused = false),
    });
    const wanted = { stdin: true, stdout: false, stderr: false, tty: false };
    const { stdin } = acceptWebSocketCommand(socket as unknown as WebSocket, wanted, () => undefined);
    let sent = 0;
    for (; !socket.isPaused; sent += 1) socket.emit('message', Buffer.from([0, sent & 255]), true);
    assert.equal(sent, 65_537);
    const chunks: Buffer[] = [];
    stdin?.on('data', (chunk: Buffer) => chunks.push(chunk));
    await until('all input', () => chunks.reduce((sum, chunk) => sum + chunk.length, 0) === sent);
    assert.equal(socket.isPaused, false);
    assert.ok(chunks.length < 10, `${chunks.length} chunks`);
    const whole = Buffer.concat(chunks);
    for (let i = 0; i < sent; i += 1) assert.equal(whole[i], i & 255);
    socket.emit('message', Buffer.from([255, 0]), true);
    await new Promise((resolve) => stdin?.once('end', resolve));
  });

  it('speaks base64 to browsers, sizes included', async (t) => {
    const { client, command, messages, closed } = await open(t, 'base64.channel.k8s.io', {
      stdin: true,
      stdout: true,
      tty: true,
    });
    client.send(`0${Buffer.from('in').toString('base64')}`);
    client.send(`4${Buffer.from('{"Width":80,"Height":24}').toString('base64')}`);
    const input = await new Promise<Buffer>((resolve) => command.stdin?.once('data', resolve));
    assert.equal(input.toString(), 'in');
    for await (const size of command.resize) {
      assert.deepEqual(size, { width: 80, height: 24 });
      break;
    }
    command.stdout?.write('out');
    await command.finish({ state: 'exited', exitCode: 0 });
    await closed;
    assert.deepEqual(messages, ['1', `1${Buffer.from('out').toString('base64')}`]);
  });

  it('ignores sizes that are no sizes, however deep they are nested', async (t) => {
    const { client, command } = await open(t, 'v5.channel.k8s.io', { stdout: true, tty: true });
    const nested = `${'['.repeat(200_000)}${']'.repeat(200_000)}`;
    for (const size of [`{"Width":${nested},"Height":1}`, '{"Width":"80","Height":[24]}', '{"Width":1.5,"Height":2}'])
      client.send(`\u0004${size}`);
    client.send('\u0004{"Width":80,"Height":24}');
    for await (const size of command.resize) {
      assert.deepEqual(size, { width: 80, height: 24 });
      break;
    }
  });

  it('survives input for a command that stopped reading, and reports when the client is gone', async (t) => {
    const { client, command } = await open(t, 'v4.channel.k8s.io', { stdin: true });
    (command.stdin as unknown as { destroy(): void }).destroy();
    client.send(Buffer.from('\u0000more'));
    client.send(Buffer.from('\u0000more'));
    const gone = new Promise((resolve) => command.signal.addEventListener('abort', resolve));
    client.close();
    await gone;
  });
});
