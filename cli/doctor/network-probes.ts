/** Sends the packets of `orchlet doctor`: connections from this host and one of its pods, and questions to name servers. */
import { execFile } from 'node:child_process';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { connect } from 'node:net';
import { promisify } from 'node:util';

const TIMEOUT_MS = 2000;
const execute = promisify(execFile);

/** What became of a connection. A refusal proves that packets go both ways. */
export type Outcome = 'open' | 'refused' | 'timed out' | { readonly failed: string };

/** Sends packets, each with a time limit. */
export interface NetworkProbes {
  /**
   * Connects to an address. `from` is a process whose network namespace the connection starts in. Without it, the connection
   * starts in the namespace of this host.
   */
  connect(address: string, port: number, from?: number): Promise<Outcome>;
  /** Resolves to the addresses of a name, or to why there are none. `from` is a process of a pod, as for `connect`. */
  resolve(server: string, name: string, from: number): Promise<readonly string[] | { readonly failed: string }>;
  /** Resolves to a process of a pod of this host with a network of its own, or to `undefined` if there is none. */
  podProcess(): Promise<number | undefined>;
}

/** Connects to an address. Runs in the network namespace of a pod. */
const CONNECT = `const [ms, address, port] = process.argv.slice(1);
const socket = require('net').connect({ host: address, port: +port });
const end = (text) => { console.log(text); process.exit(0); };
socket.setTimeout(+ms, () => end('ETIMEDOUT'));
socket.on('connect', () => end('open'));
socket.on('error', (error) => end(error.code || error.message));`;
/** Asks a name server for a name. Runs in the network namespace of a pod. */
const RESOLVE = `const [ms, server, name] = process.argv.slice(1);
const resolver = new (require('dns').promises.Resolver)({ timeout: +ms, tries: 1 });
resolver.setServers([server]);
Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]).then((answers) => {
  const found = answers.flatMap(({ value = [] }) => value);
  console.log(found.length > 0 ? 'found ' + found.join(' ') : answers[0].reason.code);
});`;

/** The probes of this host. Those of a pod run by nsenter(1). */
export const hostProbes: NetworkProbes = {
  async connect(address, port, from) {
    if (from === undefined) return outcomeOf(await connectHere(address, port));
    const text = await runInNetworkOf(from, CONNECT, [address, String(port)]);
    return typeof text === 'string' ? outcomeOf(text) : text;
  },
  async resolve(server, name, from) {
    const text = await runInNetworkOf(from, RESOLVE, [server.includes(':') ? `[${server}]` : server, name]);
    if (typeof text !== 'string') return text;
    const [found = '', ...addresses] = text.split(' ');
    return found === 'found' ? addresses : { failed: found === 'ETIMEOUT' ? 'no answer' : found };
  },
  async podProcess() {
    const hostNetwork = await readlink('/proc/self/ns/net');
    for (const pid of await readdir('/proc')) {
      if (!/^\d+$/.test(pid)) continue;
      // A process that has exited meanwhile has no cgroups.
      const cgroups = await readFile(`/proc/${pid}/cgroup`, 'utf8').catch(() => '');
      if (!/\/kubepods/.test(cgroups)) continue;
      const network = await readlink(`/proc/${pid}/ns/net`).catch(() => hostNetwork);
      if (network !== hostNetwork) return Number(pid);
    }
    return undefined;
  },
};

/** Returns what the script prints, or why it could not run. */
async function runInNetworkOf(
  pid: number,
  script: string,
  args: readonly string[],
): Promise<string | { readonly failed: string }> {
  const command = ['-t', String(pid), '-n', '--', process.execPath, '-e', script, String(TIMEOUT_MS), ...args];
  return await execute('nsenter', command, { timeout: 3 * TIMEOUT_MS }).then(
    ({ stdout }) => stdout.trim(),
    (error: unknown) => ({ failed: `the network of the pod cannot be entered: ${String((error as Error).message)}` }),
  );
}

function connectHere(address: string, port: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port });
    const end = (text: string): void => {
      socket.destroy();
      resolve(text);
    };
    socket.setTimeout(TIMEOUT_MS, () => end('ETIMEDOUT'));
    socket.once('connect', () => end('open'));
    socket.once('error', (error: NodeJS.ErrnoException) => end(error.code ?? error.message));
  });
}

function outcomeOf(text: string): Outcome {
  if (text === 'open') return 'open';
  if (text === 'ECONNREFUSED') return 'refused';
  return text === 'ETIMEDOUT' ? 'timed out' : { failed: text };
}
