/**
 * Connects to a port inside a pod's network namespace. It tries the pod's address first, which needs no process. To reach a
 * server that listens only on loopback, it starts a small process that joins the namespace.
 */
import { spawn } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { SharedSlots } from '../../../api/machinery/shared-slots.ts';
import { RuntimeError } from '../runtime.ts';

const CONNECT_TIMEOUT_MS = 10_000;

/** The program that runs inside the namespace. It connects its standard input and output to the port on loopback. */
const DIAL_SCRIPT = `const c=require('net').connect({port:+process.argv[1],host:'localhost',allowHalfOpen:true});
c.on('connect',()=>{process.stderr.write('ok\\n');process.stdin.pipe(c);c.pipe(process.stdout,{end:false})});
c.on('end',()=>process.stdout.write('',()=>process.exit(0)));
c.on('error',e=>{process.stderr.write(String(e.code||e.message)+'\\n');process.exit(1)});`;

interface ForwardTarget {
  /** The Kubernetes namespace of the pod. Namespaces share the processes. */
  readonly namespace: string;
  readonly ips: readonly string[];
  /** The id of a process in the namespace; 0 for the host's network. */
  readonly pid: number;
}

/** The maximum number of processes for connections to loopback. Each takes ten megabytes, and clients ask for any number. */
const MAX_PROCESSES = 32;

/** Connects to ports of sandboxes, and owns the processes that connect to loopback. */
export class PortDialer {
  readonly #processes = new SharedSlots(MAX_PROCESSES);

  /**
   * Connects to a port of a sandbox, at its addresses or within its network namespace. Rejects with `RuntimeError` if nothing
   * listens there.
   */
  async dial(target: ForwardTarget, port: number, signal: AbortSignal): Promise<Duplex> {
    const hosts = target.pid === 0 ? ['127.0.0.1', '::1', ...target.ips] : target.ips;
    for (const host of hosts) {
      const socket = await tryConnect(host, port, signal);
      if (socket !== undefined) return socket;
    }
    if (target.pid === 0) throw refused(port);
    return this.#dialInside(target, port, signal);
  }

  async #dialInside({ pid, namespace }: ForwardTarget, port: number, signal: AbortSignal): Promise<Duplex> {
    const ended = new AbortController();
    const free = this.#processes.take(namespace, () => ended.abort());
    if (free === undefined)
      throw refused(port, `there are ${MAX_PROCESSES} connections to ports that only loopback reaches`);
    try {
      return await dialInside({ pid, onExit: free }, port, AbortSignal.any([signal, ended.signal]));
    } catch (error) {
      free();
      throw error;
    }
  }
}

function refused(port: number, why = 'connection refused'): RuntimeError {
  return new RuntimeError(
    'unavailable',
    `failed to connect to localhost:${port} inside the pod's network namespace: ${why}`,
  );
}

function tryConnect(host: string, port: number, signal: AbortSignal): Promise<Socket | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, allowHalfOpen: true, signal });
    socket.setTimeout(CONNECT_TIMEOUT_MS, () => socket.destroy());
    socket.once('close', () => resolve(undefined));
    socket.once('error', () => resolve(undefined));
    socket.once('connect', () => {
      socket.setTimeout(0);
      resolve(socket);
    });
  });
}

function dialInside(
  { pid, onExit }: { readonly pid: number; readonly onExit: () => void },
  port: number,
  signal: AbortSignal,
): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const child = spawn('nsenter', ['-t', String(pid), '-n', '--', process.execPath, '-e', DIAL_SCRIPT, String(port)], {
      stdio: ['pipe', 'pipe', 'pipe'],
      signal,
    });
    child.once('close', onExit);
    child.on('error', (error) =>
      reject(
        new RuntimeError('unavailable', `cannot enter the pod's network namespace: ${error.message}`, { cause: error }),
      ),
    );
    child.stderr.setEncoding('utf8');
    child.stderr.once('data', (text: string) => {
      if (text.startsWith('ok')) {
        const stream = Duplex.from({ readable: child.stdout, writable: child.stdin } as never);
        // A server that does not end its side would keep the process.
        stream.once('close', () => child.kill());
        resolve(stream);
      } else reject(refused(port, text.trim() === 'ECONNREFUSED' ? 'connection refused' : text.trim()));
    });
    child.once('exit', (code) => reject(refused(port, `the helper process exited with code ${code}`)));
  });
}
