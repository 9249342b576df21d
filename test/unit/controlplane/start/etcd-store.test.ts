/** Tests how long a start waits for an etcd that cannot be read. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { whenAvailable } from '../../../../controlplane/start/etcd-store.ts';
import { StorageError } from '../../../../controlplane/storage/storage.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('a start waits for an etcd that has no leader yet', async () => {
  const clock = new FakeClock();
  let attempts = 0;
  const opened = whenAvailable(
    () => {
      attempts += 1;
      return attempts < 4 ? Promise.reject(new StorageError('unavailable', 'no leader')) : Promise.resolve('storage');
    },
    { clock, logger: silentLogger, withinMs: 30_000 },
  );
  await clock.advance(10_000);
  assert.equal(await opened, 'storage');
  assert.equal(attempts, 4);
});

test('a start fails when no etcd can be read within the time of the flag, and at once for what waiting does not mend', async () => {
  const clock = new FakeClock();
  const opened = whenAvailable(() => Promise.reject(new StorageError('unavailable', 'no leader')), {
    clock,
    logger: silentLogger,
    withinMs: 30_000,
  });
  const failed = assert.rejects(opened, /no leader/);
  await clock.advance(40_000);
  await failed;
  await assert.rejects(
    whenAvailable(() => Promise.reject(new StorageError('unusable', 'a wrong certificate')), {
      clock,
      logger: silentLogger,
      withinMs: 30_000,
    }),
    /a wrong certificate/,
  );
});
