import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, readdir, readFile, readlink, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, it } from 'node:test';
import { ContainerLogs } from '../../../../../agent/runtime/docker/container-logs.ts';
import type { DockerClient } from '../../../../../agent/runtime/docker/docker-client.ts';
import { EntryParser, lastPosition, LogWriter } from '../../../../../agent/runtime/docker/log-writer.ts';
import { RuntimeError } from '../../../../../agent/runtime/runtime.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const t = (digit: number): string => `2026-01-02T03:04:0${digit}.000000000Z`;
const none = { time: '', count: 0 };

describe('the CRI log of a Docker container', () => {
  it('marks a whole line with F and a partial line with P', () => {
    const parser = new EntryParser(none);
    const frame = (text: string): string =>
      parser.frame({ stream: 'stderr', payload: Buffer.from(text), last: true }).toString();
    assert.equal(frame(`${t(1)} hello\n`), `${t(1)} stderr F hello\n`);
    assert.equal(frame(`${t(2)} half`), `${t(2)} stderr P half\n`);
  });
  it('joins the pieces of an entry', () => {
    const parser = new EntryParser(none);
    assert.equal(parser.frame({ stream: 'stdout', payload: Buffer.from(`${t(1)} he`), last: false }).length, 0);
    assert.equal(
      parser.frame({ stream: 'stdout', payload: Buffer.from('llo\n'), last: true }).toString(),
      `${t(1)} stdout F hello\n`,
    );
  });
  it('keeps the stream of a frame that the engine has not ended', () => {
    const parser = new EntryParser(none);
    assert.equal(parser.frame({ stream: 'stderr', payload: Buffer.from(`${t(1)} he`), last: false }).length, 0);
    assert.equal(parser.flush().toString(), `${t(1)} stderr P he\n`);
  });
  it('splits the output of a terminal into lines, wherever chunks end', () => {
    const text = `${t(1)} a\n${t(2)} b c\n`;
    for (let cut = 0; cut <= text.length; cut++) {
      const parser = new EntryParser(none);
      const out = Buffer.concat([
        parser.raw(Buffer.from(text.slice(0, cut))),
        parser.raw(Buffer.from(text.slice(cut))),
        parser.flush(),
      ]).toString();
      assert.equal(out, `${t(1)} stdout F a\n${t(2)} stdout F b c\n`);
    }
  });
  it('continues after the last line in the file, even if several lines have its time', () => {
    const from = lastPosition(`${t(1)} stdout F a\n${t(2)} stdout F b\n${t(2)} stdout F c\n`);
    assert.deepEqual(from, { time: t(2), count: 2 });
    const parser = new EntryParser(from);
    const frames = ['b', 'c', 'd'].map((text) =>
      parser.frame({ stream: 'stdout', payload: Buffer.from(`${t(2)} ${text}\n`), last: true }).toString(),
    );
    assert.deepEqual(frames, ['', '', `${t(2)} stdout F d\n`]);
  });
  it('ignores an incomplete line that a crash left', () => {
    assert.deepEqual(lastPosition(`${t(1)} stdout F a\n${t(2)} stdout F b`), { time: t(1), count: 1 });
    assert.deepEqual(lastPosition(''), none);
  });
});

describe('the writers of CRI logs', () => {
  it('do nothing for a container that is removed while they start', async () => {
    const inspect = async (): Promise<never> => {
      throw new RuntimeError('not-found', 'No such container: c');
    };
    const client = {
      call: (_what: string, ask: () => Promise<unknown>) => ask(),
      docker: { getContainer: () => ({ inspect }) },
    } as unknown as DockerClient;
    const logs = new ContainerLogs({ client, clock: new FakeClock(), logger: silentLogger });
    await logs.write('c');
    await logs.close();
  });
});

