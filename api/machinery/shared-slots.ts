/**
 * Shares a bounded number of slots among owners, such as namespaces. If no slot is free, the owner with most slots loses the
 * one that it took last, so that no owner keeps the others from getting any.
 */

/** Called when the slot is given to another owner. */
type Evict = () => void;

/** Owns the slots. Each is taken until it is freed. */
export class SharedSlots {
  readonly most: number;
  /** The slots of each owner, in the order in which they were taken. */
  readonly #taken = new Map<string, Set<Evict>>();
  #count = 0;

  constructor(most: number) {
    this.most = most;
  }

  /**
   * Returns the function that frees the slot. Returns `undefined` if none is free and no other owner has at least two slots
   * more than this one.
   */
  take(owner: string, evict: Evict): (() => void) | undefined {
    if (this.#count >= this.most && !this.#evictFor(owner)) return undefined;
    const slots = this.#taken.get(owner) ?? new Set();
    this.#taken.set(owner, slots);
    // Two slots may have the same function.
    const slot = (): void => evict();
    slots.add(slot);
    this.#count += 1;
    return () => this.#free(owner, slot);
  }

  #evictFor(owner: string): boolean {
    let largest = owner;
    const sizeOf = (one: string): number => this.#taken.get(one)?.size ?? 0;
    for (const [other, { size }] of this.#taken) if (size > sizeOf(largest)) largest = other;
    // If the other owner has only one slot more, the two would take that slot from each other again and again.
    if (sizeOf(largest) <= sizeOf(owner) + 1) return false;
    const newest = [...(this.#taken.get(largest) ?? [])].at(-1);
    if (newest === undefined) return false;
    this.#free(largest, newest);
    newest();
    return true;
  }

  #free(owner: string, slot: Evict): void {
    const slots = this.#taken.get(owner);
    if (slots?.delete(slot) !== true) return;
    this.#count -= 1;
    if (slots.size === 0) this.#taken.delete(owner);
  }
}
