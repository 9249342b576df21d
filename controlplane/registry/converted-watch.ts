/**
 * Converts the events of a watch with a webhook. A failed conversion ends the watch with an ERROR event, because a watch that
 * skipped the batch would lose changes.
 */
import { toError } from '../../api/meta/error-message.ts';
import type { WatchEvent, WatchHandle, WatchSink } from '../model/rest.ts';

/** Converts events to the served version. Returns a promise if the webhook must be called. */
export type ConvertEvents = (events: readonly WatchEvent[]) => readonly WatchEvent[] | Promise<readonly WatchEvent[]>;

interface ConvertedWatch {
  /** Receives the stored events. */
  readonly sink: WatchSink;
  /** Returns the handle for the client of the watch. */
  attach(handle: WatchHandle): WatchHandle;
}

/**
 * Wraps the sink of a client so that it gets converted events. `failed` receives the errors that the client throws while its
 * watch ends.
 */
export function convertWatch(
  client: WatchSink,
  convert: ConvertEvents,
  failed: (error: unknown) => void,
): ConvertedWatch {
  let source: WatchHandle | undefined;
  /** Settles with the batch that is being converted. Later events wait for it. */
  let converting: Promise<void> | undefined;
  let isOver = false;

  const end = (error?: Error): void => {
    if (isOver) return;
    isOver = true;
    source?.close();
    if (error !== undefined) guarded(() => client.onEvents([{ type: 'ERROR', error }]), failed);
    guarded(() => client.onEnd(), failed);
  };
  const endBy = (error: unknown): void => end(toError(error));
  const deliver = async (batch: Promise<readonly WatchEvent[]>): Promise<void> => {
    try {
      const events = await batch;
      converting = undefined;
      if (!isOver && client.onEvents(events)) source?.resume();
    } catch (error) {
      converting = undefined;
      endBy(error);
    }
  };
  const afterConversion = (action: () => void): void => {
    if (converting === undefined) action();
    else converting = converting.then(action).catch(endBy);
  };

  return {
    sink: {
      isPatient: client.isPatient === true,
      onEvents(events) {
        if (isOver) return true;
        if (converting !== undefined) {
          // The watch is paused, so the only event that can arrive now is its last.
          afterConversion(() => !isOver && client.onEvents(events));
          return false;
        }
        const converted = convert(events);
        if (!(converted instanceof Promise)) return client.onEvents(converted);
        converting = deliver(converted);
        return false;
      },
      onEnd: () => afterConversion(() => end()),
    },
    attach(handle) {
      source = handle;
      if (isOver) handle.close();
      return {
        // A batch in conversion resumes the watch when it is done.
        resume: () => {
          if (converting === undefined) handle.resume();
        },
        bookmark: () => handle.bookmark?.(),
        close() {
          isOver = true;
          handle.close();
        },
      };
    },
  };
}

function guarded(notify: () => unknown, failed: (error: unknown) => void): void {
  try {
    notify();
  } catch (error) {
    failed(error);
  }
}
