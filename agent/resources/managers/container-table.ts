/** Holds what managers have allocated, by the uid of the pod and the name of the container. */
export class ContainerTable<T> {
  readonly #pods = new Map<string, Map<string, T>>();

  /** Returns what the container has, or `undefined`. */
  get(podUid: string, container: string): T | undefined {
    return this.#pods.get(podUid)?.get(container);
  }

  /** Returns the values of a pod by container name. */
  ofPod(podUid: string): ReadonlyMap<string, T> {
    return this.#pods.get(podUid) ?? new Map<string, T>();
  }

  /** Replaces what the container has. */
  set(podUid: string, container: string, value: T): void {
    const ofPod = this.#pods.get(podUid) ?? new Map<string, T>();
    ofPod.set(container, value);
    this.#pods.set(podUid, ofPod);
  }

  /** Removes all containers of the pod. */
  delete(podUid: string): void {
    this.#pods.delete(podUid);
  }

  /** Returns the uids of the pods that have something. */
  pods(): readonly string[] {
    return [...this.#pods.keys()];
  }

  /** Returns the values of all containers. */
  *values(): Generator<T> {
    for (const ofPod of this.#pods.values()) yield* ofPod.values();
  }

  /** Returns the table as an object with sorted keys, as state files have it. */
  entries<U>(encode: (value: T) => U): Readonly<Record<string, Readonly<Record<string, U>>>> {
    const sorted = <V>(map: ReadonlyMap<string, V>): [string, V][] => [...map].sort(([a], [b]) => (a < b ? -1 : 1));
    return Object.fromEntries(
      sorted(this.#pods).map(([pod, containers]) => [
        pod,
        Object.fromEntries(sorted(containers).map(([name, value]) => [name, encode(value)])),
      ]),
    );
  }
}
