/** The `orchlet` program: runs the command line of this process. */
import { enableCompileCache } from 'node:module';
import { keepAlive, systemClock } from '../api/machinery/clock.ts';
import { processIo } from './command-line/io.ts';
import { exitUnexpectedly, installLastResort } from './process/last-resort.ts';
import { run } from './run.ts';
import { resolveSourcesDirectly } from './process/source-resolution.ts';
import { takeServiceVariables } from './process/systemd-notify.ts';

enableCompileCache();
resolveSourcesDirectly();

/** How long open connections may keep the process running after its command. */
const LINGER_MS = 1000;

/**
 * Exits the process after `LINGER_MS`, or once its output is written if that takes longer. Otherwise a connection to a server
 * that accepts it and does not answer would keep the process running.
 */
function exitSoon(): void {
  systemClock.after(LINGER_MS, () => {
    if (process.stdout.writableLength + process.stderr.writableLength > 0) exitSoon();
    else process.exit();
  });
}

/**
 * Lets a command go on when its output cannot be written. Output without a reader, as in `orchlet … | head`, is dropped. Any
 * other error of the standard output is what the returned function returns.
 */
function followOutput(): () => NodeJS.ErrnoException | undefined {
  let failure: NodeJS.ErrnoException | undefined;
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') failure ??= error;
  });
  process.stderr.on('error', () => undefined);
  return () => failure;
}

async function main(): Promise<void> {
  const alive = keepAlive();
  const failure = followOutput();
  process.exitCode = await run(process.argv.slice(2), processIo);
  alive.cancel();
  process.once('beforeExit', () => {
    const error = failure();
    if (error === undefined) return;
    process.stderr.write(`orchlet: cannot write the output: ${error.message}\n`);
    process.exitCode = 1;
  });
  exitSoon();
}

installLastResort();
takeServiceVariables();
main().catch(exitUnexpectedly);
