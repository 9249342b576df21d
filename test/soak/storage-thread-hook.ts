/** Preloaded into the control plane under test: SIGUSR2 ends the thread of the storage, as a crash in it would. */
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
