/**
 * The pods that the API server bound to this node, as they were last seen, and the services and the node that went with them:
 * what a host without its API server starts from. Written by the sources as they hear; read once, at the start.
 */
import type { KubeObject } from '../../../api/meta/object.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { NodeObject, Pod, ServiceLister } from '../../model/core-types.ts';
import { configMapNames, secretNames } from '../../volumes/referenced-objects.ts';
import type { CheckpointStore } from './checkpoint-store.ts';
import { objectKey, tokenPrefix } from './last-known-client.ts';

export class PodCheckpoints {
  readonly #store: CheckpointStore;
  readonly #logger: Logger;
  #pods = new Map<string, Pod>();
  #pruned = false;

  constructor(options: { readonly store: CheckpointStore; readonly logger: Logger }) {
    this.#store = options.store;
    this.#logger = options.logger;
  }

  /** The last known pods; what cannot be read is left out. */
  async load(): Promise<readonly Pod[]> {
    const pods: Pod[] = [];
    for (const key of await this.#store.keys('pods')) {
      const pod = await this.#store.get(key);
      if (isPod(pod)) pods.push(pod);
      // The API server may have answered meanwhile, and the pod may be gone by that.
      else if (pod !== undefined) this.#logger.warn({ key }, 'A checkpoint is not of a pod; it is left out');
    }
    return pods;
  }

  /** The full set, as the API server says it now. Pods that did not change are the same objects as the last time. */
  save(pods: readonly Pod[]): void {
    const next = new Map(pods.map((pod) => [pod.metadata.uid, pod]));
    let references = !this.#pruned;
    for (const [uid, pod] of next) {
      const before = this.#pods.get(uid);
      if (before === pod) continue;
      this.#store.put(`pods/${uid}`, () => storedPod(pod));
      references ||= before !== undefined && before.metadata.generation !== pod.metadata.generation;
    }
    for (const uid of this.#pods.keys()) {
      if (next.has(uid)) continue;
      this.#store.delete(`pods/${uid}`);
      references = true;
    }
    this.#pods = next;
    if (references) background(this.#prune(), { logger: this.#logger, what: 'Removing unused checkpoints' });
  }

  /** What no pod names any more is forgotten; at the first time, what an earlier run left is, too. */
  async #prune(): Promise<void> {
    const all = !this.#pruned;
    this.#pruned = true;
    try {
      if (all) {
        for (const key of await this.#store.keys('pods'))
          if (!this.#pods.has(key.slice('pods/'.length))) this.#store.delete(key);
      }
      const keys = await this.#store.keys('objects');
      const volumes = new Map<string, string>();
      for (const key of keys.filter((other) => other.startsWith('objects/persistentvolumeclaims_'))) {
        const claim = (await this.#store.get(key)) as KubeObject | undefined;
        const name = (claim?.['spec'] as { readonly volumeName?: string } | undefined)?.volumeName;
        if (name !== undefined) volumes.set(key, objectKey('persistentvolumes', '', name));
      }
      // By the pods of now: one that came meanwhile has put what it needs.
      const wanted = new Set([...this.#pods.values()].flatMap(objectsOf));
      for (const [claim, volume] of volumes) if (wanted.has(claim)) wanted.add(volume);
      const prefixes = [...this.#pods.keys()].map((uid) => `objects/${tokenPrefix(uid)}`);
      for (const key of keys) {
        if (!wanted.has(key) && !prefixes.some((prefix) => key.startsWith(prefix))) this.#store.delete(key);
      }
    } catch (error) {
      this.#pruned = false;
      this.#logger.debug({ err: error }, 'Checkpoints that nobody needs could not be looked through');
    }
  }

  saveNode(node: NodeObject): void {
    // Its heartbeats and images change all the time, and are found anew after a start.
    const { status: _status, ...rest } = node;
    this.#store.put('node', () => rest);
  }

  async node(): Promise<NodeObject | undefined> {
    return (await this.#store.get('node')) as NodeObject | undefined;
  }

  /** Services as the environment of pods needs them; those of before until the API server has told them. */
  async services(lister: ServiceLister, onChange: (listener: () => void) => void): Promise<ServiceLister> {
    const last = ((await this.#store.get('services')) ?? []) as readonly KubeObject[];
    onChange(() => this.#store.put('services', () => lister.list().map(storedService)));
    return {
      synced: () => lister.synced() || last.length > 0,
      list: () => (lister.synced() ? lister.list() : last),
    };
  }
}

/** On the service of the cluster's names: who answers for it, which pods' resolver files depend on. */
export const SERVED_BY = 'orchlet.local/served-by';

function isPod(value: unknown): value is Pod {
  const pod = value as Partial<Pod> | undefined;
  return typeof pod?.metadata?.uid === 'string' && typeof pod.spec?.containers === 'object';
}

function storedPod(pod: Pod): object {
  const { managedFields: _owners, ...metadata } = pod.metadata;
  return { ...pod, metadata };
}

function storedService({ metadata: { name, namespace, annotations }, ...service }: KubeObject): object {
  const { clusterIP, clusterIPs, ports } = (service['spec'] ?? {}) as {
    readonly clusterIP?: string;
    readonly clusterIPs?: readonly string[];
    readonly ports?: unknown;
  };
  const servedBy = annotations?.[SERVED_BY];
  return {
    metadata: { name, namespace, ...(servedBy === undefined ? {} : { annotations: { [SERVED_BY]: servedBy } }) },
    spec: { clusterIP, clusterIPs, ports },
  };
}

/** What a pod names, but for the volumes behind its claims. */
function objectsOf(pod: Pod): readonly string[] {
  const { namespace, name } = pod.metadata;
  const claims = (pod.spec.volumes ?? []).flatMap((volume) => {
    if (volume.persistentVolumeClaim !== undefined) return [volume.persistentVolumeClaim.claimName];
    return volume.ephemeral === undefined ? [] : [`${name}-${volume.name}`];
  });
  return [
    ...[...configMapNames(pod)].map((map) => objectKey('configmaps', namespace, map)),
    ...[...secretNames(pod)].map((secret) => objectKey('secrets', namespace, secret)),
    ...claims.map((claim) => objectKey('persistentvolumeclaims', namespace, claim)),
  ];
}
