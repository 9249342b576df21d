/** Faults of the host beside an etcd that orchlet runs: each ends when its cause does. */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmdirSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { EtcdLog } from '../../../../../controlplane/storage/etcd-member/etcd-log.ts';
import { EtcdSupervisor } from '../../../../../controlplane/storage/etcd-member/etcd-supervisor.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';
import { until } from '../../../../until.ts';

test('an etcd whose process id cannot be written is restarted all the same, and the id is written when that is possible', async (t) => {
  const folder = temporaryFolder();
  const starts = join(folder, 'starts');
  writeFileSync(starts, '');
  const supervisor = new EtcdSupervisor({
    binary: '/bin/sh',
    // The first two processes exit at once.
    arguments: ['-c', `echo $$ >> ${starts}; [ $(wc -l < ${starts}) -lt 3 ] || exec sleep 60`],
    dataDirectory: join(folder, 'data'),
    pidFile: join(folder, 'run/etcd.pid'),
    logFile: join(folder, 'etcd.log'),
    clock: systemClock,
    logger: silentLogger,
    onRemoved: () => assert.fail('the member was not removed'),
  });
  t.after(() => supervisor.close());
  await supervisor.start();
  const pids = (): string[] => readFileSync(starts, 'utf8').trim().split('\n');
  await until('the third process', () => pids().length === 3);
  mkdirSync(join(folder, 'run'));
  await until('the file of the process id', () => statSync(join(folder, 'run/etcd.pid'), { throwIfNoEntry: false }));
  assert.equal(readFileSync(join(folder, 'run/etcd.pid'), 'utf8').trim(), pids()[2]);
});

test('a log that could not be shortened is shortened later', async () => {
  const folder = temporaryFolder();
  const path = join(folder, 'etcd.log');
  writeFileSync(path, '');
  truncateSync(path, 9 * 1024 * 1024);
  mkdirSync(`${path}.old`);
  const clock = new FakeClock();
  const stop = new AbortController();
  let failures = 0;
  const logger = { ...silentLogger, error: () => void (failures += 1) };
  const limiting = new EtcdLog(path).limitSize({ clock, logger, signal: stop.signal });
  await until('a failure', () => failures > 0);
  rmdirSync(`${path}.old`);
  await until('a short log', async () => {
    await clock.advance(60_000);
    return statSync(path).size === 0;
  });
  stop.abort();
  await limiting;
});
