/** Tests the agent's requirements on its host, its process settings, the lock file, and `--runonce`. */
import assert from 'node:assert/strict';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { before, test } from 'node:test';
import {
  checkHost,
  setKernelParameters,
  type HostDemands,
  KERNEL_PARAMETERS,
  openFilesLimit,
} from '../../../../../agent/host/process/host-demands.ts';
import { acquireLockFile, waitsFor } from '../../../../../agent/host/process/lock-file.ts';
import { waitForPods } from '../../../../../agent/pods/run-once.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

let directory = '';
before(async () => {
  directory = temporaryFolder();
});

let hosts = 0;
async function host(files: Readonly<Record<string, string>>): Promise<string> {
  hosts += 1;
  const root = join(directory, `host-${hosts}`);
  await mkdir(root, { recursive: true });
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
  return root;
}

const lenient: HostDemands = {
  failSwapOn: false,
  failCgroupV1: false,
  protectKernelDefaults: false,
  logger: silentLogger,
};
const SWAPS = 'Filename\t\t\t\tType\t\tSize\n';

test('a host that swaps is refused, where that is demanded', async () => {
  const root = await host({ 'proc/swaps': `${SWAPS}/dev/sda2 partition 1000 0 -2\n` });
  await assert.rejects(
    checkHost({ ...lenient, failSwapOn: true, root }),
    /running with swap on is not supported, please disable swap or set --fail-swap-on flag to false/,
  );
  await checkHost({ ...lenient, root });
});

test('no swap, and swap on a RAM disk, is fine', async () => {
  for (const line of ['', '/dev/zram0 partition 1000 0 100\n'])
    await checkHost({ ...lenient, failSwapOn: true, root: await host({ 'proc/swaps': `${SWAPS}${line}` }) });
});

test('a host with cgroup v1 is refused, where that is demanded', async () => {
  await assert.rejects(
    checkHost({ ...lenient, failCgroupV1: true, root: await host({}) }),
    /not run on a host using cgroup v1/,
  );
  await checkHost({
    ...lenient,
    failCgroupV1: true,
    root: await host({ 'sys/fs/cgroup/cgroup.controllers': 'cpu memory\n' }),
  });
});

test('kernel parameters that differ are refused under --protect-kernel-defaults, and set otherwise', async () => {
  const files = Object.fromEntries(
    Object.entries(KERNEL_PARAMETERS).map(([name, value]) => [`proc/sys/${name}`, `${value}\n`]),
  );
  const root = await host({ ...files, 'proc/sys/vm/overcommit_memory': '0\n' });
  await assert.rejects(
    checkHost({ ...lenient, protectKernelDefaults: true, root }),
    /invalid kernel flag: vm\/overcommit_memory, expected value: 1, actual value: 0/,
  );
  await checkHost({ ...lenient, root });
  assert.equal(
    await readFile(join(root, 'proc/sys/vm/overcommit_memory'), 'utf8'),
    '0\n',
    'who does not own the host leaves it',
  );
  await setKernelParameters({ ...lenient, root });
  assert.equal(await readFile(join(root, 'proc/sys/vm/overcommit_memory'), 'utf8'), '1\n');
  await checkHost({ ...lenient, protectKernelDefaults: true, root });
});

test('the limit of open files is read from the kernel’s table', () => {
  assert.equal(
    openFilesLimit(
      'Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 1048576              files\n',
    ),
    1024,
  );
  assert.equal(openFilesLimit(''), undefined);
});

test('a process that waits for a lock is found by the inode of the lock file', () => {
  const locks =
    '1: FLOCK  ADVISORY  WRITE 10 08:01:131 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 11 08:01:131 0 EOF\n2: POSIX  ADVISORY  READ 9 08:01:77 0 EOF\n';
  assert.equal(waitsFor(locks, 131), true);
  assert.equal(waitsFor(locks, 31), false);
  assert.equal(waitsFor(locks, 77), false);
  assert.equal(waitsFor('1: FLOCK  ADVISORY  WRITE 10 08:01:131 0 EOF\n', 131), false);
});

