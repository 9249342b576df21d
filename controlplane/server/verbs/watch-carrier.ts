/** The interface of what carries the events of a watch to its client: a response body or a WebSocket. */
import type { WatchEvent } from '../../model/rest.ts';

/** Where frames go. */
export interface WatchCarrier {
  start(contentType: string): void;
  /** `false`: wait. */
  write(events: readonly WatchEvent[]): boolean;
  end(): void;
  onDrain(listener: () => void): void;
  onClose(listener: () => void): void;
}
