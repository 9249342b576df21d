/**
 * Tests two control planes on SQLite, of which one is the warm standby of the other: the first is killed under load, the
 * standby takes its place, and the former first comes back as a standby. Each write that was acknowledged is judged.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { keepAlive, systemClock } from '../../api/machinery/clock.ts';
import { peerClient, readClusterKeys } from '../../controlplane/standby/identity.ts';
import { STANDBY_PATH } from '../../controlplane/standby/peer-paths.ts';
import { readRole } from '../../controlplane/standby/role.ts';
import type { StandbyReport } from '../../controlplane/standby/standby.ts';
import { json } from 'node:stream/consumers';
import { type Answer, Api } from '../soak/api.ts';
import { until } from '../until.ts';
import { freePort } from './free-port.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');
const MAPS = '/api/v1/namespaces/default/configmaps';
const ENCRYPTION = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [configmaps]
  providers:
  - aesgcm: {keys: [{name: k, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
`;

interface Result {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const orchlet = (...args: readonly string[]): Result => spawnSync(ORCHLET, args, { encoding: 'utf8', timeout: 90_000 });

class Plane {
  readonly directory: string;
  readonly port: number;
  readonly url: string;
  readonly api: Api;
  readonly #scratch: string;
  #child: ChildProcess | undefined;
  log = '';

  constructor(scratch: string, name: string, port: number) {
    this.#scratch = scratch;
    this.directory = join(scratch, name);
    this.port = port;
    this.url = `https://127.0.0.1:${port}`;
    this.api = new Api(port, 'test');
  }

  launch(...more: readonly string[]): void {
    const child = spawn(
      ORCHLET,
      [
        ...['controlplane', '--data-dir', this.directory, '--bind-address', '127.0.0.1'],
        ...['--secure-port', `${this.port}`, '--advertise-address', '127.0.0.1', '--manifests-dir', ''],
        ...['--token-auth-file', join(this.#scratch, 'tokens.csv'), '--scheduler=false'],
        ...['--encryption-provider-config', join(this.#scratch, 'encryption.yaml'), ...more],
      ],
      { stdio: ['ignore', 'pipe', 'pipe'] },
    );
    this.#child = child;
    this.log = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (part: Buffer) => (this.log = (this.log + part.toString()).slice(-20_000)));
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  async ready(): Promise<void> {
    await this.#until('a ready control plane', async () => {
      if (!this.isRunning) throw new Error('it exited');
      return (await this.api.call('GET', '/readyz', undefined, 5000)).status === 200;
    });
  }

  /** Resolves when the copy of this standby has everything. */
  async following(): Promise<StandbyReport> {
    const since = Date.now();
    return this.#until('a complete copy', async () => {
      const report = await this.report();
      return report.isConnected && report.completeAtMs > since ? report : undefined;
    });
  }

  async report(): Promise<StandbyReport> {
    const client = peerClient(this.url, await readClusterKeys(this.directory), systemClock);
    try {
      return (await json((await client.raw({ method: 'GET', path: STANDBY_PATH })).body)) as StandbyReport;
    } finally {
      client.close();
    }
  }

  async exited(): Promise<void> {
    await this.#until('the exit', () => !this.isRunning);
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    if (this.#child === undefined || !this.isRunning) return;
    const exited = once(this.#child, 'exit');
    this.#child.kill(signal);
    await exited;
  }

  #until<T>(what: string, check: () => Promise<T | undefined | false> | T | undefined | false): Promise<T> {
    return until(what, check, 60_000).catch((error: unknown) => {
      throw new Error(`${String(error)}:\n${this.log.slice(-4000)}`, { cause: error });
    });
  }
}

/** Creates and updates objects until it is stopped, and keeps every answer. */
class Load {
  readonly acknowledged = new Map<string, { uid: string; revision: number; value: string }[]>();
  #isStopped = false;
  readonly #over: Promise<void[]>;
  writes = 0;

  constructor(api: Api, prefix: string) {
    this.#over = Promise.all([0, 1, 2, 3].map((writer) => this.#write(api, `${prefix}-${writer}`)));
  }

  async #write(api: Api, prefix: string): Promise<void> {
    for (let at = 0; !this.#isStopped; at += 1) {
      const name = `${prefix}-${at % 40}`;
      const value = `${prefix}.${at}`;
      const metadata = { name };
      const answer =
        at < 40
          ? await api.call('POST', MAPS, { metadata, data: { v: value } })
          : await api.call('PUT', `${MAPS}/${name}`, { metadata, data: { v: value } });
      if (answer.status !== 200 && answer.status !== 201) return;
      const { uid = '', resourceVersion = '' } = answer.body.metadata ?? {};
      const seen = this.acknowledged.get(name) ?? [];
      seen.push({ uid, revision: Number(resourceVersion), value });
      this.acknowledged.set(name, seen);
      this.writes += 1;
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#over;
  }

