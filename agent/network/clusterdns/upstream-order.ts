/**
 * Remembers which name servers do not answer. They come last for a while, so that not every query waits for a server that
 * is down before it gets to the next one.
 */
import type { Clock } from '../../../api/machinery/clock.ts';

/** A server comes last after this many queries without an answer: a single one may be about a name that resolves slowly. */
const MAX_FAILURES = 2;
/** How long such a server comes last. */
const COMES_LAST_MS = 10_000;
/** The maximum number of servers that are remembered. */
const MAX_SERVERS = 1000;

interface Failures {
  readonly count: number;
  readonly lastUntilMs: number;
}

/** Owns the failures of servers since their last answers. */
export class UpstreamOrder {
  readonly #clock: Clock;
  readonly #failures = new Map<string, Failures>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Returns the servers in the order in which to ask them. */
  of(servers: readonly string[]): readonly string[] {
    const nowMs = this.#clock.monotonic();
    const [first, last]: [string[], string[]] = [[], []];
    for (const server of servers) {
      const { count, lastUntilMs } = this.#failures.get(server) ?? { count: 0, lastUntilMs: 0 };
      if (count < MAX_FAILURES) first.push(server);
      else if (lastUntilMs > nowMs) last.push(server);
      else {
        first.push(server);
        // Further queries do not wait for it until it has answered this one.
        this.#failures.set(server, { count, lastUntilMs: nowMs + COMES_LAST_MS });
      }
    }
    return [...first, ...last];
  }

  /** Records that the server has answered a query. */
  answered(server: string): void {
    this.#failures.delete(server);
  }

  /** Records that the server has not answered a query. */
  failed(server: string): void {
    const { count } = this.#failures.get(server) ?? { count: 0 };
    if (this.#failures.size >= MAX_SERVERS) this.#failures.clear();
    this.#failures.set(server, { count: count + 1, lastUntilMs: this.#clock.monotonic() + COMES_LAST_MS });
  }
}
