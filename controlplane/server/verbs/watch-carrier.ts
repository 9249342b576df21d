/** Defines the carrier of watch events to a client: a response body or a WebSocket. */
import type { WatchEvent } from '../../model/rest.ts';

/** Sends the events of a watch. */
export interface WatchCarrier {
  start(contentType: string): void;
  /** Returns `false` if the watch must pause until `onDrain`. */
  write(events: readonly WatchEvent[]): boolean;
  /** Ends the stream after what was written. */
  end(): void;
  /** Breaks the stream off. */
  abort(): void;
  /** Whether the stream has ended and the client has taken all of it, or is disconnected. */
  readonly isTaken: boolean;
  /** The size of what was written and waits for the client. */
  readonly waitingBytes: number;
  /** Called whenever the client has taken what waits. */
  onDrain(listener: () => void): void;
  onClose(listener: () => void): void;
}
