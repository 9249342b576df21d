/** Ends a command that runs until it is told to stop: by a signal, once; a second signal ends the process at once. */

export interface Shutdown {
  /** Resolves with the signal's name. */
  readonly asked: Promise<string>;
  /** Aborts when it is asked. */
  readonly signal: AbortSignal;
}

export function onShutdown(): Shutdown {
  const controller = new AbortController();
  const asked = Promise.withResolvers<string>();
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(name === 'SIGINT' ? 130 : 143);
      controller.abort(new Error(`stopped by ${name}`));
      asked.resolve(name);
    });
  }
  return { asked: asked.promise, signal: controller.signal };
}
