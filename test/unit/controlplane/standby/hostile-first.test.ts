import assert from 'node:assert/strict';
import { readdirSync, readlinkSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { HttpClient } from '../../../../api/client/http-client.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { Follower } from '../../../../controlplane/standby/follower.ts';
import { encodeFrame, type Frame } from '../../../../controlplane/standby/frames.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';
import { until } from '../../../until.ts';

/** Returns how often this process has a file below the directory open. */
function openFiles(directory: string): number {
  return readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(join('/proc/self/fd', fd)).startsWith(directory);
    } catch {
      // The descriptor was that of the listing.
      return false;
    }
  }).length;
}

test('a first that begins one snapshot after the other leaves no file of a standby open', async (t) => {
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true, force: true }));
  const snapshot: Frame = { type: 'snapshot', sizeBytes: 1000 };
  const body = Array.from({ length: 100 }, () => encodeFrame(snapshot)).flat();
  const client = { raw: () => Promise.resolve({ body }) } as unknown as HttpClient;
  const follower = Follower.start(
    {
      directory,
      url: 'https://127.0.0.1:1',
      client,
      clock: systemClock,
      logger: silentLogger,
      completeAtMs: 0,
      onComplete: () => assert.fail('nothing is complete'),
      onLost: (error) => assert.fail(error),
    },
    undefined,
  );
  await until('the end of the connection', () => follower.state.problem !== undefined);
  await follower.stop();
  assert.match(follower.state.problem ?? '', /a snapshot came before the last one was complete/);
  assert.equal(openFiles(directory), 0);
});
