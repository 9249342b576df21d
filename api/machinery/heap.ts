/** Implements a binary heap. `pop` removes the first item in the order of `before`. */
export class Heap<T> {
  readonly #before: (a: T, b: T) => boolean;
  readonly #items: T[] = [];

  constructor(before: (a: T, b: T) => boolean) {
    this.#before = before;
  }

  /** The item that `pop` would return, which stays in the heap. It is `undefined` if the heap is empty. */
  get first(): T | undefined {
    return this.#items[0];
  }

  push(item: T): void {
    const items = this.#items;
    let at = items.push(item) - 1;
    for (let above = (at - 1) >> 1; at > 0; above = (at - 1) >> 1) {
      const parent = items[above];
      if (parent === undefined || !this.#before(item, parent)) break;
      items[at] = parent;
      at = above;
    }
    items[at] = item;
  }

  /** Removes and returns the first item, or returns `undefined` if the heap is empty. */
  pop(): T | undefined {
    const items = this.#items;
    const first = items[0];
    const last = items.pop();
    if (last !== undefined && items.length > 0) this.#sink(last);
    return first;
  }

  clear(): void {
    this.#items.length = 0;
  }

  /** Puts the item at the root and moves it down to its place. */
  #sink(item: T): void {
    const items = this.#items;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      let child = items[below];
      if (child === undefined) break;
      const right = items[below + 1];
      if (right !== undefined && this.#before(right, child)) {
        below += 1;
        child = right;
      }
      if (!this.#before(child, item)) break;
      items[at] = child;
      at = below;
    }
    items[at] = item;
  }
}
