/**
 * Keeps a document whose inputs change at any time and whose assembly takes time that grows with all of them. One assembly runs
 * at a time, only when a client requests the document, whatever the number of changes and of clients.
 */
import { type Clock, pause } from '../../../api/machinery/clock.ts';

/** A client that requests the document while its inputs change all the time gets the last one after this time. */
const MAX_WAIT_MS = 1000;

/** Keeps a document. `assemble` builds it from the inputs at the time of the call. */
export class NewestDocument<Document> {
  readonly #assemble: () => Promise<Document>;
  readonly #clock: Clock;
  #changes = 0;
  #last: { readonly document: Document; readonly changes: number } | undefined;
  #assembly: Promise<void> | undefined;

  constructor(assemble: () => Promise<Document>, clock: Clock) {
    this.#assemble = assemble;
    this.#clock = clock;
  }

  /** Has the document assembled again at the next request. */
  invalidate(): void {
    this.#changes += 1;
  }

  /**
   * Returns a document with all changes before the call, or the last one if that takes more than a second and there is one.
   * Rejects with the error of an assembly that it waits for.
   */
  async get(): Promise<Document> {
    const newest = this.#including(this.#changes);
    if (this.#last === undefined || this.#last.changes === this.#changes) return newest;
    const { document } = this.#last;
    const answered = new AbortController();
    const last = pause(this.#clock, MAX_WAIT_MS, answered.signal).then(() => this.#last?.document ?? document);
    try {
      return await Promise.race([newest, last]);
    } finally {
      answered.abort();
    }
  }

  /** Resolves to a document that includes the first `changes` changes. */
  async #including(changes: number): Promise<Document> {
    for (;;) {
      if (this.#last !== undefined && this.#last.changes >= changes) return this.#last.document;
      this.#assembly ??= this.#assembleOnce().finally(() => {
        this.#assembly = undefined;
      });
      await this.#assembly;
    }
  }

  async #assembleOnce(): Promise<void> {
    const changes = this.#changes;
    this.#last = { document: await this.#assemble(), changes };
  }
}
