/**
 * Tests control planes that run their own etcd: further ones join, members die and leave, and what a cluster needs cannot be
 * removed.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { keepAlive } from '../../api/machinery/clock.ts';
import { etcdPaths } from '../../controlplane/storage/etcd-member/etcd-files.ts';
import { EtcdMembers } from '../../controlplane/storage/etcd/etcd-members.ts';
import { etcdMissing } from '../etcd-process.ts';
import { Api } from '../soak/api.ts';
import { until } from '../until.ts';
import { freePort } from './free-port.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');
const MAPS = '/api/v1/namespaces/default/configmaps';

/** Returns the command line of a process, or an empty text if the process is gone. */
const commandOf = (pid: number): string =>
  spawnSync('cat', [`/proc/${pid}/cmdline`], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).stdout;

class Plane {
  readonly directory: string;
  readonly port: number;
  readonly api: Api;
  readonly etcdUrl: string;
  readonly #arguments: readonly string[];
  child: ChildProcess | undefined;
  log = '';

  constructor(scratch: string, name: string, ports: readonly [number, number, number]) {
    this.directory = join(scratch, name);
    this.port = ports[0];
    this.api = new Api(this.port, 'test');
    this.etcdUrl = `https://127.0.0.1:${ports[1]}`;
    this.#arguments = [
      ...['controlplane', '--data-dir', this.directory, '--bind-address', '127.0.0.1', '--secure-port', `${this.port}`],
      ...['--advertise-address', '127.0.0.1', '--token-auth-file', join(scratch, 'tokens.csv'), '--manifests-dir', ''],
      ...['--etcd', 'embedded', '--etcd-client-port', `${ports[1]}`, '--etcd-peer-port', `${ports[2]}`],
      ...['--scheduler=false', '--leader-elect-lease-duration=4s', '--leader-elect-renew-deadline=3s'],
      '--leader-elect-retry-period=500ms',
    ];
  }

  launch(more: readonly string[] = []): void {
    const child = spawn(ORCHLET, [...this.#arguments, ...more], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.child = child;
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (part: Buffer) => (this.log = (this.log + part.toString()).slice(-20_000)));
  }

  async ready(): Promise<void> {
    await until(
      'a ready control plane',
      async () => {
        if (this.child?.exitCode !== null) throw new Error('it exited');
        return (await this.api.call('GET', '/readyz', undefined, 5000)).status === 200;
      },
      90_000,
    ).catch((error: unknown) => {
      throw new Error(`${String(error)}:\n${this.log.slice(-4000)}`);
    });
  }

  get etcdPid(): number {
    return Number(readFileSync(etcdPaths(this.directory).pid, 'utf8'));
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    const { child } = this;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  }

  /** Ends everything, also an etcd that a killed control plane has left behind. */
  async remove(): Promise<void> {
    await this.end('SIGKILL');
    this.api.close();
    if (!existsSync(etcdPaths(this.directory).pid)) return;
    if (commandOf(this.etcdPid).includes(this.directory)) process.kill(this.etcdPid, 'SIGKILL');
  }
}

