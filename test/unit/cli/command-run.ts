/** Runs the command line within the test's process and captures its output. */
import { type Clock, systemClock } from '../../../api/machinery/clock.ts';
import { run } from '../../../cli/run.ts';

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  /** What the list of processes shows, if the command hid its arguments. */
  readonly title: string | undefined;
}

interface Surroundings {
  readonly env?: Readonly<Record<string, string>>;
  readonly clock?: Clock;
  /** The standard input. */
  readonly input?: string;
}

export async function orchlet(
  argv: readonly string[],
  { env = {}, clock = systemClock, input = '' }: Surroundings = {},
): Promise<Ran> {
  let stdout = '';
  let stderr = '';
  let title: string | undefined;
  const code = await run(argv, {
    stdout: { write: (text) => (stdout += text) },
    stderr: { write: (text) => (stderr += text) },
    clock,
    env,
    isInteractive: false,
    readInput: () => Promise.resolve(input),
    hideArguments: (text) => (title = text),
  });
  return { code, stdout, stderr, title };
}
