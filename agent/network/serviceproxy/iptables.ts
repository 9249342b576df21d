/**
 * Applies rules to the host's netfilter with the iptables tools: one transaction for each table. The jumps to them from the
 * built-in chains, or from Docker's, are maintained separately.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { assertSucceeded, runWithInput } from '../run-with-input.ts';
import { ACCEPT_JUMPS, beforeDocker, CHAIN_PREFIX, DOCKER_USER, JUMPS, type Jump } from './iptables-rules.ts';
import { CHAINS_PER_PART } from './iptables-transactions.ts';
import type { Family } from './addresses.ts';

const execute = promisify(execFile);
/** The time to wait for the xtables lock, which other processes hold only briefly. */
const WAIT_SECONDS = '10';

const tool = (family: Family, suffix = ''): string => `${family === 'IPv4' ? 'iptables' : 'ip6tables'}${suffix}`;

/** The iptables tools of this host. Operations reject with what the tools write to standard error. */
export interface PacketFilter {
  /** Replaces the chains that the text names, atomically for each table. */
  apply(family: Family, rules: string): Promise<void>;
  /** Inserts the jumps that do not exist at the beginning of their chains: the built-in ones, or Docker's for users. */
  ensureJumps(family: Family, jumps: readonly Jump[]): Promise<void>;
  /** Returns the table `filter` in the lines of `iptables-save`. Without a usable iptables there are none. */
  filterTable(family: Family): Promise<readonly string[]>;
  /**
   * Returns false if another process has removed the jumps of PREROUTING, or those of FORWARD or Docker's chain, or has put
   * rules before those of FORWARD.
   */
  intact(family: Family): Promise<boolean>;
  /** Returns our chains of the nat table, including those of an agent that was killed. */
  chains(family: Family): Promise<Set<string>>;
  /** Whether any of our chains exist. */
  hasRules(family: Family): Promise<boolean>;
  /** Removes the jumps and the chains. */
  remove(family: Family): Promise<void>;
  /** Returns an empty string if the address family can be used, else the reason. */
  problem(family: Family): Promise<string>;
}

const MAX_OUTPUT_BYTES = 256 * 1024 * 1024;
const TABLES = ['nat', 'filter'] as const;

/**
 * Returns access to the iptables of this host. `prefix` is a command that runs the tools elsewhere, for example in a network
 * namespace.
 */
export function hostPacketFilter(prefix: readonly string[] = []): PacketFilter {
  return new IptablesTools(prefix);
}

class IptablesTools implements PacketFilter {
  readonly #prefix: readonly string[];

  constructor(prefix: readonly string[]) {
    this.#prefix = prefix;
  }

