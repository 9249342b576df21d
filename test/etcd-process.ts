/** Runs members of etcd on loopback, with data in temporary directories. Tests are skipped where it is not installed. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../api/machinery/clock.ts';
import { EtcdMembers } from '../controlplane/storage/etcd/etcd-members.ts';
import { EtcdServers } from '../controlplane/storage/etcd/etcd-servers.ts';
import { HeldProxy } from './held-proxy.ts';
import { freePort } from './integration/free-port.ts';
import { until } from './until.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** The reason why tests with etcd are skipped, or `false`. */
export const etcdMissing = spawnSync('etcd', ['--version']).error === undefined ? false : 'etcd is not installed';

interface MemberOptions {
  readonly name: string;
  readonly url: string;
  /** Where the member listens for other members, and where they reach it. */
  readonly peer: string;
  readonly advertisedPeer: string;
  readonly proxy: HeldProxy | undefined;
  readonly cluster: string;
  readonly more: readonly string[];
}

/** A member of etcd in its own process. It can be stopped and started again with the same data and ports. */
export class EtcdProcess {
  readonly url: string;
  /** The proxy through which other members reach this one, if the cluster has `hasPeerProxies`. */
  readonly peers: HeldProxy | undefined;
  readonly #directory = temporaryFolder();
  readonly #arguments: readonly string[];
  #child: ChildProcess | undefined;

  private constructor({ url, peer, advertisedPeer, proxy, name, cluster, more }: MemberOptions) {
    this.url = url;
    this.peers = proxy;
    this.#arguments = [
      ...['--name', name, '--data-dir', join(this.#directory, 'data'), '--listen-client-urls', url],
      ...['--advertise-client-urls', url, '--listen-peer-urls', peer, '--initial-advertise-peer-urls', advertisedPeer],
      ...['--initial-cluster', cluster, ...more],
    ];
  }

  /** Starts a cluster of one member. `more` are further flags of etcd. */
  static async start(more: readonly string[] = []): Promise<EtcdProcess> {
    const [etcd] = await EtcdProcess.cluster(1, more);
    if (etcd === undefined) throw new Error('no member was started');
    return etcd;
  }

  /** Starts a cluster of `size` members. With `hasPeerProxies`, each can be cut off from the requests of the others. */
  static async cluster(
    size: number,
    more: readonly string[] = [],
    { hasPeerProxies = false } = {},
  ): Promise<readonly EtcdProcess[]> {
    const rows = await Promise.all(
      Array.from({ length: size }, async (_, at) => {
        const [url, peer] = [`http://127.0.0.1:${await freePort()}`, `http://127.0.0.1:${await freePort()}`];
        const proxy = hasPeerProxies ? await HeldProxy.to(peer) : undefined;
        return { name: `member${at}`, url, peer, advertisedPeer: proxy?.url ?? peer, proxy };
      }),
    );
    const cluster = rows.map(({ name, advertisedPeer }) => `${name}=${advertisedPeer}`).join(',');
    const members = rows.map((row) => new EtcdProcess({ ...row, cluster, more }));
    await Promise.all(members.map((member) => member.launch()));
    return members;
  }

  /** Starts the process. Resolves when etcd responds. The data and the ports stay the same over restarts. */
  async launch(): Promise<void> {
    const child = spawn('etcd', this.#arguments, { stdio: 'ignore' });
    this.#child = child;
    const servers = await this.connect();
    try {
      await until('etcd to answer', async () => {
        await servers.run((rpc, options) => rpc.call('range', { key: Buffer.from('x') }, options));
        return true;
      });
    } finally {
      servers.close();
    }
  }

  /** Returns a client of this member alone. */
  connect(): Promise<EtcdServers> {
    return EtcdServers.open({ servers: [this.url], tls: {}, clock: systemClock });
  }

  /** The process id of the member; 0 while it is stopped. */
  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Whether this member leads the cluster. */
  isLeader(): Promise<boolean> {
    return this.asMember(async (members) => {
      const { memberId, leaderId } = await members.status();
      return memberId === leaderId;
    });
  }

  /** Clears the alarms, after space was freed. Resolves to the number of alarms. */
  disarm(): Promise<number> {
    return this.asMember((members) => members.disarm());
  }

  /** Runs a function with a client of the maintenance and cluster services of this member. */
  async asMember<T>(run: (members: EtcdMembers) => Promise<T>): Promise<T> {
    const members = await EtcdMembers.at(this.url, {});
    try {
      return await run(members);
    } finally {
      members.close();
    }
  }

  /** Resolves when the process is stopped, with its connections open. */
  async pause(): Promise<void> {
    const pid = this.#child?.pid;
    this.#child?.kill('SIGSTOP');
    await until('etcd to stop', () => / T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8')));
  }

  /** Continues a process that `pause` has stopped. */
  resume(): void {
    this.#child?.kill('SIGCONT');
  }

  /** Kills the process and waits for its end. `launch` starts it again with the same data. */
  async stop(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  }

  async remove(): Promise<void> {
    await this.stop();
    await this.peers?.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
