/**
 * Creates and deletes pods of a controller, and records the events. Pods are created in growing batches, so that a set whose
 * pods are refused does not flood the API.
 */
import type { V1PodTemplateSpec } from '@kubernetes/client-node';
import { MAX_SUBDOMAIN_LENGTH } from '../../api/meta/names.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound, isStatusError } from '../../api/meta/status-error.ts';
import { referenceTo } from '../../api/client/event-recorder.ts';
import type { Pod, Wire } from '../../api/kinds/kinds.ts';
import { pods, type ResourceOf } from '../../api/client/resources.ts';
import type { ControllerEnvironment } from './controller.ts';
import { controllerReference } from './owner-references.ts';

/** A template as it is stored. */
export type PodTemplate = Wire<V1PodTemplateSpec>;

/** Returns a pod of the owner's template, whose name the API server generates. */
export function podFromTemplate(template: PodTemplate, owner: KubeObject, ownerResource: ResourceOf<KubeObject>): Pod {
  const { labels, annotations, finalizers } = template.metadata ?? {};
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      generateName: podNamePrefix(owner.metadata.name ?? ''),
      namespace: owner.metadata.namespace ?? '',
      ...(labels === undefined ? {} : { labels: { ...labels } }),
      ...(annotations === undefined ? {} : { annotations: { ...annotations } }),
      ...(finalizers === undefined ? {} : { finalizers: [...finalizers] }),
      ownerReferences: [controllerReference(owner, ownerResource)],
    },
    ...(template.spec === undefined ? {} : { spec: structuredClone(template.spec) }),
  };
}

/**
 * Returns the prefix of the names of an owner's pods: its name and a dash, which is omitted if the result would be too long.
 */
function podNamePrefix(owner: string): string {
  return owner.length + 1 <= MAX_SUBDOMAIN_LENGTH ? `${owner}-` : owner;
}

/** Writes pods for owners of one resource, and records events of the owners. Methods reject with the error of the API. */
export class PodControl<Owner extends KubeObject> {
  readonly #environment: ControllerEnvironment;
  readonly #ownerResource: ResourceOf<Owner>;

  constructor(environment: ControllerEnvironment, ownerResource: ResourceOf<Owner>) {
    this.#environment = environment;
    this.#ownerResource = ownerResource;
  }

  async create(owner: Owner, pod: Pod): Promise<Pod> {
    const { client, recorder } = this.#environment;
    const ownerReference = referenceTo(owner, this.#ownerResource);
    try {
      const created = await client.create(pods, owner.metadata.namespace ?? '', pod);
      recorder.event(ownerReference, 'Normal', 'SuccessfulCreate', `Created pod: ${created.metadata.name}`);
      return created;
    } catch (error) {
      if (!isNamespaceTerminating(error)) {
        recorder.event(ownerReference, 'Warning', 'FailedCreate', `Error creating: ${(error as Error).message}`);
      }
      throw error;
    }
  }

  /** Deletes the pod. A pod that does not exist any more counts as deleted. */
  async delete(owner: Owner, pod: Pod): Promise<void> {
    const { client, recorder } = this.#environment;
    const ownerReference = referenceTo(owner, this.#ownerResource);
    const { namespace = '', name = '', uid } = pod.metadata;
    try {
      await client.delete(pods, namespace, name, uid === undefined ? {} : { preconditions: { uid } });
      recorder.event(ownerReference, 'Normal', 'SuccessfulDelete', `Deleted pod: ${name}`);
    } catch (error) {
      if (isNotFound(error)) return;
      recorder.event(ownerReference, 'Warning', 'FailedDelete', `Error deleting: ${(error as Error).message}`);
      throw error;
    }
  }
}

/** Whether creation fails because the namespace is terminating, which needs no event. */
export function isNamespaceTerminating(error: unknown): boolean {
  return (
    isStatusError(error, 'Forbidden') &&
    (error.status.details?.causes ?? []).some((cause) => cause.reason === 'NamespaceTerminating')
  );
}

/**
 * Calls `create` `count` times in batches of 1, 2, 4, …; stops after a batch with failures. Resolves to the successes and the
 * first error.
 */
export async function inGrowingBatches(
  count: number,
  create: (index: number) => Promise<void>,
): Promise<{ readonly succeeded: number; readonly error: unknown }> {
  let done = 0;
  for (let batch = 1; done < count; batch *= 2) {
    const size = Math.min(batch, count - done);
    const results = await Promise.allSettled(Array.from({ length: size }, (_, at) => create(done + at)));
    const failed = results.filter((result) => result.status === 'rejected');
    if (failed.length > 0) return { succeeded: done + size - failed.length, error: failed[0]?.reason as unknown };
    done += size;
  }
  return { succeeded: count, error: undefined };
}
