/**
 * Kills `orchlet controlplane` at random moments while fifty clients write, and checks that every acknowledged write survives.
 * On a full disk it refuses writes, serves reads, and resumes when there is space.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { join } from 'node:path';
import { test } from 'node:test';
import { send, type Answer, type Connection } from '../hostile/send.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const TOKEN = 'durability-token';
const MAPS = '/api/v1/namespaces/default/configmaps';
const WRITERS = 50;
const ROUNDS = 6;
const MAX_ROUND_MS = 600;

class Cluster {
  readonly process: ControlPlaneProcess;
  #agent = new Agent({ keepAlive: true, rejectUnauthorized: false });

  constructor(process: ControlPlaneProcess) {
    this.process = process;
  }

  call(method: 'GET' | 'POST' | 'PUT' | 'DELETE', path: string, body?: object): Promise<Answer> {
    const connection: Connection = {
      origin: `https://127.0.0.1:${this.process.port}`,
      agent: this.#agent,
      token: TOKEN,
    };
    const sent = body === undefined ? {} : { type: 'application/json', body: () => JSON.stringify(body) };
    return send(connection, { method, path, ...sent });
  }

  async kill(): Promise<void> {
    await this.process.stop('SIGKILL');
    this.#agent.destroy();
    this.#agent = new Agent({ keepAlive: true, rejectUnauthorized: false });
  }

  async values(): Promise<Map<string, string>> {
    const { status, text } = await this.call('GET', MAPS);
    assert.equal(status, 200, text);
    const { items } = JSON.parse(text) as { items: { metadata: { name: string }; data?: { value: string } }[] };
    return new Map(items.map(({ metadata, data }) => [metadata.name, data?.value ?? '']));
  }

  async end(): Promise<void> {
    this.#agent.destroy();
    await this.process.remove();
  }
}

function tokenFile(directory: string): string[] {
  const file = join(directory, 'tokens.csv');
  writeFileSync(file, `${TOKEN},durability,1,"system:masters"\n`);
  return ['--token-auth-file', file];
}

/**
 * The possible values of a name: the last acknowledged one, or one that was being written after it. `undefined` means that it
 * does not exist.
 */
interface Expected {
  acknowledged: string | undefined;
  underWay: string | undefined | 'nothing';
}

const body = (name: string, value: string): object => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name },
  data: { value },
});

/** Creates, updates and deletes its own objects until the server is killed. */
async function write(cluster: Cluster, id: number, round: number, ledger: Map<string, Expected>): Promise<void> {
  for (let n = 0; ; n += 1) {
    const name = `w-${id}-${n % 4}`;
    const expected = ledger.get(name) ?? { acknowledged: undefined, underWay: 'nothing' };
    ledger.set(name, expected);
    const value = `${round}.${id}.${n}.`.padEnd(100 + ((id * 7919 + n * 104_729) % 5000), 'x');
    const deletes = expected.acknowledged !== undefined && n % 5 === 4;
    expected.underWay = deletes ? undefined : value;
    let answer: Answer;
    try {
      if (deletes) answer = await cluster.call('DELETE', `${MAPS}/${name}`);
      else if (expected.acknowledged === undefined) answer = await cluster.call('POST', MAPS, body(name, value));
      else answer = await cluster.call('PUT', `${MAPS}/${name}`, body(name, value));
    } catch {
      // The server was killed, so it is unknown whether this write succeeded.
      return;
    }
    assert.ok(answer.status < 300, `${answer.status}: ${answer.text}`);
    expected.acknowledged = expected.underWay;
    expected.underWay = 'nothing';
  }
}

function check(found: ReadonlyMap<string, string>, ledger: Map<string, Expected>): void {
  for (const [name, expected] of ledger) {
    const value = found.get(name);
    const allowed =
      expected.underWay === 'nothing' ? [expected.acknowledged] : [expected.acknowledged, expected.underWay];
    assert.ok(
      allowed.includes(value),
      `${name} holds ${value?.slice(0, 20) ?? 'nothing'}, acknowledged was ${expected.acknowledged?.slice(0, 20) ?? 'nothing'}`,
    );
    expected.acknowledged = value;
    expected.underWay = 'nothing';
  }
}

test('every acknowledged write survives SIGKILL of the server', async (context) => {
  const directory = temporaryFolder();
  const cluster = new Cluster(await ControlPlaneProcess.start(tokenFile(directory)));
  context.after(async () => {
    await cluster.end();
    rmSync(directory, { recursive: true, force: true });
  });
  const ledger = new Map<string, Expected>();
  for (let round = 0; round < ROUNDS; round += 1) {
    const writers = Array.from({ length: WRITERS }, (_, id) => write(cluster, id, round, ledger));
    // The server is killed at a random moment, after every writer got a response in the first round.
    while ([...ledger.values()].every(({ acknowledged }) => acknowledged === undefined)) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await new Promise((resolve) => setTimeout(resolve, Math.random() * MAX_ROUND_MS));
    await cluster.kill();
    await Promise.all(writers);
    await cluster.process.launch();
    check(await cluster.values(), ledger);
  }
  assert.ok(ledger.size >= WRITERS, 'too little was written to show anything');
});

const mounts = process.getuid?.() === 0 && spawnSync('mount', ['--version']).status === 0;

test(
  'a full disk refuses writes and nothing else, and room is enough to go on',
  { skip: !mounts && 'mounts a small file system: needs root' },
  async (context) => {
    const directory = temporaryFolder();
    const disk = mkdtempSync(join(directory, 'disk-'));
    const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=24m', 'orchlet-full', disk]);
    if (mounted.status !== 0) {
      rmSync(directory, { recursive: true, force: true });
      context.skip('no file system can be mounted here');
      return;
    }
    const ballast = join(disk, 'ballast');
    writeFileSync(ballast, Buffer.alloc(8 * 1024 * 1024));
    const ends: (() => Promise<void>)[] = [];
    context.after(async () => {
      for (const end of ends) await end();
      spawnSync('umount', [disk]);
      rmSync(directory, { recursive: true, force: true });
    });
    const cluster = new Cluster(await ControlPlaneProcess.start(tokenFile(directory), join(disk, 'cluster')));
    ends.push(() => cluster.end());
    const value = 'x'.repeat(100_000);
    const acknowledged: string[] = [];
    let refused: Answer | undefined;
    for (let n = 0; refused === undefined; n += 1) {
      assert.ok(n < 1000, 'the disk does not fill');
      const answer = await cluster.call('POST', MAPS, body(`full-${n}`, value));
      if (answer.status === 201) acknowledged.push(`full-${n}`);
      else refused = answer;
    }
    assert.ok(acknowledged.length > 10);
    assert.ok(refused.status >= 500, refused.text);
    assert.match(refused.text, /disk is full/);
    const found = await cluster.values();
    for (const name of acknowledged) assert.equal(found.get(name), value);
    assert.equal((await cluster.call('GET', '/livez')).status, 200);

    rmSync(ballast);
    const more = await cluster.call('POST', MAPS, body('more', value));
    assert.equal(more.status, 201, more.text);
    await cluster.kill();
    await cluster.process.launch();
    const after = await cluster.values();
    for (const name of [...acknowledged, 'more']) assert.equal(after.get(name), value, name);
  },
);
