/**
 * Keeps the table of `address-rules.ts` for the pods of this node. A pod is bound after its sandbox is created and before its
 * first container starts. The addresses that its interface has at that time count until its port of the bridge is gone, also
 * for a restarted agent, which reads them from a file below `/run`: a container may change its own interface.
 *
 * Each agent has a table of its own. It remains after the agent stops, as pods do.
 */
import { inParallel } from '../../../api/machinery/in-parallel.ts';
import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { readOwnFile } from '../../base/files/regular-file.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { stringifyJson } from '../../../api/codec/json.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { periodically } from '../../../api/machinery/periodic.ts';
import { makeFolder, replaceFile } from '../../../api/machinery/replace-file.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import { canonicalIp } from '../../../api/meta/ip-addresses.ts';
import { networkNamespace } from '../namespace-lock.ts';
import type { Nftables } from '../nftables.ts';
import { addressRulesProblem, addressScript, type PodInterface } from './address-rules.ts';
import type { BridgePorts } from './pod-interface.ts';

interface AddressBinderOptions {
  readonly nft: Pick<Nftables, 'run' | 'problem' | 'hasTable'>;
  readonly table: string;
  readonly ports: BridgePorts;
  /** Where the bindings are stored. */
  readonly file: () => Promise<string>;
  /** Resolves to a process in the network namespace of a sandbox; 0 if the runtime reports none. */
  readonly processOf: (sandboxId: string) => Promise<number>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called once if this host cannot bind pods to their addresses. */
  readonly onUnbound: (problem: string) => void;
}

/** A sandbox that waits to be bound to the addresses that the runtime reports. */
interface Request extends PromiseWithResolvers<void> {
  readonly sandboxId: string;
  readonly ips: readonly string[];
}

/** The number of interfaces that are read at the same time. */
const PARALLEL = 8;
/** How often to check the table, because another process may have flushed the ruleset. */
const INSPECT_MS = 60_000;

/**
 * Owns the table and the file of bindings. Operations run one at a time. Sandboxes that wait meanwhile are bound together, by
 * one list of the ports and one write.
 */
export class AddressBinder {
  readonly #options: AddressBinderOptions;
  readonly #queue = new SerialQueue();
  #waiting: Request[] = [];
  /** The interfaces of bound pods by sandbox; `undefined` until they were read from the file. */
  #bindings: Map<string, PodInterface> | undefined;
  /** The rules that this process wrote last. */
  #script = '';
  /** The reason why the host cannot have the table; '' if it can, `undefined` until it was tried. */
  #problem: string | undefined;

  constructor(options: AddressBinderOptions) {
    this.#options = options;
  }

  /** Keeps the table until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    await periodically(() => this.#queue.run(() => this.#inspect()), {
      clock,
      periodMs: INSPECT_MS,
      signal,
      onError: (error) =>
        logger.warn({ err: error }, 'Cannot sync the rules that bind pods to their addresses, retrying'),
    });
  }

  /** Resolves when the pod is bound to its addresses, or cannot be bound. Rejects if it failed. */
  bind(sandboxId: string, ips: readonly string[]): Promise<void> {
    if (ips.length === 0 || this.#bindings?.has(sandboxId) === true) return Promise.resolve();
    const request: Request = { sandboxId, ips, ...Promise.withResolvers<void>() };
    this.#waiting.push(request);
    this.#queue.run(() => this.#bindWaiting()).catch(request.reject);
    return request.promise;
  }

  /** Settles all requests that wait. Does not reject. */
  async #bindWaiting(): Promise<void> {
    const requests = this.#waiting;
    this.#waiting = [];
    try {
      await this.#bind(requests);
      for (const { resolve } of requests) resolve();
    } catch (error) {
      for (const { reject } of requests) reject(error);
    }
  }

