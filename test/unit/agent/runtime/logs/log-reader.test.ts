import assert from 'node:assert/strict';
import { once } from 'node:events';
import { appendFile, rename, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import { before, describe, it } from 'node:test';
import { type LogOptions, readLog } from '../../../../../agent/runtime/logs/log-reader.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const plain: LogOptions = { follow: false, previous: false, timestamps: false };
const line = (second: number, text: string, tag = 'F', stream = 'stdout'): string =>
  `2026-01-02T03:04:${String(second).padStart(2, '0')}.000000000Z ${stream} ${tag} ${text}\n`;

describe('reading a container log', () => {
  let directory = '';
  before(() => void (directory = temporaryFolder()));

  async function read(content: string, options: Partial<LogOptions>): Promise<string> {
    const path = join(directory, 'fixed.log');
    await writeFile(path, content);
    const out = new PassThrough();
    const chunks: Buffer[] = [];
    out.on('data', (chunk: Buffer) => chunks.push(chunk));
    await readLog(
      path,
      { ...plain, ...options },
      { out, signal: new AbortController().signal },
      { clock: systemClock, isRunning: () => Promise.resolve(false) },
    );
    return Buffer.concat(chunks).toString();
  }

  it('ends with a client that has gone, and with a request that was aborted', { timeout: 20_000 }, async () => {
    const path = join(directory, 'unread.log');
    await writeFile(path, line(1, 'a'.repeat(100_000)) + line(2, 'b'));
    const clock = { clock: systemClock, isRunning: () => Promise.resolve(false) };
    const gone = new PassThrough();
    gone.destroy();
    await once(gone, 'close');
    await readLog(path, plain, { out: gone, signal: new AbortController().signal }, clock);
    const stuck = new Writable({ highWaterMark: 1, write() {} });
    await readLog(path, plain, { out: stuck, signal: AbortSignal.abort() }, clock);
  });

  for (const [what, options] of [
    ['all of it', {}],
    ['its tail', { tailLines: 5 }],
  ] as const)
    it(`ends with a client that has gone from ${what} of a sparse log of a terabyte`, { timeout: 60_000 }, async () => {
      const path = join(directory, 'sparse.log');
      await writeFile(path, line(1, 'a'));
      await truncate(path, 2 ** 40);
      const gone = new AbortController();
      const deps = { clock: systemClock, isRunning: () => Promise.resolve(true) };
      const reading = readLog(path, { ...plain, ...options }, { out: new PassThrough(), signal: gone.signal }, deps);
      await new Promise((resolve) => setTimeout(resolve, 50));
      gone.abort();
      await reading;
    });

  const three = line(1, 'a') + line(2, 'b', 'F', 'stderr') + line(3, 'c');
  it('shows the text of every line', async () => assert.equal(await read(three, {}), 'a\nb\nc\n'));
  it('shows timestamps on request', async () =>
    assert.equal(await read(line(1, 'a'), { timestamps: true }), '2026-01-02T03:04:01.000000000Z a\n'));
  it('shows the last lines', async () => assert.equal(await read(three, { tailLines: 2 }), 'b\nc\n'));
  it('shows nothing for a tail of none', async () => assert.equal(await read(three, { tailLines: 0 }), ''));
  it('shows everything where the tail is longer', async () =>
    assert.equal(await read(three, { tailLines: 9 }), 'a\nb\nc\n'));
  it('counts every part of a line for a tail', async () =>
    assert.equal(await read(line(1, 'x') + line(2, 'long ', 'P') + line(2, 'line'), { tailLines: 1 }), 'line\n'));
  it('shows no entry without an end for a tail that is full, and for a log that was followed', async () => {
    const torn = line(1, 'a') + line(2, 'b').trimEnd();
    assert.equal(await read(torn, { tailLines: 1 }), 'a\n');
    assert.equal(await read(torn, { tailLines: 2 }), 'a\nb');
    assert.equal(await read(torn, { follow: true }), 'a\n');
  });
  it('counts entries that are older or of the other stream for a tail', async () => {
    assert.equal(await read(three, { tailLines: 2, sinceTime: '2026-01-02T03:04:03Z' }), 'c\n');
    assert.equal(await read(three, { tailLines: 2, stream: 'Stdout' }), 'c\n');
  });
  it('shows the timestamp of a line whose first part is of the other stream at the next line', async () =>
    assert.equal(
      await read(line(1, 'a', 'P', 'stderr') + line(2, 'b') + line(3, 'c'), { stream: 'Stdout', timestamps: true }),
      'b\n2026-01-02T03:04:03.000000000Z c\n',
    ));
  it("reads the format of Docker's json-file driver", async () => {
    const entry = (second: number, log: string, stream: string): string =>
      `${JSON.stringify({ log, stream, time: `2026-01-02T03:04:0${second}.5Z` })}\n`;
    const log = entry(1, 'long ', 'stdout') + entry(2, 'line\n', 'stdout') + entry(3, 'e\n', 'stderr');
    assert.equal(await read(log, {}), 'long line\ne\n');
    const since = { tailLines: 2, timestamps: true, sinceTime: '2026-01-02T03:04:02Z' };
    assert.equal(await read(log, since), '2026-01-02T03:04:02.500000000Z line\n2026-01-02T03:04:03.500000000Z e\n');
    await assert.rejects(read(entry(1, 'x', 'other'), {}), /^Error: unexpected stream type "other"$/);
  });
  it('shows the lines since a time', async () =>
    assert.equal(await read(three, { sinceTime: '2026-01-02T03:04:02Z' }), 'b\nc\n'));
  it('shows everything for any number of seconds', async () =>
    assert.equal(await read(three, { sinceSeconds: Number.MAX_SAFE_INTEGER }), 'a\nb\nc\n'));
  it('ends at the limit of bytes', async () => assert.equal(await read(three, { limitBytes: 3 }), 'a\nb'));
  it('shows one stream', async () => assert.equal(await read(three, { stream: 'Stderr' }), 'b\n'));
  it('shows one time a line, with all nine digits, however the runtime cut it', async () => {
    const cut = '2026-01-02T03:04:05.25Z stdout P long \n2026-01-02T03:04:05.250001Z stdout F line\n';
    assert.equal(
      await read(`${cut}2026-01-02T04:04:06.1+01:00 stdout F next\n`, { timestamps: true }),
      '2026-01-02T03:04:05.250000000Z long line\n2026-01-02T04:04:06.100000000+01:00 next\n',
    );
  });
  it('compares times to the nanosecond, of any zone', async () => {
    const log = ['03:04:05.1Z', '03:04:05.100000001Z', '04:04:05.2+01:00', '03:04:06Z']
      .map((time) => `2026-01-02T${time} stdout F ${time}\n`)
      .join('');
    assert.equal(
      await read(log, { sinceTime: '2026-01-02T03:04:05.100000001Z' }),
      '03:04:05.100000001Z\n04:04:05.2+01:00\n03:04:06Z\n',
    );
  });
  it('omits entries in another format than the first, which must be in a known one', async () => {
    assert.equal(await read(`${line(1, 'a')}no time here at all\n\n${line(2, 'b')}`, {}), 'a\nb\n');
    await assert.rejects(
      read(`no time here\n${line(2, 'b')}`, {}),
      /^Error: failed to get parse function: unsupported log format: "no time here\\n"$/,
    );
  });
  it('shows a zone without an offset as UTC', async () =>
    assert.equal(
      await read('2026-01-02T03:04:05.1+00:00 stdout F a\n', { timestamps: true }),
      '2026-01-02T03:04:05.100000000Z a\n',
    ));
  it('shows a last line that has no end', async () =>
    assert.equal(await read(`${line(1, 'a')}${line(2, 'b').trimEnd()}`, {}), 'a\nb'));
  it('counts entries for a tail over chunks', async () => {
    const cut = `${line(3, 'x'.repeat(16_384), 'P').repeat(9)}${line(3, 'end')}`;
    const log = `${line(1, 'a')}${line(2, 'b')}${cut}${line(4, 'd')}`;
    const last = `${'x'.repeat(9 * 16_384)}end\nd\n`;
    assert.equal(await read(log, { tailLines: 11 }), last);
    assert.equal(await read(log, { tailLines: 12 }), `b\n${last}`);
    assert.equal(await read(log, { tailLines: 13 }), `a\nb\n${last}`);
    assert.equal(await read(log, { tailLines: 1 }), 'd\n');
  });
  it('waits for the log of a container that has just started, where it is followed', async () => {
    const path = join(directory, 'not-yet.log');
    const out = new PassThrough();
    let text = '';
    out.on('data', (chunk: Buffer) => (text += chunk.toString()));
    const clock = new FakeClock();
    let running = true;
    const deps = { clock, isRunning: () => Promise.resolve(running) };
    let ended = false;
    const reading = readLog(path, { ...plain, follow: true }, { out, signal: new AbortController().signal }, deps);
    void reading.then(() => (ended = true));
    for (let looks = 0; looks < 3; looks++) await clock.advance(100);
    await writeFile(path, line(1, 'a'));
    running = false;
    while (!ended) await clock.advance(100);
    assert.equal(text, 'a\n');
  });
  it('finds the tail of a large log', async () => {
    const many = Array.from({ length: 5_000 }, (_value, index) => line(index % 60, `line ${index}`)).join('');
    assert.equal(await read(many, { tailLines: 3 }), 'line 4997\nline 4998\nline 4999\n');
  });

  it('shows no more lines than the tail has, although the container goes on writing', async () => {
    const path = join(directory, 'growing.log');
    await writeFile(path, three);
    let text = '';
    let added = 0;
    // The reader waits for each write, during which the log grows.
    const out = new Writable({
      highWaterMark: 1,
      write(chunk: Buffer, _encoding, done) {
        text += chunk.toString();
        void appendFile(path, added++ < 3 ? line(4, 'd') : '').then(() => done());
      },
    });
    const deps = { clock: systemClock, isRunning: () => Promise.resolve(true) };
    await readLog(path, { ...plain, tailLines: 2 }, { out, signal: new AbortController().signal }, deps);
    assert.equal(text, 'b\nc\n');
  });

  it('shows a line of 64 MiB that the runtime wrote in parts, holding no more than a part of it', async () => {
    const part = 'x'.repeat(16 * 1024);
    const parts = 4096;
    const path = join(directory, 'parts.log');
    await writeFile(path, '');
    for (let written = 0; written < parts; written += 256)
      await appendFile(path, line(1, part, 'P').repeat(Math.min(256, parts - written)));
    await appendFile(path, line(1, 'end'));
    let size = 0;
    let newlines = 0;
    let largest = 0;
    const out = new Writable({
      highWaterMark: 1,
      write(chunk: Buffer, _encoding, done) {
        size += chunk.length;
        largest = Math.max(largest, chunk.length);
        if (chunk.includes(10)) newlines++;
        setImmediate(done);
      },
    });
    const deps = { clock: systemClock, isRunning: () => Promise.resolve(false) };
    await readLog(path, plain, { out, signal: new AbortController().signal }, deps);
    assert.deepEqual([size, newlines], [parts * part.length + 'end\n'.length, 1]);
    assert.ok(largest <= 64 * 1024, `${largest} bytes at once`);
  });

  it('keeps only the beginning of an oversized line, and continues after it', async () => {
    const shown = await read(`${line(1, 'a')}${line(2, 'y'.repeat(8 * 1024 * 1024))}${line(3, 'c')}`, {});
    const [first, long = '', last] = shown.split('\n');
    assert.deepEqual([first, last], ['a', 'c']);
    assert.ok(long.length >= 1024 * 1024 - 100 && long.length < 2 * 1024 * 1024, `${long.length}`);
  });

  it('reads lines that are written to the rotated log after the new one exists', async () => {
    const path = join(directory, 'late.log');
    await writeFile(path, line(1, 'a'));
    const out = new PassThrough();
    let text = '';
    out.on('data', (chunk: Buffer) => (text += chunk.toString()));
    const clock = new FakeClock();
    let running = true;
    const deps = { clock, isRunning: () => Promise.resolve(running) };
    const reading = readLog(path, { ...plain, follow: true }, { out, signal: new AbortController().signal }, deps);
    // From here on, the log is open.
    await once(out, 'data');
    await rename(path, `${path}.1`);
    await writeFile(path, line(3, 'c'));
    // The reader polls the new file several times before the writer switches to it.
    await clock.advance(100);
    await appendFile(`${path}.1`, line(2, 'b'));
    running = false;
    let ended = false;
    void reading.then(() => (ended = true));
    while (!ended) await clock.advance(100);
    assert.equal(text, 'a\nb\nc\n');
  });

  it('follows over a rotation until the container ends', async () => {
    const path = join(directory, 'followed.log');
    await writeFile(path, line(1, 'a'));
    const out = new PassThrough();
    let text = '';
    let running = true;
    const keep = setInterval(() => undefined, 1_000);
    const until = async (wanted: string): Promise<void> => {
      while (text !== wanted) await once(out, 'data');
    };
    out.on('data', (chunk: Buffer) => (text += chunk.toString()));
    const reading = readLog(
      path,
      { ...plain, follow: true },
      { out, signal: new AbortController().signal },
      { clock: systemClock, isRunning: () => Promise.resolve(running) },
    );
    await until('a\n');
    await appendFile(path, line(2, 'b'));
    await rename(path, `${path}.1`);
    await writeFile(path, line(3, 'c'));
    await until('a\nb\nc\n');
    running = false;
    await appendFile(path, line(4, 'd'));
    await until('a\nb\nc\nd\n');
    await reading;
    clearInterval(keep);
  });
});
