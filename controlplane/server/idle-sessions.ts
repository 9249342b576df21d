/**
 * Closes HTTP/2 sessions that have had no stream for a time. One timer serves all sessions, because a timeout of Node.js for
 * each of them is renewed several times for each request. As in kube-apiserver, pings do not keep a session open.
 */
import type { ServerHttp2Session } from 'node:http2';
import type { Clock, Timer } from '../../api/machinery/clock.ts';

/** What is known of the use of one session. */
interface Use {
  /** The number of open streams. */
  streams: number;
  /** Whether a stream was opened since the last check. */
  wasUsed: boolean;
  /** The time of the last check before which the session was used, in monotonic milliseconds. */
  idleSinceMs: number;
}

interface IdleSessionsOptions {
  readonly clock: Clock;
  /** A session without streams is open for this time at least, and for a sixth of it longer at most. */
  readonly timeoutMs: number;
}

const CHECKS_IN_TIMEOUT = 6;

/** The open sessions of a listener. */
export class IdleSessions {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #uses = new Map<ServerHttp2Session, Use>();
  #timer: Timer | undefined;

  constructor({ clock, timeoutMs }: IdleSessionsOptions) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  /** Returns the use of the session, which the caller keeps up to date with `opened` and `closed`. */
  add(session: ServerHttp2Session): { opened(): void; closed(): void } {
    const use: Use = { streams: 0, wasUsed: false, idleSinceMs: this.#clock.monotonic() };
    this.#uses.set(session, use);
    this.#arm();
    return {
      opened: () => {
        use.streams += 1;
        use.wasUsed = true;
      },
      closed: () => {
        use.streams -= 1;
      },
    };
  }

  delete(session: ServerHttp2Session): void {
    this.#uses.delete(session);
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #arm(): void {
    this.#timer ??= this.#clock.after(this.#timeoutMs / CHECKS_IN_TIMEOUT, () => this.#check());
  }

  #check(): void {
    this.#timer = undefined;
    const nowMs = this.#clock.monotonic();
    for (const [session, use] of this.#uses) {
      if (use.streams > 0 || use.wasUsed) use.idleSinceMs = nowMs;
      else if (nowMs - use.idleSinceMs >= this.#timeoutMs) session.close();
      use.wasUsed = false;
    }
    if (this.#uses.size > 0) this.#arm();
  }
}
