/** The interface through which the runtime and the volumes read the config maps and secrets of pods. */
import type { KubeObject } from '../../../api/meta/object.ts';
import type { Pod } from './pod.ts';

/**
 * Serves the objects that registered pods refer to, and follows their changes. Resolves to `undefined` if an object does not
 * exist.
 */
export interface ReferencedObjects {
  registerPod(pod: Pod): void;
  unregisterPod(pod: Pod): void;
  /** Resolves to the object of this name that the pod may use: of the API, or of the folder of the pod's own manifest. */
  configMap(pod: Pod, name: string): Promise<KubeObject | undefined>;
  secret(pod: Pod, name: string): Promise<KubeObject | undefined>;
}
