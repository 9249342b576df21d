/** Writes to streams of clients that may be slow or gone. */

/**
 * Writes a chunk and waits while the target is full. Resolves when the target takes more, is closed, or the signal aborts. Data
 * for a target that is closed is dropped: a stream that was closed earlier reports nothing any more.
 */
export async function writeOut(
  target: NodeJS.WritableStream & { readonly destroyed?: boolean },
  data: Buffer,
  signal?: AbortSignal,
): Promise<void> {
  if (!target.writable || target.destroyed === true || signal?.aborted === true || target.write(data)) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      for (const event of ['drain', 'close', 'error']) target.removeListener(event, done);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    for (const event of ['drain', 'close', 'error']) target.once(event, done);
    signal?.addEventListener('abort', done, { once: true });
  });
}
