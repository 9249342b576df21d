/** Writes tables of the host's nftables with the `nft` tool. The enforcer of network policies and the service proxy call it. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';

const execute = promisify(execFile);
/** The longest part of an error of `nft` that is logged, which may quote whole lines of the script. */
const LONGEST_ERROR = 1000;

export interface Nftables {
  /** Runs the script as one transaction. */
  run(script: string): Promise<void>;
  /** Returns an empty string if the kernel accepts the script, else the reason. Changes nothing. */
  problem(script: string): Promise<string>;
  hasTable(table: string, type?: TableType): Promise<boolean>;
  /** Removes the table if it exists. */
  remove(table: string, type?: TableType): Promise<void>;
}

/** The address family of a table. */
export type TableType = 'inet' | 'ip' | 'ip6';

/** `prefix` is a command that runs `nft` elsewhere, for example in a network namespace. */
export function hostNftables(prefix: readonly string[] = []): Nftables {
  const [command = 'nft', ...before] = [...prefix, 'nft'];
  const feed = async (args: readonly string[], script: string): Promise<void> => {
    const child = spawn(command, [...before, ...args, '-f', '-'], { stdio: ['pipe', 'ignore', 'pipe'] });
    const [stderr, [code]] = await Promise.all([
      text(child.stderr),
      once(child, 'close') as Promise<[number | null]>,
      // A child that exits early closes its input. Its exit code reports the failure.
      new Promise<void>((resolve) => child.stdin.once('error', () => resolve()).end(script, resolve)),
    ]);
    if (code !== 0) throw new Error(`nft: ${stderr.trim().split('\n').join('; ').slice(0, LONGEST_ERROR)}`);
  };
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
      const { stdout } = await execute(command, [...before, 'list', 'tables', type]);
      return stdout.split('\n').includes(`table ${type} ${table}`);
    },
    async remove(table, type = 'inet') {
      if (await this.hasTable(table, type)) await execute(command, [...before, 'delete', 'table', type, table]);
    },
  };
}