describe('the writer of a CRI log', () => {
  let directory = '';
  beforeEach(async () => {
    directory = temporaryFolder();
  });

  /**
   * Returns a fake engine with one line of log for each second from 1. A log stream returns those from the requested time until
   * it breaks.
   */
  const engine = (lines: number, breaksAfter: readonly number[]): { client: DockerClient; asked: string[] } => {
    const asked: string[] = [];
    const logs = ({ since = '' }: { since?: string }): Promise<Readable> => {
      asked.push(String(since));
      const limit = breaksAfter[asked.length - 1] ?? Infinity;
      function* frames(): Generator<Buffer> {
        let given = 0;
        for (let line = 1; line <= lines; line++) {
          if (since !== '' && Date.parse(t(line)) / 1000 < Number(since)) continue;
          if (given++ >= limit) throw new Error('the connection broke');
          const text = Buffer.from(`${t(line)} line ${line}\n`);
          const head = Buffer.from([1, 0, 0, 0, 0, 0, 0, text.length]);
          yield Buffer.concat([head, text]);
        }
      }
      return Promise.resolve(Readable.from(frames()));
    };
    return { client: { docker: { getContainer: () => ({ logs }) } } as unknown as DockerClient, asked };
  };

  const write = async (path: string, from: ReturnType<typeof engine>): Promise<string> => {
    const clock = new FakeClock();
    const deps = { client: from.client, clock, logger: silentLogger, running: () => Promise.resolve(false) };
    await new LogWriter({ id: 'c', tty: false, logPath: path }, deps).finished;
    return readFile(path, 'utf8');
  };
  const whole = (count: number): string =>
    Array.from({ length: count }, (_value, index) => `${t(index + 1)} stdout F line ${index + 1}\n`).join('');

  it('writes every line once', async () =>
    assert.equal(await write(join(directory, '0.log'), engine(3, [])), whole(3)));

  it('makes its folder, and none where a link takes the place of the folder of its pod', async () => {
    const logs = join(directory, 'pods');
    await mkdir(join(directory, 'host'));
    await mkdir(logs);
    await symlink(join(directory, 'host'), join(logs, 'linked'));
    assert.equal(await write(join(logs, 'pod/c/0.log'), engine(1, [])), whole(1));
    await assert.rejects(write(join(logs, 'linked/c/0.log'), engine(1, [])), { code: 'ENOENT' });
    assert.deepEqual(await readdir(join(directory, 'host')), []);
  });

  it('continues after a rotated log, whatever a pod puts beside it', { timeout: 10_000 }, async () => {
    await writeFile(join(directory, '0.log'), '');
    await writeFile(join(directory, '0.log.20260102-030405'), whole(2));
    execFileSync('mkfifo', [join(directory, '0.log.20270102-030405')]);
    await symlink('/etc/hostname', join(directory, '0.log.20280102-030405'));
    assert.equal(await write(join(directory, '0.log'), engine(3, [])), `${t(3)} stdout F line 3\n`);
  });

  it('truncates an incomplete line that a killed agent or a full disk left, and writes it again', async () => {
    const path = join(directory, '0.log');
    await writeFile(path, `${whole(2)}${t(3)} stdout F li`);
    const from = engine(4, []);
    assert.equal(await write(path, from), whole(4));
    assert.deepEqual(from.asked.length, 1);
  });

  it('leaves no descriptor open if the container ends while its log is rotated', async () => {
    const open = async (): Promise<readonly string[]> => {
      const descriptors = await readdir('/proc/self/fd');
      const paths = await Promise.all(descriptors.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')));
      return paths.filter((path) => path.startsWith(directory));
    };
    for (let round = 0; round < 10; round++) {
      const output = new PassThrough();
      let isFollowed = false;
      const logs = (): Promise<Readable> => {
        isFollowed = true;
        return Promise.resolve(output);
      };
      const client = { docker: { getContainer: () => ({ logs }) } } as unknown as DockerClient;
      const writer = new LogWriter(
        { id: 'c', tty: false, logPath: join(directory, `${round}.log`) },
        { client, clock: new FakeClock(), logger: silentLogger, running: () => Promise.resolve(false) },
      );
      while (!isFollowed) await sleep(1);
      const reopened = writer.reopen();
      output.end();
      await Promise.all([reopened, writer.finished]);
      assert.deepEqual(await open(), []);
    }
  });

  it('repeats nothing if the stream breaks in the middle', async () => {
    const clock = new FakeClock();
    const path = join(directory, '0.log');
    const from = engine(5, [2]);
    let looks = 0;
    const writer = new LogWriter(
      { id: 'c', tty: false, logPath: path },
      // The writer runs until the connection works again.
      { client: from.client, clock, logger: silentLogger, running: () => Promise.resolve(++looks <= 2) },
    );
    let isFinished = false;
    void writer.finished.then(() => (isFinished = true));
    // Real files are written between the waits, so the test cannot know when the writer waits for the clock.
    while (!isFinished) await clock.advance(1_000);
    assert.equal(await readFile(path, 'utf8'), whole(5));
    assert.equal(from.asked.length, 2);
  });
});
