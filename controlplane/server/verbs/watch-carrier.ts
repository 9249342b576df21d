/** Defines the carrier of watch events to a client: a response body or a WebSocket. */
import type { WatchEvent } from '../../model/rest.ts';

/** Sends the events of a watch. */
export interface WatchCarrier {
  start(contentType: string): void;
  /** Returns `false` if the watch must pause. */
  write(events: readonly WatchEvent[]): boolean;
  end(): void;
  onDrain(listener: () => void): void;
  onClose(listener: () => void): void;
}
