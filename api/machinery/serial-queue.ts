/**
 * Work that must not overlap. A `SerialQueue` runs one piece of work at a time, in the order of the calls; a `KeyedQueue`
 * does so for each key and keeps nothing of a key that has no work.
 *
 * A failure belongs to the caller of `run` alone: the work behind it runs as if nothing had happened.
 */

export class SerialQueue {
  /** Settles when the newest work has ended; never rejects. */
  #last: Promise<unknown> = Promise.resolve();
  #length = 0;

  /** Work that runs or waits. */
  get length(): number {
    return this.#length;
  }

  /** Runs the work after all that was queued before it, and settles as the work does. */
  run<T>(work: () => Promise<T> | T): Promise<T> {
    this.#length++;
    const result = this.#last.then(work).finally(() => this.#length--);
    this.#last = result.catch(() => undefined);
    return result;
  }

  /** Resolves when everything that has been queued so far has ended, well or not. */
  async drained(): Promise<void> {
    await this.#last;
  }
}

export class KeyedQueue {
  readonly #queues = new Map<string, SerialQueue>();

  /** Work of the key runs or waits. */
  has(key: string): boolean {
    return this.#queues.has(key);
  }

  /** Runs the work after all that was queued before it under the same key, and settles as the work does. */
  run<T>(key: string, work: () => Promise<T> | T): Promise<T> {
    const queue = this.#queues.get(key) ?? new SerialQueue();
    this.#queues.set(key, queue);
    return queue.run(work).finally(() => {
      if (queue.length === 0) this.#queues.delete(key);
    });
  }

  /** Resolves when everything that has been queued so far has ended, well or not. */
  async drained(): Promise<void> {
    await Promise.all([...this.#queues.values()].map((queue) => queue.drained()));
  }
}
