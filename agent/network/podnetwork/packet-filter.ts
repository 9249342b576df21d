/**
 * Applies the rules of the pod network with the iptables tools. `prefix` is a command that runs them elsewhere, for example in
 * a network namespace.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { assertSucceeded, runWithInput } from '../run-with-input.ts';
import { type Jump, jumps } from './packet-rules.ts';

const execute = promisify(execFile);
/** The arguments that wait for the xtables lock, which other processes hold only briefly. */
const WAIT = ['-w', '10'];
/**
 * The chain that Docker calls before its own rules. Docker moves these calls to the beginning of FORWARD whenever it creates a
 * network.
 */
const DOCKER_USER = 'DOCKER-USER';
/** A jump to a chain of the pod network or of the service proxy. */
const OWN_JUMP = / -j (?:ORC|ORCHLET)-\S+$/;

/** The iptables tools of one host. Operations reject with what the tools write to standard error. */
export interface PodPacketFilter {
  /** Replaces the chains that the text names, atomically for each table. */
  apply(family: 4 | 6, rules: string): Promise<void>;
  /** Adds the jumps that are missing. A jump that must come first is moved to the beginning if rules of others precede it. */
  ensureJumps(family: 4 | 6, jumps: readonly Jump[]): Promise<void>;
  /** Returns false if another process has removed a jump, or has put rules before one that must come first. */
  intact(family: 4 | 6, jumps: readonly Jump[]): Promise<boolean>;
  /** Removes the chains and all jumps to them. Does nothing without the tools. */
  remove(family: 4 | 6): Promise<void>;
}

/** Uses the tools of this host, or those that `prefix` reaches. */
export function podPacketFilter(prefix: readonly string[] = []): PodPacketFilter {
  const command = (family: 4 | 6, suffix: string, args: readonly string[]): [string, string[]] => {
    const [program = '', ...commandArgs] = [...prefix, `${family === 4 ? 'iptables' : 'ip6tables'}${suffix}`, ...args];
    return [program, commandArgs];
  };
  const run = (family: 4 | 6, ...args: readonly string[]): Promise<unknown> =>
    execute(...command(family, '', [...WAIT, ...args]));
  /**
   * Resolves to whether the command succeeds. The tools exit with a number if there is no such rule or chain; other errors are
   * thrown.
   */
  const succeeds = (family: 4 | 6, ...args: readonly string[]): Promise<boolean> =>
    run(family, ...args).then(() => true, refused);
  const restore = async (family: 4 | 6, rules: string): Promise<void> => {
    const [program, args] = command(family, '-restore', ['--noflush', ...WAIT]);
    assertSucceeded(`${family === 4 ? 'iptables' : 'ip6tables'}-restore`, await runWithInput(program, args, rules));
  };
  const isThere = (family: 4 | 6, jump: Jump, withDocker: boolean): Promise<boolean> =>
    succeeds(family, ...ruleOf(jump, '-C', withDocker));
  /**
   * Whether no rules of other programs precede the jump, where that matters. In nat and raw, the first rule that matches
   * decides, and Docker inserts a rule that masquerades the packets of a new network at the beginning.
   */
  const isFirst = async (family: 4 | 6, { table, from, to, isLast }: Jump): Promise<boolean> => {
    if (isLast || table === 'filter') return true;
    const { stdout } = await execute(...command(family, '', [...WAIT, '-t', table, '-S', from]));
    const rules = stdout.split('\n').filter((line) => line.startsWith('-A '));
    const before = rules.slice(
      0,
      rules.findIndex((line) => line.endsWith(`-j ${to}`)),
    );
    return before.every((line) => OWN_JUMP.test(line));
  };
  return {
    apply: restore,

    async intact(family, jumps) {
      const withDocker = await succeeds(family, '-t', 'filter', '-S', DOCKER_USER);
      for (const jump of jumps)
        if (!(await isThere(family, jump, withDocker)) || !(await isFirst(family, jump))) return false;
      return true;
    },

    async ensureJumps(family, jumps) {
      const withDocker = await succeeds(family, '-t', 'filter', '-S', DOCKER_USER);
      for (const jump of jumps) {
        const isPresent = await isThere(family, jump, withDocker);
        if (isPresent && (await isFirst(family, jump))) continue;
        if (isPresent) await run(family, ...ruleOf(jump, '-D', withDocker));
        await run(family, ...ruleOf(jump, jump.isLast ? '-A' : '-I', withDocker));
      }
    },

    async remove(family) {
      // Without the tool there are no rules.
      if (!(await run(family, '--version').then(() => true, isInstalled))) return;
      const all = [...jumps({ bridge: '' }), ...jumps({ bridge: 'any' })];
      for (const jump of all)
        for (const withDocker of [true, false]) while (await succeeds(family, ...ruleOf(jump, '-D', withDocker)));
      const chains = new Map(all.map(({ table, to }) => [to, table]));
      for (const [chain, table] of chains)
        if (await succeeds(family, '-t', table, '-F', chain)) await run(family, '-t', table, '-X', chain);
    },
  };
}

function refused(error: unknown): false {
  if (typeof (error as { code?: unknown }).code === 'number') return false;
  throw error;
}

function ruleOf({ table, from, to, isLast }: Jump, verb: string, withDocker: boolean): string[] {
  const chain = withDocker && from === 'FORWARD' && !isLast ? DOCKER_USER : from;
  return ['-t', table, verb, chain, '-j', to];
}

function isInstalled(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code !== 'ENOENT';
}
