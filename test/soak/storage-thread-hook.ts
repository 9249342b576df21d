/**
 * The soak test preloads this file into the tested control plane, where SIGUSR2 ends the thread of the storage like a crash.
 */
import { syncBuiltinESMExports } from 'node:module';
import threads, { isMainThread, type WorkerOptions } from 'node:worker_threads';

if (isMainThread) {
  const { Worker } = threads;
  threads.Worker = class extends Worker {
    constructor(file: string | URL, options?: WorkerOptions) {
      super(file, options);
      if (options?.name === 'storage') process.on('SIGUSR2', () => void this.terminate());
    }
  };
  syncBuiltinESMExports();
}
