/** Shares one read between concurrent callers, so that a linearizable read for each request costs only a few calls of etcd. */

export class SharedRead<T> {
  readonly #read: () => Promise<T>;
  #running: Promise<T> | undefined;
  #next: Promise<T> | undefined;

  constructor(read: () => Promise<T>) {
    this.#read = read;
  }

  /**
   * Resolves to the result of a read that began after the call. Callers that come while a read is running share the next one.
   */
  get(): Promise<T> {
    if (this.#running === undefined) {
      const running = this.#read().finally(() => {
        if (this.#running === running) this.#running = undefined;
      });
      this.#running = running;
      return running;
    }
    const ended = (): Promise<T> => {
      this.#next = undefined;
      return this.get();
    };
    this.#next ??= this.#running.then(ended, ended);
    return this.#next;
  }
}