test('a lock file is held by one, and the next gets it when it is let go', async () => {
  const path = join(directory, 'lock');
  const shared = { path, clock: systemClock, logger: silentLogger, onContention: undefined };
  const release = await acquireLockFile({ ...shared, signal: new AbortController().signal });
  const order: string[] = [];
  const second = acquireLockFile({ ...shared, signal: new AbortController().signal }).then((next) => {
    order.push('locked by the second');
    return next;
  });
  order.push('let go by the first');
  await release();
  await (
    await second
  )();
  assert.deepEqual(order, ['let go by the first', 'locked by the second']);
});

test('a lock file that another process waits for or removes causes a notification', async () => {
  const waiter = join(directory, 'wanted');
  const deleted = join(directory, 'deleted');
  const hold = async (path: string): Promise<{ release: () => Promise<void>; wanted: Promise<void> }> => {
    const contention = Promise.withResolvers<void>();
    const shared = { path, clock: systemClock, logger: silentLogger, signal: stop.signal };
    return {
      release: await acquireLockFile({ ...shared, onContention: () => contention.resolve() }),
      wanted: contention.promise,
    };
  };
  const stop = new AbortController();
  const [first, second] = await Promise.all([hold(waiter), hold(deleted)]);
  const other = new AbortController();
  const waiting = acquireLockFile({
    path: waiter,
    clock: systemClock,
    logger: silentLogger,
    signal: other.signal,
    onContention: undefined,
  });
  await rm(deleted);
  await Promise.all([first.wanted, second.wanted]);
  other.abort();
  await assert.rejects(waiting, /stopped while waiting/);
  stop.abort();
  await Promise.all([first.release(), second.release()]);
});

test('waiting for a lock file ends when the agent stops', async () => {
  const path = join(directory, 'held');
  const shared = { path, clock: systemClock, logger: silentLogger, onContention: undefined };
  const release = await acquireLockFile({ ...shared, signal: new AbortController().signal });
  const stop = new AbortController();
  const waiting = acquireLockFile({ ...shared, signal: stop.signal });
  stop.abort();
  await assert.rejects(waiting, /stopped while waiting for the lock file/);
  const late = acquireLockFile({ ...shared, signal: stop.signal });
  await assert.rejects(late, /stopped while waiting for the lock file/, 'the agent had stopped before');
  await release();
});

test('a lock file in a missing folder is an error that names it', async () => {
  const path = join(directory, 'nowhere', 'lock');
  await assert.rejects(
    acquireLockFile({
      path,
      clock: systemClock,
      logger: silentLogger,
      signal: new AbortController().signal,
      onContention: undefined,
    }),
    /the lock file .*nowhere\/lock cannot be locked/,
  );
});

function pod(phase: string): Pod {
  return {
    metadata: { name: phase, namespace: 'default', uid: phase },
    spec: { containers: [] },
    status: { phase },
  } as unknown as Pod;
}

test('running once ends when every pod runs or has ended', async () => {
  const clock = new FakeClock();
  let pods: Pod[] = [pod('Pending'), pod('Running')];
  let isOver = '';
  const ended = waitForPods({ pods: () => pods, sourcesReady: () => true }, clock, new AbortController().signal).then(
    (text) => (isOver = text),
  );
  await clock.advance(5000);
  assert.equal(isOver, '');
  pods = [pod('Succeeded'), pod('Running')];
  await clock.advance(1000);
  assert.equal(await ended, 'ran 2 pods once');
});

test('running once without pods ends too', async () => {
  const clock = new FakeClock();
  const ended = waitForPods({ pods: () => [], sourcesReady: () => true }, clock, new AbortController().signal);
  await clock.advance(3000);
  assert.equal(await ended, 'ran 0 pods once');
});

test('running once fails, with the names, where a pod never runs', async () => {
  const clock = new FakeClock();
  const pods = ['Running', 'Pending'].map(
    (phase) => ({ metadata: { namespace: 'default', name: phase.toLowerCase() }, status: { phase } }) as unknown as Pod,
  );
  const host = { pods: () => pods, sourcesReady: () => true };
  const failed = assert.rejects(
    waitForPods(host, clock, new AbortController().signal),
    /runonce failed after 1023 s: pods are not started: default\/pending; --v=4 logs their events/,
  );
  await clock.advance(1_023_500);
  await failed;
});
