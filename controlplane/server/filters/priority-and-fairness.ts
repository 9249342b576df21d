/**
 * Implements API priority and fairness as a filter. It classifies a request, gives it seats of its priority level or lets it
 * wait for them, and takes the seats back after the response. Streams other than watches take no seats. A watch returns its
 * seats as soon as it has begun.
 *
 * A request with a body that is read as a whole takes its seats after the body has arrived (`RequestPlace.receive`). Until then
 * the body counts for the intake of the level.
 */
import type { Share } from '../shares.ts';
import type { FlowControl, LevelFlow } from '../flowcontrol/flow-control.ts';
import type { FlowMetrics, RefusalReason } from '../flowcontrol/flow-metrics.ts';
import type { Grant, Ticket } from '../flowcontrol/queue-set.ts';
import { TooManyRequests } from '../flowcontrol/too-many-requests.ts';
import { seatsOf, type StoredObjects } from '../flowcontrol/work-estimate.ts';
import { isLongRunning } from '../long-running.ts';
import type { ApiRequest, Filter, Handler, MaybePromise, ReadCounted, RequestPlace } from '../request.ts';

/** The flows of requests, and what they are measured with. */
export interface PriorityAndFairnessOptions extends StoredObjects {
  readonly control: FlowControl;
  readonly metrics: FlowMetrics;
  /** The time that a request may wait for its seats. */
  readonly waitLimitMs: number;
}

/** The verbs whose handlers read the body as a whole or forward it (`RequestPlace.enter`). */
const READ_WHOLE: ReadonlySet<string> = new Set(['create', 'update', 'patch', 'delete', 'deletecollection']);

const READS: ReadonlySet<string> = new Set(['get', 'list', 'watch', 'head', 'options']);

/** Answers 429 if a request gets no seat in time, if its queue is full, or if the level has no room for its body. */
export function priorityAndFairnessFilter(options: PriorityAndFairnessOptions): Filter {
  return (request, next) => {
    const { info } = request;
    if (isLongRunning(info) && info.verb !== 'watch') return next(request);
    const flow = options.control.classify(request);
    request.flow = flow.schema;
    const place = new Place(request, flow, options);
    request.place = place;
    if (info.isResource && READ_WHOLE.has(info.verb) && request.exchange.hasBody) {
      place.expectBody();
      return nextThenLeave(place, next, request);
    }
    const seated = place.take();
    if (seated === undefined) return nextThenLeave(place, next, request);
    return seated.then(() => nextThenLeave(place, next, request));
  };
}

function nextThenLeave(place: Place, next: Handler, request: ApiRequest): MaybePromise<void> {
  let pending: MaybePromise<void>;
  try {
    pending = next(request);
  } catch (error) {
    place.leave();
    throw error;
  }
  if (pending === undefined) {
    place.leave();
    return undefined;
  }
  return pending.finally(() => place.leave());
}

/** What a request holds of its priority level: an incoming body, a place in a queue, or seats. */
class Place implements RequestPlace {
  readonly #request: ApiRequest;
  readonly #flow: LevelFlow;
  readonly #options: PriorityAndFairnessOptions;
  readonly #kind: 'readOnly' | 'mutating';
  #expectsBody = false;
  #bodyShare: Share | undefined;
  #ticket: Ticket | undefined;
  /** Set when the body must yield to others. `#yield` is set when a caller waits for that. */
  #yielded: TooManyRequests | undefined;
  #yield: ((error: TooManyRequests) => void) | undefined;

  constructor(request: ApiRequest, flow: LevelFlow, options: PriorityAndFairnessOptions) {
    this.#request = request;
    this.#flow = flow;
    this.#options = options;
    this.#kind = READS.has(request.info.verb) ? 'readOnly' : 'mutating';
  }

  /** Throws if there is no room for the body. */
  expectBody(): void {
    this.#expectsBody = true;
    const { level } = this.#flow.schema;
    if (level.isExempt) return;
    this.#bodyShare = level.intake.open(this.#request.user.name, () => this.#refuseBody());
    if (this.#yielded === undefined) return;
    this.#bodyShare.close();
    throw this.#yielded;
  }

  async receive(read: ReadCounted): Promise<Buffer> {
    if (!this.#expectsBody) return read(() => undefined);
    this.#expectsBody = false;
    const bytes = await this.#received(read);
    await this.take(bytes.length);
    return bytes;
  }

  async enter(): Promise<void> {
    if (!this.#expectsBody) return;
    this.#expectsBody = false;
    if (this.#yielded !== undefined) throw this.#yielded;
    this.#bodyShare?.close();
    await this.take();
  }

  async #received(read: ReadCounted): Promise<Buffer> {
    const share = this.#bodyShare;
    if (share === undefined) return read(() => undefined);
    if (this.#yielded !== undefined) throw this.#yielded;
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    this.#yield = reject;
    read((count) => share.add(count)).then(resolve, reject);
    const bytes = await promise;
    share.complete();
    return bytes;
  }

  #refuseBody(): void {
    const error = this.#refusal('body-intake');
    this.#yielded = error;
    this.#yield?.(error);
    this.#request.abort(error);
  }

  /** Returns `undefined` if the request gets its seats at once. Throws, or rejects with, `TooManyRequests`. */
  take(bodyBytes = 0): Promise<void> | undefined {
    const { level } = this.#flow.schema;
    const { countObjects, objectBytes, metrics, waitLimitMs } = this.#options;
    const width = seatsOf(this.#request, level.bounds.nominal, { countObjects, objectBytes, bodyBytes });
    const { hand } = this.#flow;
    const ticket = level.set.acquire({ width, hand, waitLimitMs, subject: this.#request, flow: this.#flow });
    metrics.estimated(this.#flow, width);
    if (ticket === undefined) throw this.#refusal(level.queues === 0 ? 'concurrency-limit' : 'queue-full');
    this.#ticket = ticket;
    if (ticket.wait === undefined) {
      this.#onSeat(ticket);
      return undefined;
    }
    metrics.enqueued(this.#flow, ticket);
    this.#options.control.waiting[this.#kind] += 1;
    this.#request.exchange.onClose(() => ticket.cancel());
    return ticket.wait.grant.promise.then((grant) => this.#granted(ticket, grant));
  }

  #granted(ticket: Ticket, grant: Grant): void {
    this.#options.metrics.dequeued(this.#flow, ticket);
    this.#options.control.waiting[this.#kind] -= 1;
    if (grant !== 'execute') throw this.#refusal(grant);
    this.#onSeat(ticket);
  }

  #onSeat(ticket: Ticket): void {
    this.#bodyShare?.close();
    this.#options.metrics.started(this.#flow, ticket);
    this.#options.control.executing[this.#kind] += 1;
  }

  #refusal(reason: RefusalReason): TooManyRequests {
    this.#options.metrics.refused(this.#flow, reason, this.#ticket);
    return new TooManyRequests(this.#flow.schema.level.dropped.record());
  }

  leave(): void {
    this.#bodyShare?.close();
    const ticket = this.#ticket;
    if (ticket === undefined || ticket.state === 'done') return;
    ticket.release();
    this.#options.control.executing[this.#kind] -= 1;
    this.#options.metrics.finished(this.#flow, ticket, this.#request.info.verb === 'watch');
  }
}
