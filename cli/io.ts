/** Defines what a command uses of its process. Tests run commands in their own process with other streams. */
import { type Clock, systemClock } from '../api/machinery/clock.ts';

export interface CommandIo {
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whether the input is a terminal, so that questions can be answered. */
  readonly isInteractive: boolean;
}

export const processIo: CommandIo = {
  stdout: process.stdout,
  stderr: process.stderr,
  clock: systemClock,
  env: process.env,
  isInteractive: process.stdin.isTTY,
};
