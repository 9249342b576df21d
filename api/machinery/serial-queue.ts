/**
 * Runs work that must not overlap. A `SerialQueue` runs one task at a time, in the order of the calls. A `KeyedQueue` does so
 * for each key and keeps no state of a key without work.
 *
 * Only the caller of `run` gets the failure of its task.
 */

/** Runs one task at a time. `run` resolves or rejects like its task. */
export class SerialQueue {
  /** Settles when the newest task has finished. Never rejects. */
  #last: Promise<unknown> = Promise.resolve();
  #length = 0;

  /** The number of running and waiting tasks. */
  get length(): number {
    return this.#length;
  }

  /** Runs the task after all tasks that were queued before it, and settles as the task does. */
  run<T>(work: () => Promise<T> | T): Promise<T> {
    this.#length++;
    const result = this.#last.then(work).finally(() => this.#length--);
    this.#last = result.catch(() => undefined);
    return result;
  }

  /** Resolves when all tasks queued so far have finished, with or without an error. */
  async drained(): Promise<void> {
    await this.#last;
  }
}

/** Runs the tasks of each key one at a time, and those of different keys at the same time. */
export class KeyedQueue {
  readonly #queues = new Map<string, SerialQueue>();

  /** Whether a task of the key runs or waits. */
  has(key: string): boolean {
    return this.#queues.has(key);
  }

  /** Runs the task after all tasks that were queued before it under the same key, and settles as the task does. */
  run<T>(key: string, work: () => Promise<T> | T): Promise<T> {
    const queue = this.#queues.get(key) ?? new SerialQueue();
    this.#queues.set(key, queue);
    return queue.run(work).finally(() => {
      if (queue.length === 0) this.#queues.delete(key);
    });
  }

  /** Resolves when all tasks queued so far have finished, with or without an error. */
  async drained(): Promise<void> {
    await Promise.all([...this.#queues.values()].map((queue) => queue.drained()));
  }
}
