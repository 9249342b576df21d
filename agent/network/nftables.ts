/** Writes tables of the host's nftables with the `nft` tool. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { assertSucceeded, runWithInput } from './run-with-input.ts';

const execute = promisify(execFile);
const MAX_OUTPUT_BYTES = 256 * 1024 * 1024;

/**
 * The operations on tables of the host. All but `problem` reject with what `nft` writes to standard error, and with ENOENT
 * without the tool.
 */
export interface Nftables {
  /** Runs the script as one transaction. */
  run(script: string): Promise<void>;
  /** Returns an empty string if `nft` and the kernel accept the script, else the reason. Changes nothing. Never rejects. */
  problem(script: string): Promise<string>;
  hasTable(table: string, type?: TableType): Promise<boolean>;
  /** Returns the addresses that expire, by the names of their sets. */
  expiringElements(table: string, type: TableType): Promise<ReadonlyMap<string, readonly ExpiringElement[]>>;
  /** Removes the table if it exists. */
  remove(table: string, type?: TableType): Promise<void>;
}

/** An element of a set with a timeout, and the seconds that remain. */
export interface ExpiringElement {
  readonly address: string;
  readonly seconds: number;
}

type TableType = 'inet' | 'ip' | 'ip6' | 'bridge';

/**
 * Returns access to the nftables of this host. `prefix` is a command that runs `nft` elsewhere, for example in a network
 * namespace.
 */
export function hostNftables(prefix: readonly string[] = []): Nftables {
  const [command = 'nft', ...before] = [...prefix, 'nft'];
  const feed = async (args: readonly string[], script: string): Promise<void> =>
    assertSucceeded('nft', await runWithInput(command, [...before, ...args, '-f', '-'], script));
  return {
    run: (script) => feed([], script),
    async problem(script) {
      try {
        await feed(['--check'], script);
        return '';
      } catch (error) {
        const { code, message } = error as NodeJS.ErrnoException;
        return code === 'ENOENT' ? 'nft is not installed' : message;
      }
    },
    async hasTable(table, type = 'inet') {
      // For a list of the tables, nft 1.0 reads all of their rules and sets, which takes a second with thousands of services.
      const args = [...before, 'list', 'chains', type];
      const { stdout } = await execute(command, args, { maxBuffer: MAX_OUTPUT_BYTES });
      return stdout.includes(`table ${type} ${table} {\n`);
    },
    async expiringElements(table, type) {
      const args = [...before, '-j', 'list', 'sets', type];
      const { stdout } = await execute(command, args, { maxBuffer: MAX_OUTPUT_BYTES });
      return expiringElements(JSON.parse(stdout), table);
    },
    async remove(table, type = 'inet') {
      if (await this.hasTable(table, type)) await execute(command, [...before, 'delete', 'table', type, table]);
    },
  };
}

/** Reads the output of `nft -j list sets`. */
function expiringElements(listed: unknown, table: string): Map<string, readonly ExpiringElement[]> {
  const { nftables = [] } = listed as {
    readonly nftables?: readonly { readonly set?: { name: string; table: string; elem?: readonly unknown[] } }[];
  };
  const found = new Map<string, readonly ExpiringElement[]>();
  for (const { set } of nftables) {
    if (set?.table !== table) continue;
    const elements = (set.elem ?? []).flatMap((each) => {
      const { val, expires } = (each as { readonly elem?: { val?: unknown; expires?: unknown } }).elem ?? {};
      return typeof val === 'string' && typeof expires === 'number' && expires > 0
        ? [{ address: val, seconds: expires }]
        : [];
    });
    if (elements.length > 0) found.set(set.name, elements);
  }
  return found;
}
