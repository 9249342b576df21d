/** Who is told of every request that has been answered: metrics in the program, nobody in most tests. */
import type { ApiRequest } from './request.ts';

export interface RequestObserver {
  /** The handler chain is through; a stream's handler returns when the stream ends. */
  done(request: ApiRequest): void;
}

export const noObserver: RequestObserver = { done: () => undefined };
