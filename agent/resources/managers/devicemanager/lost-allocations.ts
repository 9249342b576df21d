/**
 * The pods whose devices are not known, because the checkpoint could not be read when the agent started. While one of them
 * runs, no device of its resources is allocated to another pod: it could be a device that is in use.
 */
import type { Container, Pod } from '../../../base/model/pod.ts';
import { bytesOf, limitsOf } from '../../../runtime/kuberuntime/resources.ts';
import { AdmissionError } from '../hint-provider.ts';
import { isPluginResource } from './plugin-limits.ts';

/** Owns the pods whose devices are unknown, and their resources. */
export class LostAllocations {
  /** The names of the pods, by resource and uid. */
  readonly #pods = new Map<string, Map<string, string>>();

  /**
   * Records the resources of a container whose pod an earlier agent started. Returns whether the container may have devices
   * that are not known.
   */
  hold({ metadata, status }: Pod, container: Container): boolean {
    if (status?.startTime === undefined) return false;
    const resources = Object.entries(limitsOf(container))
      .filter(([resource, count]) => isPluginResource(resource) && bytesOf(count) > 0)
      .map(([resource]) => resource);
    for (const resource of resources) {
      const pods = this.#pods.get(resource) ?? new Map<string, string>();
      this.#pods.set(resource, pods.set(metadata.uid, `${metadata.namespace}/${metadata.name}`));
    }
    return resources.length > 0;
  }

  /** Throws if pods may have devices of the resource that are not known. */
  check(resource: string): void {
    const pods = [...(this.#pods.get(resource)?.values() ?? [])];
    if (pods.length === 0) return;
    throw new AdmissionError(
      'UnexpectedAdmissionError',
      `the devices of ${resource} that running pods have are not known since the checkpoint of devices could not be read; delete ${pods.slice(0, 10).join(', ')} first`,
    );
  }

  /** Returns the uids of pods with lost allocations. A pod occurs once for each resource. */
  pods(): readonly string[] {
    return [...this.#pods.values()].flatMap((pods) => [...pods.keys()]);
  }

  release(podUid: string): void {
    for (const pods of this.#pods.values()) pods.delete(podUid);
  }
}
