/**
 * Applies rules to the host's netfilter with the iptables tools. Rules are applied as one transaction, and the jumps to
 * them from the built-in chains are maintained separately. The service proxy calls it.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { CHAIN_PREFIX, JUMPS, type Jump } from './iptables-rules.ts';
import type { Family } from './addresses.ts';

const execute = promisify(execFile);
/** Other processes hold the xtables lock only briefly. */
const WAIT_SECONDS = '10';
const DOCKER_USER = 'DOCKER-USER';

const tool = (family: Family, suffix = ''): string => `${family === 'IPv4' ? 'iptables' : 'ip6tables'}${suffix}`;

export interface PacketFilter {
  /** Replaces the chains that the text names, atomically for each table. */
  apply(family: Family, rules: string): Promise<void>;
  /** Moves the jumps to the beginning of the built-in chains. */
  ensureJumps(family: Family): Promise<void>;
  /** Returns false if another process has removed the jumps. */
  intact(family: Family): Promise<boolean>;
  /** Returns our chains of the nat table, including those of an agent that was killed. */
  chains(family: Family): Promise<Set<string>>;
  /** Removes the jumps and the chains. */
  remove(family: Family): Promise<void>;
  /** Returns an empty string if the address family can be used, else the reason. */
  problem(family: Family): Promise<string>;
}

export const hostPacketFilter: PacketFilter = {
  async apply(family, rules) {
    const child = spawn(tool(family, '-restore'), ['--noflush', `--wait=${WAIT_SECONDS}`], {
      stdio: ['pipe', 'ignore', 'pipe'],
    });
    const [stderr, [code]] = await Promise.all([
      text(child.stderr),
      once(child, 'close') as Promise<[number | null]>,
      // A child that exits early closes its input. Its exit code reports the failure.
      new Promise<void>((resolve) => child.stdin.once('error', () => resolve()).end(rules, resolve)),
    ]);
    if (code !== 0) throw new Error(`${tool(family, '-restore')}: ${stderr.trim().split('\n').join('; ')}`);
  },

  async ensureJumps(family) {
    const withDocker = (await chainRules(family, 'filter', DOCKER_USER)) !== undefined;
    for (const jump of JUMPS) {
      const placed = withDocker ? beforeDocker(jump) : jump;
      if (!(await succeeds(family, placed, '-C'))) await run(family, placed, '-I');
    }
  },

  async intact(family) {
    const nat = await chainRules(family, 'nat', 'PREROUTING');
    if (nat?.some((line) => line.includes('-j ORC-SERVICES')) !== true) return false;
    const first = (await chainRules(family, 'filter', 'FORWARD'))?.[0] ?? '';
    if (first.includes(`-j ${CHAIN_PREFIX}`)) return true;
    const user = await chainRules(family, 'filter', DOCKER_USER);
    return first.includes(`-j ${DOCKER_USER}`) && user?.some((line) => line.includes('-j ORC-REFUSE')) === true;
  },

  async chains(family) {
    const { stdout } = await execute(tool(family, '-save'), ['-t', 'nat'], { maxBuffer: 256 * 1024 * 1024 });
    return new Set([...stdout.matchAll(/^:(ORC-\S+) /gm)].map(([, chain = '']) => chain));
  },

  async remove(family) {
    for (const jump of [...JUMPS, ...JUMPS.map(beforeDocker)])
      while (await succeeds(family, jump, '-C')) await run(family, jump, '-D');
    for (const table of ['nat', 'filter']) {
      const { stdout } = await execute(tool(family, '-save'), ['-t', table], { maxBuffer: 256 * 1024 * 1024 });
      const chains = [...stdout.matchAll(/^:(\S+) /gm)]
        .map(([, chain = '']) => chain)
        .filter((chain) => chain.startsWith(CHAIN_PREFIX));
      if (chains.length === 0) continue;
      const lines = [
        `*${table}`,
        ...chains.map((chain) => `:${chain} - [0:0]`),
        ...chains.map((chain) => `-X ${chain}`),
      ];
      await this.apply(family, [...lines, 'COMMIT', ''].join('\n'));
    }
  },

  async problem(family) {
    try {
      await execute(tool(family), ['-w', WAIT_SECONDS, '-t', 'nat', '-S', 'PREROUTING']);
      return '';
    } catch (error) {
      const { code, stderr = '' } = error as { code?: unknown; stderr?: string };
      return code === 'ENOENT' ? `${tool(family)} is not installed` : stderr.trim() || String(error);
    }
  },
};

/** Returns the rules of a chain without the line that creates it; `undefined` if the chain does not exist. */
async function chainRules(family: Family, table: string, chain: string): Promise<string[] | undefined> {
  try {
    const { stdout } = await execute(tool(family), ['-w', WAIT_SECONDS, '-t', table, '-S', chain]);
    return stdout.split('\n').filter((line) => line.startsWith('-A'));
  } catch (error) {
    if (typeof (error as { code?: unknown }).code === 'number') return undefined;
    throw error;
  }
}

/**
 * Docker inserts the rules that accept its networks' traffic before all others except this chain, whenever it creates a
 * network.
 */
function beforeDocker(jump: Jump): Jump {
  return jump.from === 'FORWARD' ? { ...jump, from: DOCKER_USER } : jump;
}

function rule({ table, from, to, match }: Jump, verb: string): string[] {
  return ['-w', WAIT_SECONDS, '-t', table, verb, from, ...match, '-j', to];
}

async function run(family: Family, jump: Jump, verb: string): Promise<void> {
  await execute(tool(family), rule(jump, verb));
}

/** `-C` also fails if the chain that the rule jumps to does not exist yet. */
async function succeeds(family: Family, jump: Jump, verb: string): Promise<boolean> {
  try {
    await run(family, jump, verb);
    return true;
  } catch (error) {
    if (typeof (error as { code?: unknown }).code === 'number') return false;
    throw error;
  }
}
