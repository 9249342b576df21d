/** Stops a long-running command at the first signal. A second signal ends the process at once. */

/** The signal of `orchlet stop`: the pods keep running, whatever the command does otherwise. */
export const KEEP_PODS_SIGNAL = 'SIGQUIT';

const EXIT_CODES = { SIGINT: 130, SIGQUIT: 131, SIGTERM: 143 } as const;

/** A shutdown that the first signal requests. */
export interface Shutdown {
  /** Resolves with the signal's name. */
  readonly asked: Promise<string>;
  /** Aborts when a shutdown is requested. */
  readonly signal: AbortSignal;
}

/** Installs handlers for the signals in `EXIT_CODES`. It must be called once in a process. */
export function onShutdown(): Shutdown {
  const controller = new AbortController();
  const asked = Promise.withResolvers<string>();
  for (const [name, code] of Object.entries(EXIT_CODES)) {
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(code);
      controller.abort(new Error(`stopped by ${name}`));
      asked.resolve(name);
    });
  }
  return { asked: asked.promise, signal: controller.signal };
}
