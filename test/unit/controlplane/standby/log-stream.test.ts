/** Tests the stream of the log to a standby, and the copy that the standby makes of it. */
import assert from 'node:assert/strict';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { CopyWriter, type WrittenGroup } from '../../../../controlplane/standby/copy-writer.ts';
import type { Frame } from '../../../../controlplane/standby/frames.ts';
import { type CopyPosition, streamLog } from '../../../../controlplane/standby/log-stream.ts';
import { SnapshotFile } from '../../../../controlplane/standby/snapshot-file.ts';
import { LogCopy } from '../../../../controlplane/storage/sqlite/log-copy.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../../../controlplane/storage/storage.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const EMPTY: CopyPosition = { lastRevision: 0, newest: undefined };

interface Source {
  readonly storage: Storage;
  readonly directory: string;
  readonly clock: FakeClock;
  /** Streams from a position until the returned function is called. */
  stream(
    from: CopyPosition,
    onFrame?: (frame: Frame) => Promise<void>,
  ): { frames: Frame[]; stop(): Promise<void>; over: Promise<void> };
}

async function sourceOf(t: TestContext): Promise<Source> {
  const directory = temporaryFolder();
  const clock = new FakeClock();
  const storage = await openSqliteStorage({ directory: join(directory, 'storage'), clock, logger: silentLogger });
  t.after(async () => {
    await storage.close();
    await rm(directory, { recursive: true });
  });
  return {
    storage,
    directory,
    clock,
    stream(from, onFrame = () => Promise.resolve()) {
      assert.ok(storage.log);
      const frames: Frame[] = [];
      const stop = new AbortController();
      const write = (frame: Frame): Promise<void> => {
        frames.push(frame);
        return onFrame(frame);
      };
      const over = streamLog(
        { storage, log: storage.log, dataDirectory: directory, clock },
        from,
        { write },
        stop.signal,
      );
      return {
        frames,
        over,
        stop: async () => {
          stop.abort();
          await over;
        },
      };
    },
  };
}

const put = async (storage: Storage, key: string, value: string): Promise<number> => {
  const current = await storage.get(key);
  const bytes = Buffer.from(value);
  return (current === undefined ? await storage.create(key, bytes) : await storage.update(key, bytes, current.revision))
    .revision;
};
const typesOf = (frames: readonly Frame[]): string[] => frames.map(({ type }) => type);

test('an empty copy gets a snapshot, and then each write at once, without waiting for time to pass', async (t) => {
  const { storage, directory, stream } = await sourceOf(t);
  await put(storage, '/core/x/a', 'one');
  const { frames, stop } = stream(EMPTY);
  await until('a complete copy', () => typesOf(frames).includes('complete'));
  assert.deepEqual(typesOf(frames), ['snapshot', 'part', 'complete']);
  assert.deepEqual(await readdir(join(directory, 'backup')), [], 'the file of the snapshot is gone');
  const revision = await put(storage, '/core/x/b', 'two');
  await until('the record', () => frames.length === 5);
  const [sent, complete] = frames.slice(3);
  assert.ok(sent?.type === 'records' && complete?.type === 'complete');
  assert.deepEqual([sent.records.keys, sent.newestRevision], [['/core/x/b'], revision]);
  assert.equal(complete.marks.lastRevision, revision);
  await stop();
});

test('a snapshot that takes long to make is announced each second, so that the standby keeps its connection', async (t) => {
  const { storage, clock, stream } = await sourceOf(t);
  await put(storage, '/core/x/a', 'one');
  const made = Promise.withResolvers<void>();
  const copyTo = storage.copyTo.bind(storage);
  storage.copyTo = (file) => made.promise.then(() => copyTo(file));
  const { frames, stop } = stream(EMPTY);
  await until('the wait', () => clock.nextTimerMs === 1000);
  await clock.advance(3000);
  assert.deepEqual(typesOf(frames), ['preparing', 'preparing', 'preparing']);
  made.resolve();
  await until('a complete copy', () => typesOf(frames).includes('complete'));
  assert.deepEqual(typesOf(frames).slice(3), ['snapshot', 'part', 'complete']);
  await stop();
});

test('a copy is continued from its revision, unless it is that of another log', async (t) => {
  const { storage, stream } = await sourceOf(t);
  await put(storage, '/core/x/a', 'one');
  const first = await storage.log?.read(0);
  const lastRevision = storage.revision();
  await put(storage, '/core/x/b', 'two');
  const copy = await LogCopy.open(temporaryFolder());
  assert.ok(first);
  await copy.append(first.records);
  const newest = copy.newest;
  await copy.close();
  assert.ok(newest);
  const continued = stream({ lastRevision, newest });
  await until('a complete copy', () => typesOf(continued.frames).includes('complete'));
  assert.deepEqual(typesOf(continued.frames), ['records', 'complete']);
  await continued.stop();
  for (const from of [
    { lastRevision, newest: { ...newest, checksum: newest.checksum + 1 } },
    { lastRevision: storage.revision() + 5, newest },
    { lastRevision, newest: undefined },
  ]) {
    const { frames, stop } = stream(from);
    await until('a frame', () => frames.length > 0);
    assert.equal(frames[0]?.type, 'snapshot');
    await stop();
  }
});

