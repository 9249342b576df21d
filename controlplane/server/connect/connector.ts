/** What streams to agents and proxies look like to the handler chain. */
import type { Rest } from '../../registry/rest.ts';
import type { ApiRequest, MaybePromise } from '../request.ts';

export interface Connector {
  /** Resolves when the stream has ended. */
  connect(request: ApiRequest, rest: Rest): MaybePromise<void>;
}
