/** Runs an S3 server by other authors: Ceph's object gateway from Debian's packages, in memory and on loopback. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from './free-port.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const PROGRAMS = ['ceph', 'ceph-mon', 'ceph-mgr', 'ceph-osd', 'monmaptool', 'radosgw', 'radosgw-admin', 'curl'];
const missing = PROGRAMS.filter((program) => spawnSync(program, ['--version']).error !== undefined);

/** The reason why tests with Ceph are skipped, or `false`. */
export const skipWithoutCeph: string | false =
  missing.length === 0
    ? false
    : `not installed: ${missing.join(', ')} (Debian's radosgw, ceph-mon, ceph-mgr, ceph-osd and ceph-common)`;

const SHA256_OF_NOTHING = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

/** A running gateway with one bucket. */
export class CephGateway {
  readonly credentials = { AWS_ACCESS_KEY_ID: 'ORCHLETTESTKEY', AWS_SECRET_ACCESS_KEY: randomUUID() };
  readonly endpoint: string;
  readonly #directory: string;
  readonly #monitorPort: number;
  readonly #children: ChildProcess[] = [];

  private constructor(directory: string, port: number, monitorPort: number) {
    this.#directory = directory;
    this.#monitorPort = monitorPort;
    this.endpoint = `http://127.0.0.1:${port}`;
  }

  /** Resolves when the gateway is ready and the bucket exists. */
  static async start(bucket: string): Promise<CephGateway> {
    const directory = temporaryFolder();
    const gateway = new CephGateway(directory, await freePort(), await freePort());
    try {
      await gateway.#launch();
      await until('the bucket', () => (gateway.request('PUT', `/${bucket}`).status === 200 ? true : undefined));
    } catch (error) {
      await gateway.remove();
      throw error;
    }
    return gateway;
  }

  async remove(): Promise<void> {
    for (const child of this.#children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await ended;
    }
    rmSync(this.#directory, { recursive: true, force: true });
  }

  /** Sends a signed request without a body with curl, which does not use the signature implementation under test. */
  request(method: string, path: string): { readonly status: number; readonly text: string } {
    const { AWS_ACCESS_KEY_ID: key, AWS_SECRET_ACCESS_KEY: secret } = this.credentials;
    const signature = ['--aws-sigv4', 'aws:amz:us-east-1:s3', '--user', `${key}:${secret}`];
    const headers = ['--header', `x-amz-content-sha256: ${SHA256_OF_NOTHING}`];
    const args = ['--silent', '--max-time', '10', '--request', method, '--write-out', '\n%{http_code}'];
    const done = spawnSync('curl', [...args, ...headers, ...signature, `${this.endpoint}${path}`], {
      encoding: 'utf8',
    });
    const end = done.stdout.lastIndexOf('\n');
    return { status: Number(done.stdout.slice(end + 1)), text: done.stdout.slice(0, end) };
  }

  async #launch(): Promise<void> {
    const cluster = randomUUID();
    const monitor = `v2:127.0.0.1:${this.#monitorPort}`;
    this.#configure(cluster, monitor);
    const map = join(this.#directory, 'monmap');
    run('monmaptool', ['--create', '--fsid', cluster, '--addv', 'a', `[${monitor}]`, map]);
    this.#run('ceph-mon', ['-i', 'a', '--mkfs', '--monmap', map]);
    this.#spawn('ceph-mon', ['-i', 'a']);
    const store = randomUUID();
    await until('the monitor', () => (this.#try('ceph', ['osd', 'create', store]) === '0' ? true : undefined));
    this.#run('ceph-osd', ['-i', '0', '--mkfs', '--osd-uuid', store]);
    this.#spawn('ceph-osd', ['-i', '0']);
    this.#spawn('ceph-mgr', ['-i', 'a']);
    await until('the store', () => (this.#try('ceph', ['osd', 'stat'])?.includes('1 up') === true ? true : undefined));
    const { AWS_ACCESS_KEY_ID: key, AWS_SECRET_ACCESS_KEY: secret } = this.credentials;
    const user = ['--uid=test', '--display-name=test', `--access-key=${key}`, `--secret-key=${secret}`];
    this.#run('radosgw-admin', ['-n', 'client.rgw', 'user', 'create', ...user]);
    this.#spawn('radosgw', ['-n', 'client.rgw']);
  }

  #configure(cluster: string, monitor: string): void {
    for (const name of ['mon', 'osd', 'mgr', 'rgw', 'run', 'log']) mkdirSync(join(this.#directory, name));
    const lines = [
      '[global]',
      `fsid = ${cluster}`,
      `mon host = [${monitor}]`,
      'mon initial members = a',
      ...['cluster', 'service', 'client'].map((part) => `auth ${part} required = none`),
      // By default daemons encrypt their connections, which requires keys.
      ...['mon client', 'mon service', 'client'].map((part) => `ms ${part} mode = crc`),
      'osd pool default size = 1',
      'osd pool default min size = 1',
      'osd pool default pg num = 1',
      'osd crush chooseleaf type = 0',
      'osd objectstore = memstore',
      'mon allow pool size one = true',
      'mon max pg per osd = 2000',
      'public network = 127.0.0.0/8',
      ...['mon', 'osd', 'mgr', 'rgw'].map((part) => `${part} data = ${join(this.#directory, part)}`),
      `run dir = ${join(this.#directory, 'run')}`,
      `admin socket = ${join(this.#directory, 'run', '$name.$pid.asok')}`,
      `log file = ${join(this.#directory, 'log', '$name.log')}`,
      '[client.rgw]',
      `rgw frontends = beast endpoint=${this.endpoint.replace('http://', '')}`,
    ];
    writeFileSync(this.#config, `${lines.join('\n')}\n`);
  }

  get #config(): string {
    return join(this.#directory, 'ceph.conf');
  }

  #run(program: string, args: readonly string[]): string {
    return run(program, ['-c', this.#config, ...args]);
  }

  #try(program: string, args: readonly string[]): string | undefined {
    const done = spawnSync(program, ['-c', this.#config, ...args], { encoding: 'utf8', timeout: 10_000 });
    return done.status === 0 ? done.stdout.trim() : undefined;
  }

  #spawn(program: string, args: readonly string[]): void {
    const child = spawn(program, ['-c', this.#config, ...args, '-f'], { stdio: 'ignore' });
    this.#children.push(child);
  }
}

function run(program: string, args: readonly string[]): string {
  const done = spawnSync(program, args, { encoding: 'utf8', timeout: 60_000 });
  if (done.status !== 0)
    throw new Error(`${program} ${args.join(' ')} ended with ${done.status}: ${done.stderr}${done.stdout}`);
  return done.stdout;
}
