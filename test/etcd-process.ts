/** Runs members of etcd on loopback, with data in temporary directories. Tests are skipped where it is not installed. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openChannel } from '../api/grpc/grpc-channel.ts';
import { systemClock } from '../api/machinery/clock.ts';
import { EtcdServers } from '../controlplane/storage/etcd/etcd-servers.ts';
import { freePort } from './integration/free-port.ts';
import { until } from './until.ts';

/** The reason why tests with etcd are skipped, or `false`. */
export const etcdMissing = spawnSync('etcd', ['--version']).error === undefined ? false : 'etcd is not installed';

interface MemberOptions {
  readonly name: string;
  readonly url: string;
  readonly peer: string;
  readonly cluster: string;
  readonly more: readonly string[];
}

export class EtcdProcess {
  readonly url: string;
  readonly #directory = mkdtempSync(join(tmpdir(), 'orchlet-etcd-'));
  readonly #arguments: readonly string[];
  #child: ChildProcess | undefined;

  private constructor({ url, peer, name, cluster, more }: MemberOptions) {
    this.url = url;
    this.#arguments = [
      ...['--name', name, '--data-dir', join(this.#directory, 'data'), '--listen-client-urls', url],
      ...['--advertise-client-urls', url, '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
      ...['--initial-cluster', cluster, ...more],
    ];
  }

  static async start(more: readonly string[] = []): Promise<EtcdProcess> {
    const [etcd] = await EtcdProcess.cluster(1, more);
    if (etcd === undefined) throw new Error('no member was started');
    return etcd;
  }

  /** Starts a cluster of `size` members. */
  static async cluster(size: number, more: readonly string[] = []): Promise<readonly EtcdProcess[]> {
    const rows: { readonly name: string; readonly url: string; readonly peer: string }[] = [];
    for (let at = 0; at < size; at += 1)
      rows.push({
        name: `member${at}`,
        url: `http://127.0.0.1:${await freePort()}`,
        peer: `http://127.0.0.1:${await freePort()}`,
      });
    const cluster = rows.map(({ name, peer }) => `${name}=${peer}`).join(',');
    const members = rows.map((row) => new EtcdProcess({ ...row, cluster, more }));
    await Promise.all(members.map((member) => member.launch()));
    return members;
  }

  /** Resolves when etcd answers. The data and the ports stay the same over restarts. */
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

  connect(): Promise<EtcdServers> {
    return EtcdServers.open({ servers: [this.url], tls: {}, clock: systemClock });
  }

  /** Ends the alarms, after space was made. */
  async disarm(): Promise<void> {
    const channel = await openChannel({ target: this.url.replace('http://', '') });
    const call = (request: Buffer): Promise<Buffer> =>
      channel.call('/etcdserverpb.Maintenance/Alarm', request, { timeoutMs: 10_000 });
    try {
      // Identifiers of members are larger than numbers of JavaScript, so their bytes are copied: `2: {1: member, 2: alarm}`.
      const answer = await call(Buffer.alloc(0));
      const at = answer.lastIndexOf(Buffer.from([0x10, 0x01]));
      const from = answer.lastIndexOf(0x12, at);
      if (at < 0 || from < 0) return;
      const member = answer.subarray(from + 3, at);
      await call(Buffer.concat([Buffer.from([0x08, 0x02, 0x10]), member, Buffer.from([0x18, 0x01])]));
    } finally {
      channel.close();
    }
  }

  /** Resolves when the process is stopped, with its connections open. */
  async pause(): Promise<void> {
    const pid = this.#child?.pid;
    this.#child?.kill('SIGSTOP');
    await until('etcd to stop', () => / T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8')));
  }

  resume(): void {
    this.#child?.kill('SIGCONT');
  }

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
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
