/** Runs an etcd of one member on loopback, with data in a temporary directory. Tests are skipped where it is not installed. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openChannel } from '../api/grpc/grpc-channel.ts';
import { systemClock } from '../api/machinery/clock.ts';
import { EtcdServers } from '../controlplane/storage/etcd/etcd-servers.ts';
import { freePort } from './integration/free-port.ts';
import { until } from './until.ts';

/** The reason why tests with etcd are skipped, or `false`. */
export const etcdMissing = spawnSync('etcd', ['--version']).error === undefined ? false : 'etcd is not installed';

export class EtcdProcess {
  readonly url: string;
  readonly #directory = mkdtempSync(join(tmpdir(), 'orchlet-etcd-'));
  readonly #arguments: readonly string[];
  #child: ChildProcess | undefined;

  private constructor(port: number, peerPort: number, more: readonly string[]) {
    this.url = `http://127.0.0.1:${port}`;
    const peer = `http://127.0.0.1:${peerPort}`;
    this.#arguments = [
      ...['--data-dir', join(this.#directory, 'data'), '--listen-client-urls', this.url],
      ...['--advertise-client-urls', this.url, '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
      ...['--initial-cluster', `default=${peer}`, '--unsafe-no-fsync', ...more],
    ];
  }

  static async start(more: readonly string[] = []): Promise<EtcdProcess> {
    const etcd = new EtcdProcess(await freePort(), await freePort(), more);
    await etcd.launch();
    return etcd;
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

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
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
