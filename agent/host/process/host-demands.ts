/**
 * Checks the agent's requirements on the host before it starts (no swap, kernel parameters, cgroup v2), or sets the kernel
 * parameters. Also sets the OOM score and the open file limit of its own process.
 */
import { execFile } from 'node:child_process';
import { access, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Logger } from '../../../api/component/logger.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { setKernelParameter } from '../../network/kernel-parameters.ts';

const run = promisify(execFile);

/** The flags that decide which requirements hold, and where the files of the host are. */
export interface HostDemands {
  readonly failSwapOn: boolean;
  readonly failCgroupV1: boolean;
  readonly protectKernelDefaults: boolean;
  readonly logger: Logger;
  /** `/`, or a fixture. */
  readonly root?: string;
}

/**
 * The kernel parameters of a node: memory overcommit, no panic when memory runs out, a panic after a fault of the kernel, a
 * restart after a panic, and enough keys for containers.
 */
export const KERNEL_PARAMETERS: Readonly<Record<string, number>> = {
  'vm/overcommit_memory': 1,
  'vm/panic_on_oom': 0,
  'kernel/panic': 10,
  'kernel/panic_on_oops': 1,
  'kernel/keys/root_maxkeys': 1_000_000,
  'kernel/keys/root_maxbytes': 25_000_000,
};

/** Checks whether this host meets the requirements of the flags. Throws for the first unmet requirement. */
export async function checkHost(demands: HostDemands): Promise<void> {
  const { root = '/' } = demands;
  if (demands.failSwapOn && (await swaps(root)))
    throw new Error('running with swap on is not supported, please disable swap or set --fail-swap-on flag to false');
  if (demands.failCgroupV1 && !(await isThere(join(root, 'sys/fs/cgroup/cgroup.controllers'))))
    throw new Error(
      'kubelet is configured to not run on a host using cgroup v1; set --fail-cgroupv1 to false to run on it',
    );
  if (demands.protectKernelDefaults) await checkKernelParameters(root);
}

async function swaps(root: string): Promise<boolean> {
  // A kernel without swap has no such file.
  const text = await readFile(join(root, 'proc/swaps'), 'utf8').catch(() => '');
  // Swap on a RAM disk is allowed, as in the kubelet. The first line is the heading.
  return text
    .split('\n')
    .slice(1)
    .some((line) => line.trim() !== '' && !/^\/dev\/(z?ram)\d/.test(line));
}

async function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

interface KernelParameter {
  readonly name: string;
  readonly path: string;
  readonly wanted: number;
  readonly actual: number;
}

/** Returns the parameters with another value. Those that the kernel does not have are left out. */
async function differingParameters(root: string): Promise<readonly KernelParameter[]> {
  const found: KernelParameter[] = [];
  for (const [name, wanted] of Object.entries(KERNEL_PARAMETERS)) {
    const path = join(root, 'proc/sys', name);
    // The kernel may lack this parameter.
    const text = await readFile(path, 'utf8').catch(() => undefined);
    if (text !== undefined && Number(text) !== wanted) found.push({ name, path, wanted, actual: Number(text) });
  }
  return found;
}

async function checkKernelParameters(root: string): Promise<void> {
  const wrong = (await differingParameters(root)).map(
    ({ name, wanted, actual }) => `invalid kernel flag: ${name}, expected value: ${wanted}, actual value: ${actual}`,
  );
  if (wrong.length > 0) throw new Error(`[${wrong.join(', ')}]`);
}

/** Sets the parameters that differ, unless `protectKernelDefaults` is on. Never throws: what is not permitted is logged. */
export async function setKernelParameters({
  protectKernelDefaults,
  logger,
  root = '/',
}: Pick<HostDemands, 'protectKernelDefaults' | 'logger' | 'root'>): Promise<void> {
  if (protectKernelDefaults) return;
  for (const { name, path, wanted, actual } of await differingParameters(root)) {
    try {
      await setKernelParameter(path, String(wanted));
      logger.info({ parameter: name, before: actual, now: wanted }, 'Set a kernel parameter');
    } catch (error) {
      logger.debug({ err: error, parameter: name }, 'Cannot set a kernel parameter');
    }
  }
}

interface ProcessSettings {
  readonly oomScoreAdj: number;
  readonly maxOpenFiles: number;
  readonly logger: Logger;
}

/** Sets the OOM score and the limit of open files of this process. Never throws: what is not permitted is logged. */
export async function applyProcessSettings({ oomScoreAdj, maxOpenFiles, logger }: ProcessSettings): Promise<void> {
  try {
    await writeFile('/proc/self/oom_score_adj', String(oomScoreAdj));
  } catch (error) {
    logger.warn(
      { err: messageOf(error) },
      `Cannot set the OOM score of the agent to ${oomScoreAdj} (this needs CAP_SYS_RESOURCE)`,
    );
  }
  try {
    const soft = openFilesLimit(await readFile('/proc/self/limits', 'utf8'));
    if (soft !== maxOpenFiles)
      await run('prlimit', ['--pid', String(process.pid), `--nofile=${maxOpenFiles}:${maxOpenFiles}`]);
  } catch (error) {
    logger.warn({ err: messageOf(error) }, `Cannot set the limit of open files to ${maxOpenFiles}`);
  }
}

/** Returns the soft limit in the text of `/proc/self/limits`, NaN for `unlimited`, or `undefined` without such a line. Pure. */
export function openFilesLimit(limits: string): number | undefined {
  const soft = /^Max open files\s+(\S+)/m.exec(limits)?.[1];
  return soft === undefined ? undefined : Number(soft);
}

function messageOf(error: unknown): string {
  const { stderr } = error as { stderr?: unknown };
  if (typeof stderr === 'string' && stderr.trim() !== '') return stderr.trim();
  return errorMessage(error);
}
