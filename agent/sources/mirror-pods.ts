/** Maintains mirror pods: the objects at the API server that show the static pods of this node. */
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/client/client.ts';
import { pods as podsResource } from '../../api/client/resources.ts';
import { isAlreadyExists, isConflict, isNotFound } from '../../api/meta/status-error.ts';
import type { NodeObject } from '../base/model/node.ts';
import { ANNOTATION_CONFIG_HASH, isStaticPod } from '../base/model/pod-kinds.ts';
import type { Pod, PodStatus } from '../base/model/pod.ts';
import type { KubeObject, ObjectMeta } from '../../api/meta/object.ts';
import { MIRROR_ANNOTATION } from '../../api/kinds/pod-annotations.ts';

/** Maintains the mirror pods of static pods. Absent without an API server. */
export interface MirrorPods {
  /**
   * Creates the mirror pod, and deletes one of an earlier manifest. Resolves to whether it exists; if not, the caller retries.
   */
  ensure(pod: Pod, mirror: Pod | undefined): Promise<boolean>;
  /** Deletes this mirror pod, but not a newer pod of the same name. */
  delete(mirror: Pod): Promise<void>;
}

interface MirrorPodsOptions {
  readonly client: Client;
  readonly logger: Logger;
  /** Returns the registered node, which owns its mirror pods, or `undefined` until it is registered. */
  readonly node: () => NodeObject | undefined;
}

/** Creates mirror pods with the node as their owner, so that they are deleted with it. */
export function createMirrorPods(options: MirrorPodsOptions): MirrorPods {
  const { client, logger } = options;
  const remove = async ({ metadata: { namespace, name, uid } }: Pod): Promise<void> => {
    try {
      await client.delete(podsResource, namespace, name, { gracePeriodSeconds: 0, preconditions: { uid } });
      logger.debug({ pod: `${namespace}/${name}` }, 'Deleted a mirror pod');
    } catch (error) {
      // A conflict: a newer pod has this name, as its uid differs.
      if (!isNotFound(error) && !isConflict(error)) throw error;
    }
  };
  return {
    async ensure(pod, mirror) {
      if (mirror !== undefined) {
        if (mirror.metadata.deletionTimestamp === undefined && isMirrorOf(mirror, pod)) return true;
        await remove(mirror);
      }
      const node = options.node();
      if (node?.metadata.uid === undefined || node.metadata.deletionTimestamp !== undefined) return false;
      const annotations = { ...pod.metadata.annotations, [MIRROR_ANNOTATION]: hashOf(pod) };
      const object = {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: {
          name: pod.metadata.name,
          namespace: pod.metadata.namespace,
          annotations,
          ...copied(pod),
          ownerReferences: [
            { apiVersion: 'v1', kind: 'Node', name: node.metadata.name, uid: node.metadata.uid, controller: true },
          ],
        },
        spec: mirrorSpec(pod.spec),
      } as unknown as KubeObject;
      try {
        await client.create(podsResource, pod.metadata.namespace, object);
        return true;
      } catch (error) {
        // Another pod has this name, or the watch has not reported the mirror pod yet.
        if (!isAlreadyExists(error)) throw error;
        return false;
      }
    },
    delete: remove,
  };
}

/** Returns the metadata that the manifest gives, besides its annotations. */
function copied({ metadata: { generateName, labels, finalizers } }: Pod): Partial<ObjectMeta> {
  return {
    ...(generateName === undefined ? {} : { generateName }),
    ...(labels === undefined ? {} : { labels }),
    ...(finalizers === undefined ? {} : { finalizers }),
  };
}

/**
 * Leaves out references to ConfigMaps and Secrets of the folder: kube-apiserver refuses mirror pods with references, and the
 * API may have other objects of these names. Such a volume shows as an empty directory, such a variable without a value.
 */
function mirrorSpec(spec: Pod['spec']): Pod['spec'] {
  const isReference = (source: { readonly configMap?: unknown; readonly secret?: unknown }): boolean =>
    source.configMap !== undefined || source.secret !== undefined;
  const volumes = spec.volumes?.map((volume) =>
    isReference(volume) || volume.projected?.sources?.some(isReference) === true
      ? { name: volume.name, emptyDir: {} }
      : volume,
  );
  const withoutReferences = <T extends Pod['spec']['containers'][number]>({
    envFrom: _from,
    env,
    ...container
  }: T) => ({
    ...container,
    ...(env === undefined
      ? {}
      : {
          env: env.map((variable) =>
            variable.valueFrom?.configMapKeyRef === undefined && variable.valueFrom?.secretKeyRef === undefined
              ? variable
              : { name: variable.name },
          ),
        }),
  });
  const { initContainers, containers, imagePullSecrets: _secrets, ...otherFields } = spec;
  return {
    ...otherFields,
    ...(volumes === undefined ? {} : { volumes }),
    ...(initContainers === undefined ? {} : { initContainers: initContainers.map(withoutReferences) }),
    containers: containers.map(withoutReferences),
  } as Pod['spec'];
}

function hashOf(pod: Pod): string {
  return pod.metadata.annotations?.[ANNOTATION_CONFIG_HASH] ?? '';
}

/**
 * Returns the status of the pod at the API server: for a static pod that of its mirror pod. Returns the pod's own status if
 * there is no mirror pod of its manifest, or if that has terminated: then its status is of an earlier run of the manifest.
 */
export function publishedStatus(pod: Pod, mirrorOf: (pod: Pod) => Pod | undefined): PodStatus | undefined {
  if (!isStaticPod(pod)) return pod.status;
  const mirror = mirrorOf(pod);
  const { phase } = mirror?.status ?? {};
  const isOwn = mirror !== undefined && isMirrorOf(mirror, pod) && phase !== 'Succeeded' && phase !== 'Failed';
  return isOwn ? mirror.status : pod.status;
}

/** Whether the mirror pod belongs to the current manifest of the static pod. */
export function isMirrorOf(mirror: Pod, pod: Pod): boolean {
  return mirror.metadata.annotations?.[MIRROR_ANNOTATION] === hashOf(pod);
}
