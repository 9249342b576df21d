/**
 * Runs a program that prints an answer and exits, such as one that prints credentials. Its output and its time are bounded, and
 * the caller does not wait for a process that it leaves behind with its output open.
 */
import { spawn } from 'node:child_process';
import type { Clock, Timer } from './clock.ts';
import { GatheredBytes } from './gathered-bytes.ts';

interface ProgramRun {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The standard input: this text, that of this process, or nothing. */
  readonly input: { readonly text: string } | 'inherit' | 'ignore';
  /** Whether the standard error goes to that of this process, or is returned. */
  readonly errors: 'inherit' | 'pipe';
  readonly largestOutputBytes: number;
  /** The maximum time of the program. Without it, the program may take as long as it wants. */
  readonly timeoutMs?: number;
  readonly clock: Clock;
  /** The subject of the messages of errors: `<what> did not exit within 60 s`. */
  readonly what: string;
}

/** How a program exited, and what it wrote. */
export interface ProgramExit {
  /** The exit code; `null` if a signal terminated the program. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly output: string;
  /** The end of the standard error; empty if it is not returned. */
  readonly errors: string;
}

/** The number of characters that are kept of the end of the standard error. */
const LONGEST_ERRORS = 4096;
/**
 * How long after the exit of the program its output is still read. If the output is still open then, another process holds it.
 */
const LINGER_MS = 5_000;

/**
 * Runs a program and resolves to its output. Rejects if the program cannot be started, and kills it and rejects if it prints
 * too much or takes too long.
 */
export function programOutput(run: ProgramRun): Promise<ProgramExit> {
  const { command, args, env, input, errors: printed, largestOutputBytes, timeoutMs, clock, what } = run;
  return new Promise((resolve, reject) => {
    const child = spawn(command, [...args], {
      env: { ...env },
      stdio: [typeof input === 'string' ? input : 'pipe', 'pipe', printed],
    });
    const output = new GatheredBytes();
    const timers: Timer[] = [];
    let errors = '';
    const finish = (): void => {
      for (const timer of timers) timer.cancel();
      child.stdout?.destroy();
      child.stderr?.destroy();
    };
    const giveUp = (why: string): void => {
      child.kill('SIGKILL');
      finish();
      reject(new Error(`${what} ${why}`));
    };
    const end = (code: number | null, signal: NodeJS.Signals | null): void => {
      finish();
      resolve({ code, signal, output: output.take().toString('utf8'), errors });
    };
    if (timeoutMs !== undefined)
      timers.push(clock.after(timeoutMs, () => giveUp(`did not exit within ${timeoutMs / 1000} s`)));
    child.stdout?.on('data', (chunk: Buffer) => {
      output.push(chunk);
      if (output.size > largestOutputBytes) giveUp(`printed more than ${largestOutputBytes} bytes`);
    });
    child.stderr?.on('data', (chunk: Buffer) => {
      errors = (errors + chunk.toString()).slice(-LONGEST_ERRORS);
    });
    // A program need not read its input.
    child.stdin?.on('error', () => undefined);
    if (typeof input !== 'string') child.stdin?.end(input.text);
    child.once('error', (error) => {
      finish();
      reject(error);
    });
    child.once('exit', (code, signal) => timers.push(clock.after(LINGER_MS, () => end(code, signal))));
    child.once('close', end);
  });
}