  async apply(family: Family, rules: string): Promise<void> {
    const restore = tool(family, '-restore');
    const [command = restore, ...args] = [...this.#prefix, restore, '--noflush', `--wait=${WAIT_SECONDS}`];
    assertSucceeded(restore, await runWithInput(command, args, rules));
  }

  async ensureJumps(family: Family, jumps: readonly Jump[]): Promise<void> {
    const withDocker = (await this.#chainRules(family, 'filter', DOCKER_USER)) !== undefined;
    for (const jump of jumps) {
      const placed = withDocker ? beforeDocker(jump) : jump;
      if (!(await this.#succeeds(family, placed, '-C'))) await this.#rule(family, placed, '-I');
    }
  }

  async filterTable(family: Family): Promise<readonly string[]> {
    try {
      return (await this.#savedTable(family, 'filter')).split('\n').filter((line) => /^[:-]/.test(line));
    } catch {
      // Without a usable iptables, no rules of its tables exist.
      return [];
    }
  }

  async intact(family: Family): Promise<boolean> {
    const nat = await this.#chainRules(family, 'nat', 'PREROUTING');
    if (nat?.some((line) => line.includes('-j ORC-SERVICES')) !== true) return false;
    const first = (await this.#chainRules(family, 'filter', 'FORWARD'))?.[0] ?? '';
    if (first.includes(`-j ${CHAIN_PREFIX}`)) return true;
    const user = await this.#chainRules(family, 'filter', DOCKER_USER);
    return first.includes(`-j ${DOCKER_USER}`) && user?.some((line) => line.includes('-j ORC-REFUSE')) === true;
  }

  async chains(family: Family): Promise<Set<string>> {
    return new Set(chainNames(await this.#savedTable(family, 'nat')));
  }

  async hasRules(family: Family): Promise<boolean> {
    return (await this.#ownChains(family)).some((chains) => chains.length > 0);
  }

  async remove(family: Family): Promise<void> {
    const ownChains = await this.#ownChains(family);
    if (!ownChains.some((chains) => chains.length > 0)) return;
    for (const jump of [...JUMPS, ...ACCEPT_JUMPS].flatMap((each) => [each, beforeDocker(each)]))
      while (await this.#succeeds(family, jump, '-C')) await this.#rule(family, jump, '-D');
    for (const [index, table] of TABLES.entries()) {
      const chains = ownChains[index] ?? [];
      // A chain can be deleted when no other one refers to it.
      for (const line of [(chain: string) => `:${chain} - [0:0]`, (chain: string) => `-X ${chain}`])
        for (let at = 0; at < chains.length; at += CHAINS_PER_PART) {
          const part = chains.slice(at, at + CHAINS_PER_PART);
          await this.apply(family, [`*${table}`, ...part.map(line), 'COMMIT', ''].join('\n'));
        }
    }
  }

  async problem(family: Family): Promise<string> {
    try {
      await this.#run(tool(family), ['-w', WAIT_SECONDS, '-t', 'nat', '-S', 'PREROUTING']);
      return '';
    } catch (error) {
      const { code, stderr = '' } = error as { code?: unknown; stderr?: string };
      return code === 'ENOENT' ? `${tool(family)} is not installed` : stderr.trim() || String(error);
    }
  }

  #run(program: string, args: readonly string[]): Promise<{ readonly stdout: string }> {
    const [command = program, ...commandArgs] = [...this.#prefix, program, ...args];
    return execute(command, commandArgs, { maxBuffer: MAX_OUTPUT_BYTES });
  }

  async #savedTable(family: Family, table: string): Promise<string> {
    return (await this.#run(tool(family, '-save'), ['-t', table])).stdout;
  }

  /** Resolves to the names of our chains in each of `TABLES`. */
  async #ownChains(family: Family): Promise<string[][]> {
    const saved = await Promise.all(TABLES.map((table) => this.#savedTable(family, table)));
    return saved.map(chainNames);
  }

  /** Returns the rules of a chain without the line that creates it; `undefined` if the tool fails, as for a missing chain. */
  async #chainRules(family: Family, table: string, chain: string): Promise<string[] | undefined> {
    try {
      const { stdout } = await this.#run(tool(family), ['-w', WAIT_SECONDS, '-t', table, '-S', chain]);
      return stdout.split('\n').filter((line) => line.startsWith('-A'));
    } catch (error) {
      if (typeof (error as { code?: unknown }).code === 'number') return undefined;
      throw error;
    }
  }

  async #rule(family: Family, { table, from, to, match }: Jump, verb: string): Promise<void> {
    await this.#run(tool(family), ['-w', WAIT_SECONDS, '-t', table, verb, from, ...match, '-j', to]);
  }

  /**
   * Whether a command such as `-C` succeeds for a jump. `-C` also fails if the chain that the rule jumps to does not exist
   * yet.
   */
  async #succeeds(family: Family, jump: Jump, verb: string): Promise<boolean> {
    try {
      await this.#rule(family, jump, verb);
      return true;
    } catch (error) {
      if (typeof (error as { code?: unknown }).code === 'number') return false;
      throw error;
    }
  }
}

/** Returns the names of our chains in the output of `iptables-save` for one table, which begins with the chains. */
const chainNames = (saved: string): string[] => {
  const firstRule = saved.indexOf('\n-A ');
  const chains = firstRule === -1 ? saved : saved.slice(0, firstRule);
  return [...chains.matchAll(/^:(\S+) /gm)]
    .map(([, chain = '']) => chain)
    .filter((chain) => chain.startsWith(CHAIN_PREFIX));
};
