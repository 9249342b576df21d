/** Runs the command line within the test's process and captures its output. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../../api/machinery/clock.ts';
import { run } from '../../../cli/run.ts';

const MAIN = join(import.meta.dirname, '../../../cli/main.ts');

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

interface Surroundings {
  readonly env?: Readonly<Record<string, string>>;
  readonly clock?: Clock;
  /** The standard input. */
  readonly input?: string;
  /** Called with what the list of processes shows from then on. */
  readonly onHidden?: (title: string) => void;
}

/** Runs a command, and resolves to its exit code and output. */
export async function orchlet(
  argv: readonly string[],
  { env = {}, clock = systemClock, input = '', onHidden = () => undefined }: Surroundings = {},
): Promise<Ran> {
  let stdout = '';
  let stderr = '';
  const code = await run(argv, {
    stdout: { write: (text) => (stdout += text) },
    stderr: { write: (text) => (stderr += text) },
    clock,
    env,
    isInteractive: false,
    readInput: () => Promise.resolve(input),
    ownProgram: [process.execPath, '--disable-warning=ExperimentalWarning', MAIN],
    runProgram: ([program, ...args]) => {
      const child = spawnSync(program, args, { encoding: 'utf8' });
      stdout += child.stdout;
      stderr += child.stderr;
      return Promise.resolve(child.status ?? 1);
    },
    hideArguments: onHidden,
  });
  return { code, stdout, stderr };
}
