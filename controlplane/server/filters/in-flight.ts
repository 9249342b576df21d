/**
 * Bounds the requests under way, those that read and those that write apart. What lasts (watches, streams), health checks
 * and `system:masters` are not counted. A client over the bound is told to come back in a second.
 */
import type { ApiRequest, Filter } from '../request.ts';
import { isLongRunning } from '../long-running.ts';

export interface InFlightOptions {
  readonly maxReading: number;
  readonly maxMutating: number;
}

const READING: ReadonlySet<string> = new Set(['get', 'list', 'watch', 'head', 'options']);

export class InFlight {
  readonly #limits: InFlightOptions;
  reading = 0;
  mutating = 0;

  constructor(limits: InFlightOptions) {
    this.#limits = limits;
  }

  readonly filter: Filter = (request, next) => {
    const { info } = request;
    if (isLongRunning(info) || isHealth(info.path) || request.user.groups.includes('system:masters'))
      return next(request);
    const reads = READING.has(info.verb);
    if (reads ? this.reading >= this.#limits.maxReading : this.mutating >= this.#limits.maxMutating) {
      refuse(request);
      return undefined;
    }
    this.#count(reads, 1);
    let pending: void | Promise<void>;
    try {
      pending = next(request);
    } catch (error) {
      this.#count(reads, -1);
      throw error;
    }
    if (pending === undefined) {
      this.#count(reads, -1);
      return undefined;
    }
    return pending.finally(() => this.#count(reads, -1));
  };

  #count(reads: boolean, change: number): void {
    if (reads) this.reading += change;
    else this.mutating += change;
  }
}

function isHealth(path: string): boolean {
  return path.startsWith('/healthz') || path.startsWith('/livez') || path.startsWith('/readyz');
}

function refuse(request: ApiRequest): void {
  const headers = request.responseHeaders('text/plain; charset=utf-8');
  headers['retry-after'] = '1';
  request.status = 429;
  request.exchange.send(429, headers, 'Too many requests, please try again later.\n');
}
