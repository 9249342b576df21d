import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { RevisionLog } from '../../../../controlplane/storage/revision-log.ts';
import { StoredVersion } from '../../../../controlplane/storage/resource-versions.ts';
import { HistoryCompression } from '../../../../controlplane/storage/history-compression.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { FakeLogBackend } from '../../../fakes/fake-log-backend.ts';
import { until } from '../../../until.ts';

const KEY = '/core/configmaps/default/large';
const text = (version: number): Buffer => Buffer.from(`{"version":${version},"data":"${'large '.repeat(20_000)}"}`);

function open(): RevisionLog {
  const backend = new FakeLogBackend();
  const log = new RevisionLog({ clock: new FakeClock(), logger: silentLogger, backend });
  assert.deepEqual([...log.load([], backend.marks.compactedRevision)], []);
  log.loaded(backend.marks);
  return log;
}

/** Resolves once the version gives its value out inflated: as another buffer than before. */
async function compressed(version: StoredVersion): Promise<void> {
  const before = version.value;
  await until('the value is compressed', () => version.value !== before);
}

test('large values that only the history keeps are compressed, and read as before', async () => {
  const compression = new HistoryCompression();
  const version = new StoredVersion(KEY, text(1), 2, 2);
  compression.add(version);
  await compressed(version);
  assert.deepEqual(version.value, text(1));
  assert.equal(version.value, version.value, 'one turn of the event loop inflates once');
  assert.equal(version.sizeBytes, text(1).length);
});

test('a compressed value keeps no more memory than twice its size', async () => {
  const version = new StoredVersion(KEY, text(1), 2, 2);
  const deflated = await new Promise<Buffer>((resolve) => {
    version.replaceByDeflated = resolve;
    new HistoryCompression().add(version);
  });
  assert.ok(deflated.length < 1000);
  assert.ok(deflated.buffer.byteLength <= 2 * deflated.length);
});

test('small values, and those that compression hardly makes smaller, stay as they are', async () => {
  const compression = new HistoryCompression();
  const small = new StoredVersion(KEY, Buffer.alloc(1000), 2, 2);
  const random = new StoredVersion(KEY, randomBytes(100_000), 2, 2);
  const last = new StoredVersion(KEY, text(1), 2, 2);
  const [smallValue, randomValue] = [small.value, random.value];
  for (const version of [small, random, last]) compression.add(version);
  await compressed(last);
  assert.equal(small.value, smallValue);
  assert.equal(random.value, randomValue);
});

test('the past of a large object is listed and watched from its compressed versions', async () => {
  const log = open();
  const created = await log.create(KEY, text(1));
  const second = text(2);
  const updated = await log.update(KEY, second, created.revision);
  const current = await log.update(KEY, text(3), updated.revision);
  const deleted = await log.delete(KEY, current.revision);
  const seen: (Buffer | undefined)[] = [];
  await until('the value is compressed', async () => {
    const { items } = await log.list('/core/configmaps/', { revision: updated.revision });
    return items[0]?.value !== second;
  });
  log.watch(
    { prefix: '/core/configmaps/', afterRevision: created.revision - 1 },
    {
      onEvents: (changes) => seen.push(...changes.map(({ current: now, previous }) => now?.value ?? previous?.value)),
      onEnd: () => undefined,
    },
  );
  await until('all events were seen', () => seen.length === 4);
  assert.deepEqual(seen, [text(1), text(2), text(3), text(3)]);
  assert.equal(deleted, log.revision());
});
