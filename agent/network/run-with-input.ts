/** Runs the tools that read commands or rules from their standard input: `nft -f -`, `iptables-restore`, `ip -batch -`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';

/** The longest error that is logged, in characters. */
const LONGEST_ERROR = 1000;

interface Exit {
  /** The exit code; `null` if a signal ended the tool. */
  readonly code: number | null;
  readonly stderr: string;
}

/**
 * Runs a tool with the text as its standard input. Resolves when the tool has exited, with whatever code. Rejects with ENOENT
 * if it is not installed.
 */
export async function runWithInput(command: string, args: readonly string[], input: string): Promise<Exit> {
  const child = spawn(command, args, { stdio: ['pipe', 'ignore', 'pipe'] });
  const [stderr, [code]] = await Promise.all([
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
    // A child that exits early closes its input. Its exit code reports the failure.
    new Promise<void>((resolve) => child.stdin.once('error', () => resolve()).end(input, resolve)),
  ]);
  return { code, stderr };
}

/** Throws what the tool printed, unless it exited with 0. `tool` is its name for the message. */
export function assertSucceeded(tool: string, { code, stderr }: Exit): void {
  if (code !== 0) throw new Error(`${tool}: ${stderr.trim().split('\n').join('; ').slice(0, LONGEST_ERROR)}`);
}
