/** Defines what a command uses of its process. Tests run commands in their own process with other streams. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { PlainError } from '../../api/component/plain-error.ts';
import { type Clock, systemClock } from '../../api/machinery/clock.ts';
import { ownProgram } from './own-program.ts';

/** The streams, the clock and the environment of a command. */
export interface CommandIo {
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whether the input is a terminal, so that questions can be answered. */
  readonly isInteractive: boolean;
  /** Reads the standard input to its end. Rejects with a `PlainError` beyond 64 KiB. */
  readInput(): Promise<string>;
  /** How this program is started, in front of the words of a command. */
  readonly ownProgram: readonly [string, ...string[]];
  /** Runs another program with the streams and the environment of the command. Resolves to its exit code. */
  runProgram(command: readonly [string, ...string[]]): Promise<number>;
  /** Shows this instead of the arguments in the list of processes, which every user of the host can read. */
  hideArguments(title: string): void;
}

const MAX_INPUT_BYTES = 64 * 1024;

async function readInput(): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_INPUT_BYTES) throw new PlainError('the standard input has more than 64 KiB');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

async function runProgram([program, ...args]: readonly [string, ...string[]]): Promise<number> {
  const child = spawn(program, args, { stdio: 'inherit' });
  const [code] = (await once(child, 'close')) as [number | null];
  return code ?? 1;
}

/** The process of the program itself. */
export const processIo: CommandIo = {
  stdout: process.stdout,
  stderr: process.stderr,
  clock: systemClock,
  env: process.env,
  isInteractive: process.stdin.isTTY,
  readInput,
  ownProgram: ownProgram(),
  runProgram,
  hideArguments: (title) => {
    process.title = title;
  },
};
