/**
 * Limits the requests in flight, separately for those that read and those that write, if API priority and fairness is off.
 * Long-running requests, health checks and `system:masters` are not counted.
 */
import { TooManyRequests } from '../flowcontrol/too-many-requests.ts';
import type { Filter } from '../request.ts';
import { isLongRunning } from '../long-running.ts';
import { MASTERS_GROUP } from '../../../api/meta/system-users.ts';

/** The maximum numbers of requests in flight. 0 means no limit. */
export interface InFlightOptions {
  readonly maxReading: number;
  readonly maxMutating: number;
}

const READING: ReadonlySet<string> = new Set(['get', 'list', 'watch', 'head', 'options']);

/** Counts the requests in flight. A request beyond a limit is answered with 429. */
export class InFlight {
  readonly #limits: InFlightOptions;
  reading = 0;
  mutating = 0;

  constructor(limits: InFlightOptions) {
    this.#limits = limits;
  }

  readonly filter: Filter = (request, next) => {
    const { info } = request;
    if (isLongRunning(info) || isHealth(info.path) || request.user.groups.includes(MASTERS_GROUP)) return next(request);
    const reads = READING.has(info.verb);
    const limit = reads ? this.#limits.maxReading : this.#limits.maxMutating;
    if (limit > 0 && (reads ? this.reading : this.mutating) >= limit) throw new TooManyRequests(1);
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
