/** Runs `policy-pod.ts` in the network namespace of a pod, and sends requests to it: it serves, and probes other pods. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { PodRequest } from './policy-pod.ts';

/** The process in the namespace of one pod. */
export class PodProbes {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #waiting = new Map<number, (result: boolean | string) => void>();
  #next = 0;

  /** `enter` is a command that runs another one in the namespace. */
  constructor(enter: readonly string[]) {
    const [command = '', ...before] = enter;
    const program = [
      process.execPath,
      '--disable-warning=ExperimentalWarning',
      join(import.meta.dirname, 'policy-pod.ts'),
    ];
    this.#child = spawn(command, [...before, ...program]);
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      const { id, result } = JSON.parse(line) as { readonly id: number; readonly result: boolean | string };
      this.#waiting.get(id)?.(result);
      this.#waiting.delete(id);
    });
    // The process has ended before it took a request.
    this.#child.stdin.on('error', () => undefined);
  }

  /** Returns whether the request succeeded. */
  async ask(request: Omit<PodRequest, 'id'>): Promise<boolean> {
    return (await this.#send(request)) === true;
  }

  /** Returns the address by which the server at the address sees this pod; empty if it does not answer. */
  async source(address: string, { port = 82, timeoutMs = 5_000 } = {}): Promise<string> {
    return String(await this.#send({ what: 'source', protocol: 'TCP', address, port, timeoutMs }));
  }

  /** Returns the addresses that the name server gives the name, sorted. */
  async names(server: string, name: string): Promise<string> {
    return String(
      await this.#send({ what: 'names', protocol: 'UDP', address: server, port: 53, timeoutMs: 3_000, name }),
    );
  }

  #send(request: Omit<PodRequest, 'id'>): Promise<boolean | string> {
    const id = this.#next++;
    const { promise, resolve } = Promise.withResolvers<boolean | string>();
    this.#waiting.set(id, resolve);
    this.#child.stdin.write(`${JSON.stringify({ ...request, id })}\n`);
    return promise;
  }

  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once('close', resolve));
    this.#child.stdin.end();
    await ended;
  }
}
