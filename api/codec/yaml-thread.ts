/**
 * Parses YAML texts without blocking the event loop: small ones at once, large ones in a worker thread, one after the other.
 *
 * A text that needs too much time or memory is refused, and the thread is replaced.
 */
import { Worker } from 'node:worker_threads';
import type { Clock, Timer } from '../machinery/clock.ts';
import type { JsonValue } from '../meta/object.ts';
import { newStatusError } from '../meta/status-error.ts';
import { performYamlJob, type ParsedDocuments, type YamlJob, type YamlOutcome } from './yaml-job.ts';
import { YamlSyntaxError, type ParsedYaml } from './yaml.ts';

/**
 * A parser whose results may be synchronous. It fails with a `YamlSyntaxError`, with a 429 if too many large texts wait, and
 * with the reason of the signal.
 */
export interface YamlParser {
  /** Parses the first document, as `parseYaml` does. */
  first(text: Uint8Array, options?: FirstOptions): ParsedYaml | Promise<ParsedYaml>;
  /** Parses all documents, as `parseYamlDocuments` does. */
  all(text: Uint8Array): JsonValue[] | Promise<JsonValue[]>;
}

interface FirstOptions {
  /** Whether to sort the keys of all maps. */
  readonly sorted?: boolean;
  /** A text is not parsed if the signal aborts while it waits. */
  readonly signal?: AbortSignal;
}

/** The size above which texts are parsed in a thread, because they take more than some milliseconds. */
const LARGE_BYTES = 64 * 1024;
/** Many times what the largest text takes. */
const LIMIT_MS = 20_000;
const IDLE_MS = 30_000;
/** The memory of the thread. A text that needs more ends the thread, and not the process. */
const MAX_HEAP_MB = 512;
/** The maximum number of texts that wait for the thread. Further ones are refused. */
const MAX_WAITING = 100;

interface Waiting {
  readonly job: YamlJob;
  readonly signal: AbortSignal | undefined;
  resolve(outcome: YamlOutcome): void;
  reject(error: unknown): void;
}

/** Creates a parser, which starts its thread with the first large text. */
export function createYamlThread(options: { readonly clock: Clock }): YamlParser {
  return new YamlThread(options.clock);
}

class YamlThread implements YamlParser {
  readonly #clock: Clock;
  readonly #waiting: Waiting[] = [];
  #current: Waiting | undefined;
  #worker: Worker | undefined;
  #timer: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  first(text: Uint8Array, { sorted = false, signal }: FirstOptions = {}): ParsedYaml | Promise<ParsedYaml> {
    const job: YamlJob = { text, read: sorted ? 'first-sorted' : 'first' };
    const parsed = ({ values, duplicates }: ParsedDocuments): ParsedYaml => ({ value: values[0] ?? null, duplicates });
    return text.length <= LARGE_BYTES ? parsed(performYamlJob(job)) : this.#parse(job, signal).then(parsed);
  }

  all(text: Uint8Array): JsonValue[] | Promise<JsonValue[]> {
    const job: YamlJob = { text, read: 'all' };
    return text.length <= LARGE_BYTES
      ? performYamlJob(job).values
      : this.#parse(job, undefined).then(({ values }) => values);
  }

  async #parse(job: YamlJob, signal: AbortSignal | undefined): Promise<ParsedDocuments> {
    if (this.#waiting.length >= MAX_WAITING)
      throw newStatusError(429, 'TooManyRequests', 'too many large YAML documents are being parsed, please try again');
    const outcome = await new Promise<YamlOutcome>((resolve, reject) => {
      this.#waiting.push({ job, signal, resolve, reject });
      this.#next();
    });
    if ('syntaxError' in outcome) throw new YamlSyntaxError(outcome.syntaxError);
    return outcome;
  }

  #next(): void {
    if (this.#current !== undefined) return;
    const next = this.#waiting.shift();
    if (next === undefined) return this.#stopWhenIdle();
    if (next.signal?.aborted === true) {
      next.reject(next.signal.reason);
      return this.#next();
    }
    this.#timer?.cancel();
    this.#current = next;
    this.#worker ??= this.#started();
    // A process without other work may exit, but not before its texts are parsed.
    this.#worker.ref();
    // The bytes may be part of a larger buffer, so they are copied before they are transferred.
    const text = new Uint8Array(next.job.text);
    this.#worker.postMessage({ ...next.job, text }, [text.buffer]);
    this.#timer = this.#clock.after(LIMIT_MS, () =>
      this.#failCurrent(new YamlSyntaxError(`yaml: the document takes more than ${LIMIT_MS / 1000} seconds to parse`)),
    );
  }

  /** Stops the thread once it was idle for a while. */
  #stopWhenIdle(): void {
    this.#timer?.cancel();
    this.#worker?.unref();
    this.#timer = this.#clock.after(IDLE_MS, () => this.#stop());
  }

  #started(): Worker {
    // In a release, the worker is a bundle beside the bundle of the program.
    const file = import.meta.url.endsWith('.ts')
      ? new URL('./yaml-worker.ts', import.meta.url)
      : new URL('./yaml-worker.js', import.meta.url);
    const worker = new Worker(file, { name: 'yaml', resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB } });
    worker.on('message', (outcome: YamlOutcome) => {
      if (worker === this.#worker) this.#settle((current) => current.resolve(outcome));
    });
    worker.on('error', (error: NodeJS.ErrnoException) => {
      if (worker !== this.#worker) return;
      const isLarge = error.code === 'ERR_WORKER_OUT_OF_MEMORY';
      this.#failCurrent(isLarge ? new YamlSyntaxError('yaml: the document takes too much memory to parse') : error);
    });
    return worker;
  }

  /** Fails the current text. The next one gets another thread. */
  #failCurrent(error: unknown): void {
    this.#stop();
    this.#settle((current) => current.reject(error));
  }

  #settle(answer: (current: Waiting) => void): void {
    const current = this.#current;
    this.#current = undefined;
    if (current !== undefined) answer(current);
    this.#next();
  }

  #stop(): void {
    const worker = this.#worker;
    this.#worker = undefined;
    // Nobody waits for the end of the thread.
    worker?.terminate().catch(() => undefined);
  }
}
