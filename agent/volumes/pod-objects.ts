/**
 * Serves config maps and secrets to pods: those of the API to pods of the API, and those of the folder of static pods to the
 * pods of that folder. A pod of the API that names an object of the folder does not get it, so that no user of the API reads
 * files of a host.
 */
import type { KubeObject } from '../../api/meta/object.ts';
import type { Pod } from '../base/model/pod.ts';
import type { ReferencedObjects } from '../base/model/referenced-objects.ts';
import { type StaticObjectKey, staticObjectKey, type StaticObjects } from '../sources/static-objects.ts';
import { configMapNames, secretNames } from './referenced-objects.ts';
import { SOURCE_ANNOTATION } from '../../api/kinds/pod-annotations.ts';

interface PodObjectsOptions {
  readonly api: ReferencedObjects;
  readonly statics: StaticObjects;
  /** Gets the uids of static pods whose objects changed. */
  readonly onChange: (podUids: ReadonlySet<string>) => void;
}

/** Chooses the source of a pod's objects by the source of the pod. */
export class PodObjects implements ReferencedObjects {
  readonly #api: ReferencedObjects;
  readonly #statics: StaticObjects;
  /** The keys that each static pod refers to, by its uid. */
  readonly #used = new Map<string, ReadonlySet<StaticObjectKey>>();

  constructor({ api, statics, onChange }: PodObjectsOptions) {
    this.#api = api;
    this.#statics = statics;
    statics.onChange((changed) => {
      const users = [...this.#used].filter(([, keys]) => [...keys].some((key) => changed.has(key)));
      if (users.length > 0) onChange(new Set(users.map(([uid]) => uid)));
    });
  }

  registerPod(pod: Pod): void {
    if (!isOfFolder(pod)) return this.#api.registerPod(pod);
    const { namespace, uid } = pod.metadata;
    const maps = [...configMapNames(pod)].map((name) => staticObjectKey('ConfigMap', namespace, name));
    const secrets = [...secretNames(pod)].map((name) => staticObjectKey('Secret', namespace, name));
    this.#used.set(uid, new Set([...maps, ...secrets]));
  }

  unregisterPod(pod: Pod): void {
    if (!this.#used.delete(pod.metadata.uid)) this.#api.unregisterPod(pod);
  }

  configMap(pod: Pod, name: string): Promise<KubeObject | undefined> {
    return isOfFolder(pod) ? this.#static('ConfigMap', pod, name) : this.#api.configMap(pod, name);
  }

  secret(pod: Pod, name: string): Promise<KubeObject | undefined> {
    return isOfFolder(pod) ? this.#static('Secret', pod, name) : this.#api.secret(pod, name);
  }

  #static(kind: 'ConfigMap' | 'Secret', pod: Pod, name: string): Promise<KubeObject | undefined> {
    return Promise.resolve(this.#statics.get(staticObjectKey(kind, pod.metadata.namespace, name)));
  }
}

/**
 * Whether the pod is of the folder of static pods. Every source sets the annotation itself, and replaces one that the pod has.
 */
function isOfFolder(pod: Pod): boolean {
  return pod.metadata.annotations?.[SOURCE_ANNOTATION] === 'file';
}
