/** Reads the engine's version and info, and derives from them what the engine and this host support. */
import { readFile } from 'node:fs/promises';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { EngineFacts } from './container-options.ts';
import type { DockerClient } from './docker-client.ts';

const TIMEOUT_MS = 20_000;
const CACHE_MS = 300_000;
/** The first major version of the engine with recursive read-only mounts. */
const FIRST_RECURSIVE_READ_ONLY = 25;
const CAP_SYS_RESOURCE = 24n;

interface EngineVersion {
  readonly Version: string;
  readonly ApiVersion: string;
  readonly Components?: readonly { readonly Name: string }[];
}

interface EngineInfo {
  readonly SwapLimit: boolean;
  readonly SecurityOptions: readonly string[];
  readonly CgroupDriver: string;
  readonly DockerRootDir: string;
  readonly Runtimes?: Readonly<Record<string, unknown>>;
}

/** Caches the engine's version and info, because the engine starts two programs to answer each of these requests. */
export class EngineInfoCache {
  readonly #client: DockerClient;
  readonly #clock: Clock;
  readonly #answers = new Map<string, { readonly atMs: number; readonly answer: Promise<unknown> }>();

  constructor(client: DockerClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  version(): Promise<EngineVersion> {
    return this.#cached('version', () => this.#client.docker.version());
  }

  info(): Promise<EngineInfo> {
    return this.#cached('info', async () => (await this.#client.docker.info()) as EngineInfo);
  }

  /** Forgets the answers, so that the next reads request them from the engine. */
  forget(): void {
    this.#answers.clear();
  }

  #cached<T>(operation: string, request: () => Promise<T>): Promise<T> {
    const atMs = this.#clock.monotonic();
    const cached = this.#answers.get(operation);
    if (cached !== undefined && atMs - cached.atMs < CACHE_MS) return cached.answer as Promise<T>;
    const answer = this.#client.call(operation, request, { timeoutMs: TIMEOUT_MS });
    const entry = { atMs, answer };
    this.#answers.set(operation, entry);
    // The caller gets the failure. The next call reads again.
    answer.catch(() => {
      if (this.#answers.get(operation) === entry) this.#answers.delete(operation);
    });
    return answer;
  }
}

/** Reads what the engine supports and how it is configured. Rejects if the engine does not answer. */
export async function readEngineFacts(engine: EngineInfoCache, logger: Logger): Promise<EngineFacts> {
  const [version, info] = [await engine.version(), await engine.info()];
  return {
    swapLimit: info.SwapLimit,
    lowestOomScoreAdj: await lowestOomScoreAdj(logger),
    recursiveReadOnly: Number.parseInt(version.Version, 10) >= FIRST_RECURSIVE_READ_ONLY,
    isPodman: version.Components?.some(({ Name }) => Name === 'Podman Engine') === true,
    seLinux: info.SecurityOptions.some((option) => option.includes('selinux')),
  };
}

async function lowestOomScoreAdj(logger: Logger): Promise<number> {
  const status = await readFile('/proc/self/status', 'utf8');
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? '0'}`);
  if ((effective >> CAP_SYS_RESOURCE) & 1n) return -1000;
  const currentAdj = Number((await readFile('/proc/self/oom_score_adj', 'utf8')).trim());
  logger.warn({ lowest: currentAdj }, 'The agent lacks CAP_SYS_RESOURCE and cannot lower oom_score_adj of containers');
  return currentAdj;
}
