/**
 * `npm run profile` loads this file into the server that it measures (`node --import`). The first SIGUSR2 starts the CPU
 * profiler and the allocation profiler of V8 on the main thread; the second stops them and writes `server.cpuprofile` and
 * `server.heapprofile` to the directory that ORCHLET_PROFILE_DIR names. A file appears under its name only when it is complete.
 */
import { renameSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { join } from 'node:path';
import { isMainThread } from 'node:worker_threads';

const SAMPLE_EVERY_US = 200;
const SAMPLE_EVERY_BYTES = 16 * 1024;

const directory = process.env['ORCHLET_PROFILE_DIR'];
if (isMainThread && directory !== undefined) {
  let session: Session | undefined;
  const write = (name: string, profile: object): void => {
    const file = join(directory, name);
    writeFileSync(`${file}.new`, JSON.stringify(profile));
    renameSync(`${file}.new`, file);
  };
  const start = async (): Promise<Session> => {
    const opened = new Session();
    opened.connect();
    await opened.post('Profiler.enable');
    await opened.post('Profiler.setSamplingInterval', { interval: SAMPLE_EVERY_US });
    await opened.post('HeapProfiler.startSampling', {
      samplingInterval: SAMPLE_EVERY_BYTES,
      includeObjectsCollectedByMajorGC: true,
      includeObjectsCollectedByMinorGC: true,
    });
    await opened.post('Profiler.start');
    write('started', {});
    return opened;
  };
  const stop = async (opened: Session): Promise<void> => {
    const { profile: cpu } = await opened.post('Profiler.stop');
    const { profile: heap } = await opened.post('HeapProfiler.stopSampling');
    opened.disconnect();
    write('server.heapprofile', heap);
    write('server.cpuprofile', cpu);
  };
  process.on('SIGUSR2', () => {
    const opened = session;
    const turn = opened === undefined ? start().then((started) => void (session = started)) : stop(opened);
    turn.catch((error: unknown) => {
      process.stderr.write(`profiler: ${String(error)}\n`);
      process.exit(1);
    });
  });
}