describe('control planes with their own etcd', { skip: etcdMissing, timeout: 240_000 }, () => {
  const scratch = temporaryFolder();
  const alive = keepAlive();
  const planes: Plane[] = [];

  const plane = async (name: string): Promise<Plane> => {
    const made = new Plane(scratch, name, [await freePort(), await freePort(), await freePort()]);
    planes.push(made);
    return made;
  };
  const orchlet = (...args: readonly string[]): { status: number | null; stdout: string; stderr: string } =>
    spawnSync(ORCHLET, args, { encoding: 'utf8', timeout: 60_000 });
  const create = async ({ api }: Plane, name: string): Promise<number> =>
    (await api.call('POST', MAPS, { metadata: { name } })).status;
  const at = (index: number): Plane => {
    const found = planes[index];
    assert.ok(found);
    return found;
  };

  /** Joins a control plane to the first one by the commands that an administrator types. */
  async function join_(joining: Plane): Promise<void> {
    const { directory } = at(0);
    const kubeconfig = join(directory, 'admin.kubeconfig');
    const made = orchlet('token', 'create', '--control-plane', '--kubeconfig', kubeconfig, '--data-dir', directory);
    assert.equal(made.status, 0, made.stderr);
    const words = made.stdout.trim().split(' ').slice(2);
    // The controller that signs for the token may have run on the host that left.
    const joined = await until(
      'a join',
      () => {
        const tried = orchlet('join', ...words, '--data-dir', joining.directory);
        if (tried.status !== 0) throw new Error(tried.stderr);
        return tried;
      },
      40_000,
    );
    const flag = /--etcd-join=\S+/.exec(joined.stdout)?.[0];
    assert.ok(flag !== undefined && joined.stdout.includes('--etcd=embedded'), joined.stdout);
    joining.launch([flag]);
    await joining.ready();
  }

  before(async () => {
    writeFileSync(join(scratch, 'tokens.csv'), 'test,test,test,"system:masters"\n');
    (await plane('first')).launch();
    await at(0).ready();
  });
  after(async () => {
    for (const one of planes) await one.remove();
    alive.cancel();
    rmSync(scratch, { recursive: true, force: true });
  });

  it('keep keys and data from others, and accept no client without a certificate of their CA', async () => {
    const paths = etcdPaths(at(0).directory);
    const modes = ['ca.key', 'server.key', 'peer.key', 'client.key'].map(
      (name) => statSync(join(paths.pki, name)).mode & 0o777,
    );
    assert.deepEqual(modes, [0o600, 0o600, 0o600, 0o600]);
    assert.equal(statSync(paths.data).mode & 0o777, 0o700);
    const ca = readFileSync(join(paths.pki, 'ca.crt'));
    const clusterCert = {
      ca,
      cert: readFileSync(join(at(0).directory, 'pki/apiserver-kubelet-client.crt')),
      key: readFileSync(join(at(0).directory, 'pki/apiserver-kubelet-client.key')),
    };
    for (const tls of [{ ca }, clusterCert]) {
      const etcd = await EtcdMembers.at(at(0).etcdUrl, tls);
      await assert.rejects(etcd.status(3000));
      etcd.close();
    }
  });

  it('join the first one with a vote, and show what it has', async () => {
    assert.equal(await create(at(0), 'before'), 201);
    for (const name of ['second', 'third']) await join_(await plane(name));
    assert.equal((await at(2).api.call('GET', `${MAPS}/before`)).status, 200);
    const { stdout, status } = orchlet('etcd', 'members', '--data-dir', at(0).directory);
    const rows = stdout.trim().split('\n').slice(1);
    assert.deepEqual(
      [rows.length, rows.filter((row) => / yes +(answers|leader) /.test(row)).length, status],
      [3, 3, 0],
    );
  });

  it('use members that joined after their start while their own one is down, without a restart', async () => {
    // Both members may have joined between two checks, and then one line of the log names both.
    const lastChange = (): string =>
      at(0)
        .log.split('\n')
        .findLast((line) => line.includes('The members of etcd changed')) ?? '';
    await until('all members of etcd in the log', () => (lastChange().match(/https:\/\//g) ?? []).length === 3, 60_000);
    process.kill(at(0).etcdPid, 'SIGSTOP');
    try {
      await until('a write', async () => (await create(at(0), 'own-member-down')) === 201, 40_000);
    } finally {
      process.kill(at(0).etcdPid, 'SIGCONT');
    }
  });

  it('are saved to a file that only its owner reads, and that etcd can restore', () => {
    const file = join(scratch, 'saved.db');
    const saved = orchlet('etcd', 'snapshot', file, '--data-dir', at(0).directory);
    assert.equal(saved.status, 0, saved.stderr);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const content = readFileSync(file);
    assert.ok(content.includes('/registry/configmaps/default/before'));
    const hash = createHash('sha256').update(content.subarray(0, -32)).digest();
    assert.deepEqual(content.subarray(-32), hash, 'as etcdctl writes and checks it');
  });

  it('go on when one is killed, whose etcd votes on until the next start takes its place', async () => {
    const { etcdPid } = at(0);
    await at(0).end('SIGKILL');
    assert.equal(await create(at(1), 'while-killed'), 201);
    at(0).launch();
    await at(0).ready();
    assert.notEqual(at(0).etcdPid, etcdPid);
    assert.equal(commandOf(etcdPid), '', 'the etcd that was left behind is gone');
    assert.equal((await at(0).api.call('GET', `${MAPS}/while-killed`)).status, 200);
  });

  it('start etcd again when it dies, while another member is used', async () => {
    const { etcdPid, child } = at(1);
    process.kill(etcdPid, 'SIGKILL');
    await until('a write', async () => (await create(at(1), 'while-dead')) === 201, 30_000).catch((error: unknown) => {
      throw new Error(at(1).log, { cause: error });
    });
    await until('another process of etcd', () => at(1).etcdPid !== etcdPid, 20_000).catch((error: unknown) => {
      throw new Error(at(1).log, { cause: error });
    });
    await until('the answer of the member of etcd', () => / yes +(answers|leader) /.test(memberRow(1)), 30_000);
    assert.equal(child?.exitCode, null);
  });

  const memberRow = (index: number): string => {
    const { stdout } = orchlet('etcd', 'members', '--data-dir', at(0).directory);
    const peer = /"peerUrl":"([^"]+)"/.exec(readFileSync(etcdPaths(at(index).directory).member, 'utf8'))?.[1] ?? '';
    return stdout.split('\n').find((row) => row.includes(peer)) ?? '';
  };

  it('refuse to remove a member whose vote the others need, and remove one that they do not', async () => {
    const third = memberRow(2).split(/ +/)[1] ?? '';
    process.kill(at(1).etcdPid, 'SIGSTOP');
    const refused = orchlet('etcd', 'remove', third, '--data-dir', at(0).directory);
    process.kill(at(1).etcdPid, 'SIGCONT');
    assert.equal(refused.status, 1);
    assert.match(refused.stderr, /is not removed: only 1 of the 2 other members with a vote answer, and 2 are needed/);
    // etcd itself refuses until a member that comes back has been connected for some seconds.
    await until(
      'the removal',
      () => orchlet('etcd', 'remove', third, '--data-dir', at(0).directory).status === 0,
      40_000,
    );
    await until('the exit of its control plane', () => at(2).child?.exitCode !== null);
    assert.match(at(2).log, /This member of etcd was removed from its cluster/);
    assert.equal(await create(at(0), 'after-removal'), 201);
    // A host joins again, with another name, once its data are gone.
    rmSync(at(2).directory, { recursive: true });
    mkdirSync(at(2).directory, { mode: 0o700 });
    await join_(at(2));
    assert.notEqual(memberRow(2).split(/ +/)[1], third);
    assert.equal((await at(2).api.call('GET', `${MAPS}/after-removal`)).status, 200);
  });

  it('come back after all hosts lost power at once', async () => {
    for (const one of planes) {
      const { etcdPid } = one;
      await one.end('SIGKILL');
      process.kill(etcdPid, 'SIGKILL');
    }
    for (const one of planes) one.launch();
    await Promise.all(planes.map((one) => one.ready()));
    for (const one of planes) assert.equal((await one.api.call('GET', `${MAPS}/before`)).status, 200);
  });

  it('are found and stopped by the command that stops a host, with their etcd', async () => {
    const { etcdPid, directory } = at(2);
    const stopped = orchlet('stop', '--data-dir', directory);
    assert.equal(stopped.status, 0, stopped.stderr);
    assert.match(stopped.stdout, /is stopped/);
    await until('the exit', () => at(2).child?.exitCode === 0);
    assert.equal(commandOf(etcdPid), '');
    assert.equal(await create(at(0), 'while-stopped'), 201);
  });
});