test('the stream of a standby that is slower than compaction ends with that reason, and nothing waits in memory', async (t) => {
  const { storage, stream } = await sourceOf(t);
  await put(storage, '/core/x/a', 'one');
  const slow = Promise.withResolvers<void>();
  const { frames, over } = stream(EMPTY, (frame) => (frame.type === 'complete' ? slow.promise : Promise.resolve()));
  await until('a complete copy', () => typesOf(frames).includes('complete'));
  for (let at = 0; at < 20; at += 1) await put(storage, '/core/x/a', `${at}`);
  await storage.compact(storage.revision());
  assert.equal(frames.length, 3, 'nothing is sent to a standby that does not read');
  slow.resolve();
  await over;
  assert.deepEqual(typesOf(frames), ['snapshot', 'part', 'complete', 'compacted']);
});

test('records that are compacted while a snapshot is sent are kept until the copy is complete', async (t) => {
  const { storage, stream } = await sourceOf(t);
  await put(storage, '/core/x/a', 'one');
  const sending = Promise.withResolvers<void>();
  const { frames, stop } = stream(EMPTY, (frame) => (frame.type === 'part' ? sending.promise : Promise.resolve()));
  await until('the snapshot', () => typesOf(frames).includes('part'));
  for (let at = 0; at < 20; at += 1) await put(storage, '/core/x/a', `${at}`);
  const gone = await storage.get('/core/x/a');
  await storage.delete('/core/x/a', gone?.revision ?? 0);
  await storage.compact(storage.revision());
  sending.resolve();
  await until('a complete copy', () => typesOf(frames).includes('complete'));
  const sent = frames.flatMap((frame) => (frame.type === 'records' ? frame.records.revisions : []));
  assert.equal(sent.length, 21, 'the deletion, and what it hides');
  await until('the removal', async () => (await storage.log?.read(0))?.records.revisions.length === 0);
  await stop();
});

test('a copy that follows a snapshot has what the storage has, and reports each group once it is durable', async (t) => {
  const { storage, stream } = await sourceOf(t);
  const target = temporaryFolder();
  t.after(() => rm(target, { recursive: true }));
  for (let at = 0; at < 50; at += 1) await put(storage, `/core/x/${at % 7}`, `${at}`);
  let snapshot: SnapshotFile | undefined;
  let writer: CopyWriter | undefined;
  let copy: LogCopy | undefined;
  const groups: WrittenGroup[] = [];
  const { stop } = stream(EMPTY, async (frame) => {
    if (frame.type === 'snapshot') snapshot = await SnapshotFile.create(target, frame.sizeBytes);
    else if (frame.type === 'part') {
      await snapshot?.add(frame.bytes);
      if (snapshot?.isComplete !== true) return;
      await snapshot.install();
      copy = await LogCopy.open(target);
      writer = new CopyWriter(copy, (group) => groups.push(group));
    } else if (frame.type === 'records' || frame.type === 'complete') await writer?.add(frame, 7);
  });
  for (let at = 50; at < 120; at += 1) await put(storage, `/core/x/${at % 7}`, `${at}`);
  await storage.delete('/core/x/3', (await storage.get('/core/x/3'))?.revision ?? 0);
  await until('the copy', () => copy?.lastRevision === storage.revision());
  await stop();
  await writer?.drain();
  await copy?.close();
  assert.equal(groups.at(-1)?.complete?.atMs, 7);
  const copied = await openSqliteStorage({ directory: target, clock: new FakeClock(), logger: silentLogger });
  const shown = async (one: Storage): Promise<unknown[]> =>
    (await one.list('/')).items.map(({ key, value, revision, createRevision }) => [
      key,
      value.toString(),
      revision,
      createRevision,
    ]);
  assert.deepEqual(await shown(copied), await shown(storage));
  assert.equal(copied.revision(), storage.revision());
  await copied.close();
});

/** Returns a writer of a copy whose appends last until the test settles them. */
function heldWriter(): { writer: CopyWriter; writes: number[][]; held: PromiseWithResolvers<void>[] } {
  const writes: number[][] = [];
  const held: PromiseWithResolvers<void>[] = [];
  const copy = {
    append({ revisions }: { readonly revisions: readonly number[] }): Promise<void> {
      writes.push([...revisions]);
      const one = Promise.withResolvers<void>();
      held.push(one);
      return one.promise;
    },
    proceedTo: () => undefined,
    compact: () => Promise.resolve(),
  };
  return { writer: new CopyWriter(copy as unknown as LogCopy, () => undefined), writes, held };
}

const deletionAt = (revision: number, key = '/a/b/c'): Extract<Frame, { type: 'records' }> => ({
  type: 'records',
  newestRevision: revision,
  records: {
    revisions: [revision],
    keys: [key],
    createRevisions: [1],
    expiries: [0],
    lengths: [-1],
    values: new ArrayBuffer(0),
  },
});

test('records that arrive while a group is written become one group, and a failed write is reported', async () => {
  const { writer, writes, held } = heldWriter();
  for (const revision of [1, 2, 3]) await writer.add(deletionAt(revision), 0);
  assert.deepEqual(writes, [[1]]);
  held[0]?.resolve();
  await until('the next group', () => writes.length === 2);
  assert.deepEqual(writes[1], [2, 3]);
  held[1]?.reject(new Error('the disk is full'));
  await assert.rejects(writer.drain(), /the disk is full/);
  await assert.rejects(writer.add(deletionAt(4), 0), /the disk is full/);
});

test('nothing more is received while the keys of deletions that wait take 4 MiB', async () => {
  const { writer, writes, held } = heldWriter();
  await writer.add(deletionAt(1), 0);
  let isOver = false;
  const added = writer.add(deletionAt(2, `/a/b/${'c'.repeat(4 * 1024 * 1024)}`), 0).then(() => (isOver = true));
  await new FakeClock().settle();
  assert.ok(!isOver);
  held[0]?.resolve();
  await until('the next group', () => writes.length === 2);
  held[1]?.resolve();
  await added;
});
