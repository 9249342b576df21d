/** What an engine says of itself, and what it and this host can do. */
import { readFile } from 'node:fs/promises';
import type { Logger } from '../../../api/component/logger.ts';
import type { EngineFacts } from './container-options.ts';
import type { DockerClient } from './docker-client.ts';

const TIMEOUT_MS = 20_000;
const CAP_SYS_RESOURCE = 24n;

interface EngineVersion {
  readonly Version: string;
  readonly ApiVersion: string;
  readonly Components?: readonly { readonly Name: string }[];
}

export function engineVersion(client: DockerClient): Promise<EngineVersion> {
  return client.call('version', () => client.docker.version(), { timeoutMs: TIMEOUT_MS });
}

export interface EngineInfo {
  readonly SwapLimit: boolean;
  readonly SecurityOptions: readonly string[];
  readonly CgroupDriver: string;
  readonly DockerRootDir: string;
  readonly Runtimes?: Readonly<Record<string, unknown>>;
}

export async function engineInfo(client: DockerClient): Promise<EngineInfo> {
  return (await client.call('info', () => client.docker.info(), { timeoutMs: TIMEOUT_MS })) as EngineInfo;
}

export async function readEngineFacts(client: DockerClient, logger: Logger): Promise<EngineFacts> {
  const [version, info] = [await engineVersion(client), await engineInfo(client)];
  return {
    swapLimit: info.SwapLimit,
    lowestOomScoreAdj: await lowestOomScoreAdj(logger),
    recursiveReadOnly: Number.parseInt(version.Version, 10) >= 25,
    joinsHostName: version.Components?.some(({ Name }) => Name === 'Podman Engine') === true,
    seLinux: info.SecurityOptions.some((option) => option.includes('selinux')),
  };
}

async function lowestOomScoreAdj(logger: Logger): Promise<number> {
  const status = await readFile('/proc/self/status', 'utf8');
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? '0'}`);
  if ((effective >> CAP_SYS_RESOURCE) & 1n) return -1000;
  const own = Number((await readFile('/proc/self/oom_score_adj', 'utf8')).trim());
  logger.warn({ lowest: own }, 'Without CAP_SYS_RESOURCE the out-of-memory score of containers is not lowered');
  return own;
}
