/** Checkpoints survive a power loss: they are complete, readable by root only, written rarely, and never block a pod. */
import assert from 'node:assert/strict';
import { watch } from 'node:fs';
import { chmod, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { CheckpointStore } from '../../../../../agent/pods/checkpoints/checkpoint-store.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { DRAFT_SUFFIX, replaceFile } from '../../../../../api/machinery/replace-file.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

describe('checkpoints', () => {
  let parent = '';
  let directory = '';
  let clock: FakeClock;
  const open = (logger = silentLogger): CheckpointStore => new CheckpointStore({ directory, clock, logger });

  beforeEach(async () => {
    parent = temporaryFolder();
    directory = join(parent, 'last-known');
    clock = new FakeClock();
  });

  it('are listed beside files of others whose names no key has', async () => {
    const store = open();
    store.put('pods/u1', () => ({ a: 1 }));
    await store.close();
    await writeFile(join(directory, 'pods/%zz.json'), '{}');
    assert.deepEqual(await open().keys('pods'), ['pods/u1']);
  });

  it('are read by the next run as they were put last', async () => {
    const store = open();
    store.put('pods/u1', () => ({ a: 1 }));
    store.put('pods/u1', () => ({ a: 2 }));
    store.put('node', () => 'n');
    assert.deepEqual(await store.get('pods/u1'), { a: 2 });
    await store.close();
    const next = open();
    assert.deepEqual(await next.get('pods/u1'), { a: 2 });
    assert.deepEqual(await next.keys('pods'), ['pods/u1']);
    next.delete('pods/u1');
    await next.close();
    assert.deepEqual(await open().keys('pods'), []);
    assert.equal(await open().get('pods/u1'), undefined);
  });

  it('are for root alone', async () => {
    const store = open();
    store.put('objects/secrets_a_b', () => 's');
    await store.close();
    assert.equal((await stat(join(directory, 'objects'))).mode & 0o777, 0o700);
    assert.equal((await stat(join(directory, 'objects', 'secrets_a_b.json'))).mode & 0o777, 0o600);
  });

  it('stay in their directory, whatever the names', async () => {
    const store = open();
    store.put('objects/..', () => 1);
    store.put('objects/a%2Fb', () => 2);
    await store.close();
    assert.deepEqual(await readdir(parent), ['last-known']);
    assert.deepEqual((await open().keys('objects')).toSorted(), ['objects/..', 'objects/a%2Fb']);
  });

  it('are written in batches, and only what changed', async () => {
    const store = open();
    let asked = 0;
    const put = (value: number): void => store.put('node', () => (asked++, value));
    put(1);
    await clock.advance(500);
    await store.flush();
    const first = await stat(join(directory, 'node.json'));
    for (let round = 0; round < 10; round++) {
      put(round);
      await clock.advance(100);
    }
    assert.equal(asked, 1);
    put(1);
    await store.flush();
    assert.equal(asked, 2);
    assert.equal((await stat(join(directory, 'node.json'))).ino, first.ino);
  });

  it('leave out what is torn, and go on', async () => {
    await mkdir(join(directory, 'pods'), { recursive: true });
    await writeFile(join(directory, 'pods', 'u1.json'), '{"metadata":');
    await writeFile(join(directory, 'pods', 'u2.json.new'), '{}');
    const store = open();
    assert.deepEqual(await store.keys('pods'), ['pods/u1']);
    assert.equal(await store.get('pods/u1'), undefined);
    store.put('pods/u1', () => 'whole');
    await store.close();
    assert.equal(await readFile(join(directory, 'pods', 'u1.json'), 'utf8'), '"whole"');
  });

  it('are written without the drafts that a killed agent left', async () => {
    const objects = join(directory, 'objects');
    await mkdir(objects, { recursive: true });
    for (const path of [join(directory, 'node.json'), join(objects, 'secrets_a_b.json')]) {
      await writeFile(path, '1');
      await writeFile(`${path}.0123456789ab.tmp`, '"half');
    }
    const store = open();
    store.put('pods/u1', () => 1);
    await store.close();
    assert.deepEqual((await readdir(directory)).toSorted(), ['node.json', 'objects', 'pods']);
    assert.deepEqual(await readdir(objects), ['secrets_a_b.json']);
    assert.equal(await store.get('objects/secrets_a_b'), 1);
  });

  it('have drafts that are known by their names', async () => {
    await mkdir(directory);
    const names = new Set<string>();
    const seen = watch(directory, (_event, name) => names.add(name ?? ''));
    await replaceFile(join(directory, 'node.json'), '1', { mode: 0o600 });
    while (!names.has('node.json')) await new Promise(setImmediate);
    seen.close();
    names.delete('node.json');
    assert.deepEqual(
      [...names].map((name) => DRAFT_SUFFIX.test(name)),
      [true],
    );
  });

  it('that cannot be written to the disk are logged once, kept, and written when that is possible', async () => {
    const errors: string[] = [];
    const logger = { ...silentLogger, error: (_fields: object, text: string) => void errors.push(text) };
    // A file in place of the directory makes writes fail like a full disk, also for root.
    await writeFile(directory, '');
    const store = open(logger as typeof silentLogger);
    store.put('node', () => 'kept');
    await store.flush();
    await store.flush();
    assert.equal(errors.length, 1);
    assert.equal(await store.get('node'), 'kept');
    await rm(directory);
    await clock.advance(10_000);
    await store.flush();
    assert.equal(await readFile(join(directory, 'node.json'), 'utf8'), '"kept"');
    await chmod(directory, 0o700);
  });
});
