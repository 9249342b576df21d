/**
 * Elects one of several processes by a Lease, with the record and the rules of client-go, so that candidates may also be
 * programs that use client-go: a candidate takes a lease that nobody renewed for its duration, and the leader renews it. Clocks
 * of hosts differ, so a candidate counts from when it saw the last renewal, and never compares the times in the record with its
 * own clock.
 */
import { isAlreadyExists, isConflict, isNotFound, tolerate } from '../meta/status-error.ts';
import { stringifyJson } from '../codec/json.ts';
import type { Logger } from '../component/logger.ts';
import { type Clock, formatMicroTime, pause, untilAborted } from '../machinery/clock.ts';
import { referenceTo } from './event-recorder.ts';
import type { EventRecorder } from './event-report.ts';
import type { Lease } from '../kinds/kinds.ts';
import { leases } from './resources.ts';
import type { TypedClient } from './typed-client.ts';

/** The times of client-go's election. `leaderElectionProblem` checks them. */
export interface LeaderElectionTimes {
  /** The duration in the leases of this process: how long others wait after its last renewal that they saw. */
  readonly leaseDurationMs: number;
  /** How long the leader tries to renew before its term is over. */
  readonly renewDeadlineMs: number;
  /** The time between two attempts. */
  readonly retryPeriodMs: number;
}

/** The lease and the identity of this candidate. */
export interface LeaderElectionOptions extends LeaderElectionTimes {
  readonly client: TypedClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Returns a number from 0 to below 1. */
  readonly random: () => number;
  readonly recorder: EventRecorder;
  readonly namespace: string;
  /** The name of the Lease. */
  readonly name: string;
  /** Unique among all candidates. */
  readonly identity: string;
  /** Called when a term begins and when it has ended. */
  readonly onChange?: (isLeader: boolean) => void;
}

/** A time in which this process is the leader. */
export interface Term {
  /** Aborts when the term ends. */
  readonly signal: AbortSignal;
  /**
   * Whether the term lasts by the clock. It is exact also while the signal is late because the event loop was busy or the host
   * slept.
   */
  readonly lasts: () => boolean;
}

/** Does the leader's work. Resolves when all work has ended, which follows the abort of the signal. */
type Lead = (term: Term) => Promise<void>;

/** Candidates spread their attempts by this share of the period. */
const JITTER = 0.2;
/** The duration in the record of a lease that a leader has given up, as client-go writes it. */
const RELEASED_SECONDS = 1;

type LeaseSpec = NonNullable<Lease['spec']>;

/** Returns why the times cannot work, or `undefined` if they can. */
export function leaderElectionProblem(times: LeaderElectionTimes): string | undefined {
  const { leaseDurationMs, renewDeadlineMs, retryPeriodMs } = times;
  if (retryPeriodMs < 1) return 'the retry period must be greater than zero';
  if (leaseDurationMs < 1000) return 'the lease duration must be at least a second';
  if (leaseDurationMs <= renewDeadlineMs) return 'the lease duration must be greater than the renew deadline';
  if (renewDeadlineMs <= retryPeriodMs * (1 + JITTER))
    return `the renew deadline must be greater than ${1 + JITTER} retry periods`;
  return undefined;
}

/**
 * Acquires the lease and runs `lead` for each term, until the signal aborts. Never rejects. It resolves when the last term has
 * ended and its lease is given up.
 */
export async function runLeaderElection(
  options: LeaderElectionOptions,
  lead: Lead,
  signal: AbortSignal,
): Promise<void> {
  const candidate = new Candidate(options);
  while (!signal.aborted) {
    if (!(await candidate.acquire(signal))) return;
    await candidate.serveTerm(lead, signal);
    // After a term that ended early, other candidates get the first attempt.
    await pause(options.clock, options.retryPeriodMs, signal);
  }
}

interface Observed {
  /** The record as text, which changes with each renewal. */
  readonly record: string;
  readonly lease: Lease;
  readonly atMs: number;
}

/**
 * The time at which the term ends unless the lease is renewed: the time of the last successful write plus the renew deadline.
 */
interface TermEnd {
  readonly monotonicMs: number;
  /** Advances during the sleep of a host, when monotonic time does not. */
  readonly wallMs: number;
}

class Candidate {
  readonly #options: LeaderElectionOptions;
  #observed: Observed | undefined;
  #termEnd: TermEnd | undefined;
  /** Counts attempts, so that one that was given up changes nothing when its answer comes late. */
  #attempt = 0;

