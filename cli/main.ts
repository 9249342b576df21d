/** The `orchlet` program: runs the command line of this process. */
import { enableCompileCache } from 'node:module';
import { keepAlive } from '../api/machinery/clock.ts';
import { processIo } from './io.ts';
import { exitUnexpectedly, installLastResort } from './last-resort.ts';
import { run } from './run.ts';

enableCompileCache();

async function main(): Promise<void> {
  const alive = keepAlive();
  process.exitCode = await run(process.argv.slice(2), processIo);
  alive.cancel();
}

installLastResort();
main().catch(exitUnexpectedly);
