/** The `orchlet` program: runs the command line of this process. */
import { enableCompileCache } from 'node:module';
import { keepAlive, systemClock } from '../api/machinery/clock.ts';
import { processIo } from './io.ts';
import { exitUnexpectedly, installLastResort } from './last-resort.ts';
import { run } from './run.ts';
import { resolveSourcesDirectly } from './source-resolution.ts';
import { takeServiceVariables } from './systemd-notify.ts';

enableCompileCache();
resolveSourcesDirectly();

/** How long what is left open may keep the process after its command. */
const LINGER_MS = 1000;

/** A connection to a server that accepts it and does not answer would keep the process. Output that waits is written. */
function exitSoon(): void {
  systemClock.after(LINGER_MS, () => {
    if (process.stdout.writableLength + process.stderr.writableLength > 0) exitSoon();
    else process.exit();
  });
}

async function main(): Promise<void> {
  const alive = keepAlive();
  process.exitCode = await run(process.argv.slice(2), processIo);
  alive.cancel();
  exitSoon();
}

installLastResort();
takeServiceVariables();
main().catch(exitUnexpectedly);
