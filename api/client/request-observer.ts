/** Defines the receiver of what clients report about their requests to other servers. `client-metrics.ts` implements it. */

/** A request to another server, as metrics label it. */
export interface ObservedRequest {
  readonly method: string;
  /** The URL of the server, or its host. */
  readonly server: string;
}

/** Receives the attempts of requests. Its methods must not throw. */
export interface RequestObserver {
  /** Receives the time that a request waited for the client's own rate limit. */
  limited(request: ObservedRequest, tookMs: number): void;
  /** Receives an attempt. It has no status if there was no response. */
  sent(
    request: ObservedRequest,
    attempt: {
      readonly status: number | undefined;
      readonly tookMs: number;
      readonly bytes: number;
      /** The attempt repeats one that failed. */
      readonly isRetry: boolean;
    },
  ): void;
  /** Receives the size of the body of a response that was read whole. */
  received(request: ObservedRequest, bytes: number): void;
}
