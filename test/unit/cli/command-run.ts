/** Runs the command line within the test's process and captures its output. */
import { type Clock, systemClock } from '../../../api/machinery/clock.ts';
import { run } from '../../../cli/run.ts';

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export async function orchlet(
  argv: readonly string[],
  { env = {}, clock = systemClock }: { readonly env?: Readonly<Record<string, string>>; readonly clock?: Clock } = {},
): Promise<Ran> {
  let stdout = '';
  let stderr = '';
  const code = await run(argv, {
    stdout: { write: (text) => (stdout += text) },
    stderr: { write: (text) => (stderr += text) },
    clock,
    env,
    isInteractive: false,
  });
  return { code, stdout, stderr };
}
