import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { duplexPair } from 'node:stream';
import { it } from 'node:test';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { SpdyConnection } from '../../../../../agent/base/protocols/spdy/connection.ts';
import type { RemoteCommand } from '../../../../../agent/server/streaming/remote-command.ts';
import { until } from '../../../../until.ts';
import { acceptSpdyCommand } from '../../../../../agent/server/streaming/spdy-command.ts';

/** Resolves to the client of an exec with a terminal, after the response to the upgrade. */
async function connected(): Promise<{ client: SpdyConnection; accepted: Promise<RemoteCommand> }> {
  const [near, far] = duplexPair();
  const accepted = acceptSpdyCommand(
    {
      request: { headers: { 'x-stream-protocol-version': 'v4.channel.k8s.io' } } as unknown as IncomingMessage,
      socket: far,
      head: Buffer.alloc(0),
    },
    { stdin: false, stdout: true, stderr: false, tty: true },
    systemClock,
  );
  await new Promise((resolve) => near.once('readable', resolve));
  assert.match(String(near.read()), /^HTTP\/1\.1 101 /);
  return { client: new SpdyConnection(near, Buffer.alloc(0)), accepted };
}

it('streams of unknown types, and further ones of a known type, are reset', async () => {
  const { client, accepted } = await connected();
  const types = ['error', 'stdout', 'stdout', 'other', '', 'resize'];
  const ended: string[] = [];
  for (const streamtype of types)
    (await client.open({ streamtype })).resume().once('end', () => void ended.push(streamtype));
  await accepted;
  await until('the resets', () => ended.length >= 3);
  assert.deepEqual(ended, ['stdout', 'other', '']);
  client.abandon();
});

it('megabytes of terminal sizes take time that grows with their number, and the last one counts', async () => {
  const { client, accepted } = await connected();
  for (const streamtype of ['error', 'stdout']) await client.open({ streamtype });
  const resize = await client.open({ streamtype: 'resize' });
  const { resize: sizes } = await accepted;
  const from = process.cpuUsage();
  resize.write('}'.repeat(4_000_000));
  resize.write('{"Width":1,"Height":1}\n{"Width":80,"Height":24}');
  for await (const size of sizes) {
    if (size.width !== 80) continue;
    assert.deepEqual(size, { width: 80, height: 24 });
    break;
  }
  const { user, system } = process.cpuUsage(from);
  assert.ok(user + system < 1_500_000, `${user + system} µs`);
  client.abandon();
});