  /** Binds the sandboxes of the requests. Rejects each request that fails alone, and throws what all of them failed by. */
  async #bind(requests: readonly Request[]): Promise<void> {
    const bindings = await this.#loadBindings();
    const unbound = requests.filter(({ sandboxId }) => !bindings.has(sandboxId));
    if (unbound.length === 0) return;
    const ports = await this.#options.ports.list().catch(this.#withoutTools);
    if (ports === undefined || ports.size === 0 || (await this.#hostProblem()) !== '') return;
    const current = present(bindings, ports);
    const found = await inParallel(unbound, PARALLEL, (request) => this.#interfaceOf(request, ports));
    for (const [index, request] of unbound.entries()) add(current, request, found[index]);
    if (unbound.some(({ sandboxId }) => current.has(sandboxId)))
      await this.#write(current, this.#scriptOf(current, ports));
  }

  /** Resolves to `undefined` if the sandbox is at none of the ports. Rejects the request if that cannot be read. */
  async #interfaceOf(
    { sandboxId, ips, reject }: Request,
    ports: ReadonlyMap<number, string>,
  ): Promise<PodInterface | undefined> {
    try {
      const pid = await this.#options.processOf(sandboxId);
      return pid === 0 ? undefined : await this.#options.ports.find(pid, ips, ports).catch(this.#withoutTools);
    } catch (error) {
      reject(error);
      return undefined;
    }
  }

  async #inspect(): Promise<void> {
    const { nft, table, ports } = this.#options;
    const bindings = await this.#loadBindings();
    if (bindings.size === 0) return;
    const listed = await ports.list();
    const current = present(bindings, listed);
    const script = this.#scriptOf(current, listed);
    const isThere = current.size === 0 || (await nft.hasTable(table, 'bridge'));
    if (script !== this.#script || !isThere) await this.#write(current, script);
  }

  #scriptOf(bindings: ReadonlyMap<string, PodInterface>, ports: ReadonlyMap<number, string>): string {
    const interfaces = [...bindings.values()];
    const unbound = [...ports.keys()].filter((index) => !interfaces.some((bound) => bound.index === index));
    return addressScript(this.#options.table, interfaces, unbound);
  }

  async #write(bindings: Map<string, PodInterface>, script: string): Promise<void> {
    const { nft, file } = this.#options;
    await nft.run(script);
    const path = await file();
    await makeFolder(dirname(path), 0o700);
    await replaceFile(path, `${stringifyJson([...bindings])}\n`, { mode: 0o600 });
    this.#bindings = bindings;
    this.#script = script;
  }

  async #loadBindings(): Promise<Map<string, PodInterface>> {
    const bindings = this.#bindings ?? (await readBindings(await this.#options.file()));
    this.#bindings = bindings;
    return bindings;
  }

  async #hostProblem(): Promise<string> {
    const { nft, table } = this.#options;
    this.#problem ??= this.#report(await addressRulesProblem(nft, table));
    return this.#problem;
  }

  readonly #withoutTools = (error: unknown): undefined => {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    this.#problem = this.#report('nsenter or ip is not installed');
  };

  #report(problem: string): string {
    const { logger, onUnbound } = this.#options;
    if (problem === '') return problem;
    logger.warn(
      { problem },
      'Pods are not bound to their addresses, so a pod with NET_RAW can pass for another one of its node',
    );
    onUnbound(problem);
    return problem;
  }
}

/** Adds the binding of a sandbox that has an interface. Rejects the request if its port belongs to another pod. */
function add(bindings: Map<string, PodInterface>, { sandboxId, ips, reject }: Request, found?: PodInterface): void {
  if (found === undefined || bindings.has(sandboxId)) return;
  if ([...bindings.values()].some(({ index }) => index === found.index)) {
    reject(new Error(`the port ${found.port} is bound to another pod`));
    return;
  }
  const reported = ips.map((ip) => canonicalIp(ip) ?? ip);
  // The runtime has reused the addresses of a pod that terminated.
  for (const [other, { addresses }] of bindings)
    if (addresses.some((address) => reported.includes(address))) bindings.delete(other);
  bindings.set(sandboxId, found);
}

/** Returns the bindings whose port still exists. */
function present(
  bindings: ReadonlyMap<string, PodInterface>,
  ports: ReadonlyMap<number, string>,
): Map<string, PodInterface> {
  return new Map([...bindings].filter(([, { index, port }]) => ports.get(index) === port));
}

/** Returns the name of the table: several agents of one host have tables of their own, each for its own pods. */
export function addressTable(rootDirectory: string): string {
  return `orchlet_addresses_${createHash('sha256').update(rootDirectory).digest('hex').slice(0, 12)}`;
}

/** Removes the table and the stored bindings. Rejects if `nft` fails or is not installed. */
export async function removeAddressTable(nft: Pick<Nftables, 'remove'>, table: string): Promise<void> {
  await nft.remove(table, 'bridge');
  await rm(await bindingsFile(table), { force: true });
}

/** Where the bindings of a table are stored. A reboot empties it. */
const BINDINGS = '/run/orchlet/pod-addresses';

/**
 * Returns the path of the stored bindings. It contains the network namespace, because sandboxes of different namespaces may be
 * on one host.
 */
export async function bindingsFile(table: string): Promise<string> {
  return join(BINDINGS, await networkNamespace(), `${table}.json`);
}

/** Reads the bindings of an earlier agent of this boot. */
async function readBindings(file: string): Promise<Map<string, PodInterface>> {
  try {
    return new Map(JSON.parse(await readOwnFile(file)) as [string, PodInterface][]);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return new Map();
    throw new Error(
      `cannot read the bindings of pods to their addresses: ${(error as Error).message}; remove ${file}`,
      {
        cause: error,
      },
    );
  }
}
