/** Builds pods for the tests of the eviction manager. */
import type { Pod } from '../../../../../agent/base/model/pod.ts';

export interface PodShape {
  readonly name: string;
  readonly memory?: string;
  readonly storage?: string;
  readonly storageLimit?: string;
  readonly emptyDirLimit?: string;
  readonly priority?: number;
  readonly isStatic?: boolean;
  readonly graceSeconds?: number;
}

/** Returns a pod of this shape. */
export function pod(shape: PodShape): Pod {
  const requests = {
    ...(shape.memory === undefined ? {} : { memory: shape.memory }),
    ...(shape.storage === undefined ? {} : { 'ephemeral-storage': shape.storage }),
  };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name: shape.name,
      namespace: 'default',
      uid: `uid-${shape.name}`,
      ...(shape.isStatic === true ? { annotations: { 'kubernetes.io/config.source': 'file' } } : {}),
    },
    spec: {
      ...(shape.priority === undefined ? {} : { priority: shape.priority }),
      ...(shape.graceSeconds === undefined ? {} : { terminationGracePeriodSeconds: shape.graceSeconds }),
      containers: [
        {
          name: 'main',
          image: 'x',
          resources: {
            requests,
            ...(shape.storageLimit === undefined ? {} : { limits: { 'ephemeral-storage': shape.storageLimit } }),
          },
        },
      ],
      ...(shape.emptyDirLimit === undefined
        ? {}
        : { volumes: [{ name: 'scratch', emptyDir: { sizeLimit: shape.emptyDirLimit } }] }),
    },
  } as unknown as Pod;
}