  constructor(options: LeaderElectionOptions) {
    this.#options = options;
  }

  /** Tries until this process holds the lease, and then resolves to true. Resolves to false if the signal aborts before. */
  async acquire(signal: AbortSignal): Promise<boolean> {
    const { clock, logger, name, retryPeriodMs, renewDeadlineMs, random } = this.#options;
    while (!signal.aborted) {
      try {
        if (await this.#within(renewDeadlineMs, signal, () => this.#tryAcquireOrRenew())) return true;
      } catch (error) {
        if (signal.aborted) return false;
        if (isConflict(error) || isAlreadyExists(error))
          logger.debug({ lease: name }, 'Another candidate acquired the lease first');
        else logger.warn({ err: error, lease: name }, 'The lease could not be acquired; trying again');
      }
      const jittered = retryPeriodMs * (1 + JITTER * random());
      // A lease that expires before the next attempt is taken when it expires.
      await pause(clock, Math.min(jittered, this.#expiresInMs() ?? jittered), signal);
    }
    return false;
  }

  async serveTerm(lead: Lead, signal: AbortSignal): Promise<void> {
    const { logger, name, identity, onChange } = this.#options;
    const stop = new AbortController();
    const term: Term = { signal: stop.signal, lasts: () => !stop.signal.aborted && this.#leftMs() > 0 };
    logger.info({ lease: name, identity }, 'This process became the leader');
    this.#report('became leader');
    onChange?.(true);
    const work = this.#work(lead, term, stop);
    await this.#renewUntilLost(AbortSignal.any([signal, stop.signal]));
    stop.abort(new Error('the process is no longer the leader'));
    await work;
    onChange?.(false);
    const isHeld = this.#leftMs() > 0;
    this.#termEnd = undefined;
    if (isHeld) await this.#release();
    logger.info({ lease: name, identity }, 'This process is no longer the leader');
  }

  /** Runs the work of the leader for one term. If the work ends or fails, the leader gives up its lease. */
  async #work(lead: Lead, term: Term, stop: AbortController): Promise<void> {
    try {
      await lead(term);
    } catch (error) {
      const { logger, name } = this.#options;
      if (!term.signal.aborted) logger.error({ err: error, lease: name }, 'The work of the leader failed');
    }
    stop.abort(new Error("the leader's work has ended"));
  }

  async #renewUntilLost(signal: AbortSignal): Promise<void> {
    const { clock, logger, name, retryPeriodMs } = this.#options;
    while (!signal.aborted) {
      await pause(clock, Math.min(retryPeriodMs, Math.max(0, this.#leftMs())), signal);
      const leftMs = this.#leftMs();
      if (signal.aborted) return;
      if (leftMs <= 0) {
        logger.error({ lease: name }, 'The lease was not renewed before the deadline; the leader stops');
        return;
      }
      try {
        if (await this.#within(leftMs, signal, () => this.#tryAcquireOrRenew())) continue;
        logger.error({ lease: name, holder: this.#holder() }, 'Another process took the lease; the leader stops');
        this.#termEnd = undefined;
        return;
      } catch (error) {
        if (!signal.aborted) logger.warn({ err: error, lease: name }, 'The lease could not be renewed; trying again');
      }
    }
  }

  /** Returns whether this process holds the lease. Rejects if that is unknown. */
  async #tryAcquireOrRenew(): Promise<boolean> {
    const { client, namespace, name, identity } = this.#options;
    const attempt = ++this.#attempt;
    if (this.#termEnd !== undefined && this.#observed !== undefined) {
      try {
        return await this.#write(this.#observed.lease, attempt);
      } catch (error) {
        // Another process deleted the Lease, or changed it, if only its metadata.
        if (!isConflict(error) && !isNotFound(error)) throw error;
      }
    }
    const lease: Lease | undefined = await tolerate(client.get(leases, namespace, name), isNotFound);
    if (lease === undefined) return this.#write(undefined, attempt);
    this.#observe(lease, attempt);
    const holder = this.#holder();
    if (holder !== '' && holder !== identity && (this.#expiresInMs() ?? 0) > 0) return false;
    return this.#write(lease, attempt);
  }

  async #write(lease: Lease | undefined, attempt: number): Promise<boolean> {
    const { client, clock, namespace, name, identity, renewDeadlineMs } = this.#options;
    const termEnd = { monotonicMs: clock.monotonic() + renewDeadlineMs, wallMs: clock.now() + renewDeadlineMs };
    const spec = this.#recordOf(lease?.spec);
    const written =
      lease === undefined
        ? await client.create(leases, namespace, {
            apiVersion: 'coordination.k8s.io/v1',
            kind: 'Lease',
            metadata: { name, namespace },
            spec,
          })
        : await client.update(leases, { ...lease, spec });
    this.#observe(written, attempt);
    // A write that a proxy or a webhook changed does not make a leader.
    if (this.#holder() !== identity) return false;
    this.#termEnd = termEnd;
    return true;
  }

  #recordOf(former: LeaseSpec | undefined): LeaseSpec {
    const { clock, identity, leaseDurationMs } = this.#options;
    const now = formatMicroTime(clock.now());
    const isOwn = former?.holderIdentity === identity;
    const transitions = former?.leaseTransitions ?? 0;
    return {
      ...former,
      holderIdentity: identity,
      leaseDurationSeconds: Math.ceil(leaseDurationMs / 1000),
      acquireTime: (isOwn ? former.acquireTime : undefined) ?? now,
      renewTime: now,
      leaseTransitions: former === undefined || isOwn ? transitions : transitions + 1,
    };
  }

  /** Lets another candidate lead at once. Failing that, the lease expires. */
  async #release(): Promise<void> {
    const { logger, name, renewDeadlineMs } = this.#options;
    const attempt = ++this.#attempt;
    const giveUp = (): Promise<void> => this.#giveUp(attempt);
    try {
      // A renewal that was under way when the term ended may come in between once.
      const again = (error: unknown): Promise<void> => (isConflict(error) ? giveUp() : Promise.reject(error as Error));
      await this.#within(renewDeadlineMs, NEVER, () => giveUp().catch(again));
      this.#report('stopped leading');
    } catch (error) {
      logger.warn(
        { err: error, lease: name },
        'The lease could not be released; other candidates wait until it expires',
      );
    }
  }

  async #giveUp(attempt: number): Promise<void> {
    const { clock, client, namespace, name, identity } = this.#options;
    const lease = await client.get(leases, namespace, name);
    if (lease.spec?.holderIdentity !== identity) return;
    const now = formatMicroTime(clock.now());
    const times = { leaseDurationSeconds: RELEASED_SECONDS, acquireTime: now, renewTime: now };
    this.#observe(
      await client.update(leases, { ...lease, spec: { ...lease.spec, holderIdentity: '', ...times } }),
      attempt,
    );
  }

  /** Remembers the lease, and the time at which its record was last seen to change. Throws if the attempt was given up. */
  #observe(lease: Lease, attempt: number): void {
    if (attempt !== this.#attempt) throw new Error('the answer of the API server came too late');
    const record = stringifyJson(lease.spec ?? {});
    const isRenewed = record !== this.#observed?.record;
    const atMs = isRenewed ? this.#options.clock.monotonic() : (this.#observed?.atMs ?? 0);
    this.#observed = { record, lease, atMs };
  }

  #holder(): string {
    return this.#observed?.lease.spec?.holderIdentity ?? '';
  }

  /** Returns the time until the observed lease may be taken if nobody renews it, or `undefined` if none was observed. */
  #expiresInMs(): number | undefined {
    if (this.#observed === undefined) return undefined;
    const { clock, leaseDurationMs } = this.#options;
    const { lease, atMs } = this.#observed;
    const durationMs = (lease.spec?.leaseDurationSeconds ?? leaseDurationMs / 1000) * 1000;
    return Math.max(0, atMs + durationMs - clock.monotonic());
  }

  /** Returns how long the term still lasts without a renewal. */
  #leftMs(): number {
    if (this.#termEnd === undefined) return 0;
    const { clock } = this.#options;
    return Math.min(this.#termEnd.monotonicMs - clock.monotonic(), this.#termEnd.wallMs - clock.now());
  }

  #report(what: string): void {
    const { recorder, identity } = this.#options;
    const lease = this.#observed?.lease;
    if (lease !== undefined)
      recorder.event(referenceTo(lease, leases), 'Normal', 'LeaderElection', `${identity} ${what}`);
  }

  /**
   * Rejects if the work takes longer than `limitMs`, so that an API server that does not answer cannot delay the end of a term.
   */
  async #within<T>(limitMs: number, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const late = new AbortController();
    const timer = this.#options.clock.after(limitMs, () => late.abort(new Error('the API server did not answer')));
    try {
      return await untilAborted(work(), AbortSignal.any([signal, late.signal]));
    } finally {
      timer.cancel();
    }
  }
}

const NEVER = new AbortController().signal;
