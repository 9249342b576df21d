/** The desired pods by uid and by name, with the mirror pods of static pods. */
import type { Pod } from '../../base/model/pod.ts';
import { isMirrorPod } from '../../base/model/pod-kinds.ts';

const fullName = (namespace: string, name: string): string => `${namespace}/${name}`;

/** Owns the tables. A mirror pod is listed apart from the static pod that it shows. */
export class PodManager {
  readonly #pods = new Map<string, Pod>();
  readonly #mirrors = new Map<string, Pod>();
  readonly #byName = new Map<string, Pod>();
  readonly #mirrorsByName = new Map<string, Pod>();

  /** Adds or replaces a pod, or the mirror pod of a static pod. */
  set(pod: Pod): void {
    const name = fullName(pod.metadata.namespace, pod.metadata.name);
    if (isMirrorPod(pod)) {
      this.#mirrors.set(pod.metadata.uid, pod);
      this.#mirrorsByName.set(name, pod);
    } else {
      this.#pods.set(pod.metadata.uid, pod);
      this.#byName.set(name, pod);
    }
  }

  /** Removes a pod, or the mirror pod of a static pod. */
  remove(pod: Pod): void {
    const name = fullName(pod.metadata.namespace, pod.metadata.name);
    const { uid } = pod.metadata;
    if (isMirrorPod(pod)) {
      this.#mirrors.delete(uid);
      if (this.#mirrorsByName.get(name)?.metadata.uid === uid) this.#mirrorsByName.delete(name);
    } else {
      this.#pods.delete(uid);
      if (this.#byName.get(name)?.metadata.uid === uid) this.#byName.delete(name);
    }
  }

  /** Returns all pods except mirror pods. */
  list(): readonly Pod[] {
    return [...this.#pods.values()];
  }

  mirrors(): readonly Pod[] {
    return [...this.#mirrors.values()];
  }

  byUid(uid: string): Pod | undefined {
    return this.#pods.get(uid);
  }

  byName(namespace: string, name: string): Pod | undefined {
    return this.#byName.get(fullName(namespace, name));
  }

  /** Returns the pod with this uid, or the static pod whose mirror pod has it. Returns `undefined` if there is none. */
  byAnyUid(uid: string): Pod | undefined {
    const mirror = this.#mirrors.get(uid);
    return mirror === undefined
      ? this.#pods.get(uid)
      : this.#byName.get(fullName(mirror.metadata.namespace, mirror.metadata.name));
  }

  /** Returns the mirror pod of a static pod, also of one that was removed, unless another pod of its name has replaced it. */
  mirrorOf(pod: Pod): Pod | undefined {
    const name = fullName(pod.metadata.namespace, pod.metadata.name);
    const successor = this.#byName.get(name);
    if (successor !== undefined && successor.metadata.uid !== pod.metadata.uid) return undefined;
    return this.#mirrorsByName.get(name);
  }

  /** Returns the static pod that a mirror pod shows, by its namespace and name, or `undefined` if it is no longer desired. */
  podOfMirror(mirror: Pod): Pod | undefined {
    return this.#byName.get(fullName(mirror.metadata.namespace, mirror.metadata.name));
  }
}