  /** Returns how many acknowledged writes are lost, which must be those above the revision alone. */
  async judge(api: Api, copied: number): Promise<number> {
    let lost = 0;
    const { items = [] } = (await api.call('GET', MAPS)).body;
    const found = new Map(items.map((item) => [item.metadata?.name, item]));
    for (const [name, writes] of this.acknowledged) {
      const kept = writes.filter(({ revision }) => revision <= copied);
      lost += writes.length - kept.length;
      const [last, object] = [kept.at(-1), found.get(name)];
      const shown = {
        uid: object?.metadata?.uid,
        revision: Number(object?.metadata?.resourceVersion),
        value: object?.data?.v,
      };
      // A write that was not answered may have been copied as well.
      if (last === undefined && object === undefined) continue;
      const isUnanswered = last === undefined || (shown.revision > last.revision && shown.revision <= copied);
      if (!isUnanswered) assert.deepEqual(shown, last, name);
    }
    return lost;
  }
}

describe('a warm standby', { timeout: 900_000 }, () => {
  const scratch = temporaryFolder();
  const alive = keepAlive();
  let first: Plane;
  let second: Plane;
  let copied = 0;

  before(async () => {
    writeFileSync(join(scratch, 'tokens.csv'), 'test,test,test,"system:masters"\n');
    writeFileSync(join(scratch, 'encryption.yaml'), ENCRYPTION, { mode: 0o600 });
    first = new Plane(scratch, 'first', await freePort());
    second = new Plane(scratch, 'second', await freePort());
    first.launch();
    await first.ready();
  });
  after(async () => {
    for (const plane of [first, second]) {
      await plane.end('SIGKILL');
      plane.api.close();
    }
    alive.cancel();
    rmSync(scratch, { recursive: true, force: true });
  });

  it('joins by the bundle of a control plane, and copies everything, encrypted values as they are', async () => {
    assert.equal(
      (await first.api.call('POST', MAPS, { metadata: { name: 'plain' }, data: { v: 'clear-text' } })).status,
      201,
    );
    const kubeconfig = join(first.directory, 'admin.kubeconfig');
    const made = orchlet(
      'token',
      'create',
      '--control-plane',
      '--kubeconfig',
      kubeconfig,
      '--data-dir',
      first.directory,
    );
    assert.equal(made.status, 0, made.stderr);
    const joined = await until('a join', () => {
      const tried = orchlet('join', ...made.stdout.trim().split(' ').slice(2), '--data-dir', second.directory);
      if (tried.status !== 0) throw new Error(tried.stderr);
      return tried;
    });
    assert.match(joined.stdout, new RegExp(`--standby-of ${first.url}`));
    second.launch('--standby-of', first.url);
    const report = await second.following();
    assert.deepEqual([report.snapshots, report.hasSealedValues || report.revision > 0], [1, true]);
    const database = join(second.directory, 'storage/orchlet.db');
    assert.equal(statSync(database).mode & 0o777, 0o600);
    assert.ok(!readFileSync(database).includes('clear-text'));
    assert.ok(readFileSync(database).includes('k8s:enc:aesgcm'));
  });

  it('serves no API, is not ready, and says whose standby it is', async () => {
    assert.equal((await second.api.call('GET', '/readyz')).status, 503);
    assert.equal((await second.api.call('GET', '/livez')).status, 200);
    const refused = await second.api.call('POST', MAPS, { metadata: { name: 'refused' } });
    assert.equal(refused.status, 503);
    assert.match(
      refused.body.message ?? '',
      new RegExp(`is a standby of ${first.url} \\(connected; .*\\): use ${first.url}`),
    );
  });

  it('gives neither the log nor its promotion to an administrator', async () => {
    const denied: Answer[] = [];
    for (const plane of [first, second])
      for (const [method, path] of [
        ['GET', 'log'],
        ['POST', 'fence'],
        ['POST', 'promote?force=true'],
        ['GET', 'standby'],
      ] as const)
        denied.push(
          await plane.api.call(
            method,
            `/orchlet/control-plane/${path}`,
            method === 'POST' ? { by: first.url } : undefined,
          ),
        );
    assert.deepEqual(
      denied.map(({ status }) => status),
      denied.map(() => 403),
    );
    assert.equal((await first.api.call('POST', MAPS, { metadata: { name: 'not-fenced' } })).status, 201);
  });

  it('continues its copy after a break, without another snapshot', async () => {
    await second.end('SIGKILL');
    assert.equal((await first.api.call('POST', MAPS, { metadata: { name: 'in-the-break' } })).status, 201);
    second.launch('--standby-of', first.url);
    assert.equal((await second.following()).snapshots, 0);
    const without = orchlet('controlplane', '--data-dir', second.directory, '--secure-port', `${second.port}`);
    assert.notEqual(without.status, 0);
    assert.match(without.stderr, /has the copy of a standby: start it with --standby-of/);
  });

  it('loses no more than its lag when the first is killed under load, and its watches see no old revision', async (t) => {
    const load = new Load(first.api, 'killed');
    await until('load', () => load.writes > 400);
    await first.end('SIGKILL');
    await load.stop();
    const refused = orchlet('promote', '--data-dir', second.directory);
    assert.equal(refused.status, 1);
    assert.match(
      refused.stderr,
      /does not stop .* The copy ends at revision \d+ and was complete \d+ s ago .* repeat the command with --force/,
    );
    assert.match(
      orchlet('promote', '--dry-run', '--data-dir', second.directory).stdout,
      /not connected .* is not in it/,
    );
    const done = orchlet('promote', '--force', '--data-dir', second.directory);
    assert.equal(done.status, 0, done.stderr);
    await second.ready();
    const role = readRole(second.directory);
    assert.equal(role.role, 'promoted');
    copied = role.role === 'promoted' ? role.revision : 0;
    const lost = await load.judge(second.api, copied);
    t.diagnostic(`${load.writes} writes were acknowledged, ${lost} of them after the last one that was copied`);
    const created = await second.api.call('POST', MAPS, { metadata: { name: 'after-promotion' } });
    assert.ok(Number(created.body.metadata?.resourceVersion) > copied + 1_000_000);
    const { over } = second.api.watch(`${MAPS}?watch=true&resourceVersion=${copied}`, ({ object }) =>
      assert.equal(object.code, 410),
    );
    assert.equal(await over, 200);
    assert.equal((await second.api.call('GET', `${MAPS}/in-the-break`)).status, 200);
  });

  it('does not let the former first take a write when it comes back, which says what to do then', async () => {
    first.launch();
    const statuses = new Set<number>();
    while (first.isRunning) {
      statuses.add((await first.api.call('POST', MAPS, { metadata: { name: 'late' } })).status);
      await systemClock.sleep(20);
    }
    assert.deepEqual([...statuses], [0]);
    await first.exited();
    assert.equal(readRole(first.directory).role, 'fenced');
    first.launch();
    await first.exited();
    assert.match(
      first.log,
      new RegExp(
        `the control plane ${second.url} took the place of this one .* start it with --standby-of ${second.url}`,
      ),
    );
  });

  it('makes the former first the standby, keeps what it had aside, and follows after a restart of the first', async () => {
    first.launch('--standby-of', second.url);
    assert.equal((await first.following()).snapshots, 1);
    await until('the confirmation', () => {
      const role = readRole(second.directory);
      return role.role === 'promoted' && role.isFenced;
    });
    const [kept = ''] = readdirSync(first.directory).filter((name) => name.startsWith('before-standby-'));
    assert.ok(readdirSync(join(first.directory, kept)).includes('orchlet.db'));
    await second.end('SIGTERM');
    // The flag of the time before its promotion has no effect.
    second.launch('--standby-of', first.url);
    await second.ready();
    assert.equal((await first.following()).snapshots, 1);
  });

  it('takes the place of a first that runs without losing an acknowledged write', async () => {
    const load = new Load(second.api, 'planned');
    await until('load', () => load.writes > 300);
    const done = orchlet('promote', '--data-dir', first.directory);
    assert.equal(done.status, 0, done.stderr);
    assert.match(done.stdout, /This host has the first control plane now\. Nothing is lost\./);
    await load.stop();
    await first.ready();
    const role = readRole(first.directory);
    assert.ok(role.role === 'promoted' && role.isFenced);
    assert.equal(await load.judge(first.api, role.revision), 0);
    await second.exited();
    // The second one was started with --standby-of, as a service is: the next start makes it the standby.
    second.launch('--standby-of', first.url);
    await second.following();
  });

  it('gives up a database that nobody could stop only by a command, which names what is only there', async () => {
    const load = new Load(first.api, 'unfinished');
    await until('load', () => load.writes > 300);
    // A standby that was only stopped would still read what its socket had received.
    await second.end('SIGKILL');
    const { writes } = load;
    await until('more load', () => load.writes > writes + 20);
    await first.end('SIGKILL');
    await load.stop();
    second.launch('--standby-of', first.url);
    // The standby has no report of its copy before it follows.
    await until('the standby', async () => (await second.report().catch(() => undefined))?.completeAtMs);
    assert.equal(orchlet('promote', '--force', '--data-dir', second.directory).status, 0);
    await second.ready();
    const named = orchlet('demote', second.url, '--data-dir', first.directory);
    assert.match(named.stderr, /the database ends at revision \d+, .* revisions are only here/);
    const demoted = orchlet('demote', second.url, '--force', '--data-dir', first.directory);
    assert.equal(demoted.status, 0, demoted.stderr);
    first.launch('--standby-of', second.url);
    await first.following();
    await until('the confirmation', () => {
      const role = readRole(second.directory);
      return role.role === 'promoted' && role.isFenced;
    });
  });

  it('becomes the standby by itself if the other one was promoted while it did not run, and both have the flag', async () => {
    await second.end('SIGKILL');
    assert.equal(orchlet('promote', '--force', '--data-dir', first.directory).status, 0);
    await first.ready();
    second.launch('--standby-of', first.url);
    await second.following();
    assert.match(second.log, /The other control plane was promoted later than this one/);
    assert.equal(readRole(second.directory).role, 'standby');
  });
});
