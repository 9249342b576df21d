import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { it } from 'node:test';
import type { DockerClient } from '../../../../../agent/runtime/docker/docker-client.ts';
import { execCollect } from '../../../../../agent/runtime/docker/exec.ts';
import { RuntimeError } from '../../../../../agent/runtime/runtime.ts';
import type { ContainerId } from '../../../../../agent/runtime/runtime-identity.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { until } from '../../../../until.ts';

const MEBIBYTE = 1 << 20;

/** An engine whose command prints so many mebibytes. */
function printing(mebibytes: number) {
  let sent = 0;
  const frame = Buffer.alloc(8 + MEBIBYTE);
  frame[0] = 1;
  frame.writeUInt32BE(MEBIBYTE, 4);
  const stream = new Readable({
    highWaterMark: MEBIBYTE,
    read() {
      sent += 1;
      this.push(sent <= mebibytes ? Buffer.from(frame) : null);
    },
  });
  const docker = {
    getContainer: () => ({ exec: () => Promise.resolve({ id: 'e', start: () => Promise.resolve(stream) }) }),
    getExec: () => ({ inspect: () => Promise.resolve({ Running: false, ExitCode: 0, Pid: 0 }) }),
  };
  const client = { docker, call: (_name: string, work: () => unknown) => work() } as unknown as DockerClient;
  return { client, sent: () => sent };
}

it('what a command prints is counted, and cut to what is wanted', async () => {
  const deps = { client: printing(5).client, clock: new FakeClock() };
  const options = { timeoutMs: 1000, maxOutputBytes: 1000 };
  const { stdout, outputBytes } = await execCollect(deps, 'c' as ContainerId, ['x'], options);
  assert.deepEqual([stdout.length, outputBytes], [1000, 5 * MEBIBYTE]);
});

it('a command that prints without an end is read slowly until its timeout', async () => {
  const clock = new FakeClock();
  const { client, sent } = printing(Number.POSITIVE_INFINITY);
  const running = execCollect({ client, clock }, 'c' as ContainerId, ['yes'], { timeoutMs: 2000 });
  const failed = assert.rejects(running, (error) => error instanceof RuntimeError && error.code === 'timeout');
  await until('much output', () => sent() > 32);
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(sent() < 40, `${sent()} MiB`);
  await clock.advance(1000);
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(sent() < 45, `${sent()} MiB`);
  await clock.advance(1000);
  await failed;
});
