/**
 * The last known pods of this node, the services, the Node itself, and the inputs of network policies and of the pod
 * network. A host whose API server is not available starts from them.
 */
import type { KubeObject } from '../../../api/meta/object.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { NodeObject } from '../../base/model/node.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { ServiceLister } from '../../runtime/kuberuntime/environment.ts';
import { configMapNames, secretNames } from '../../volumes/referenced-objects.ts';
import type { CheckpointStore } from './checkpoint-store.ts';
import { objectKey, tokenPrefix } from './last-known-client.ts';
import { POD_NETWORK, POD_RANGES, SERVED_BY } from '../../../api/meta/orchlet-annotations.ts';

/** Reads and writes the values of the store. A value that cannot be decoded counts as missing and is logged. */
export class PodCheckpoints {
  readonly #store: CheckpointStore;
  readonly #logger: Logger;
  #pods = new Map<string, Pod>();
  #pruned = false;

  constructor(options: { readonly store: CheckpointStore; readonly logger: Logger }) {
    this.#store = options.store;
    this.#logger = options.logger;
  }

  /** Returns the last known pods, without those that cannot be read. */
  async load(): Promise<readonly Pod[]> {
    const pods: Pod[] = [];
    for (const key of await this.#store.keys('pods')) {
      const pod = await this.#store.get(key);
      if (isPod(pod)) pods.push(pod);
      // The API server may have responded in the meantime, so that the pod was removed.
      else if (pod !== undefined) this.#logger.warn({ key }, 'A checkpoint is not a pod, ignoring it');
    }
    return pods;
  }

  /** Stores the full set of the API server. Unchanged pods are the same objects as the last time. */
  save(pods: readonly Pod[]): void {
    const next = new Map(pods.map((pod) => [pod.metadata.uid, pod]));
    let mustPrune = !this.#pruned;
    for (const [uid, pod] of next) {
      const before = this.#pods.get(uid);
      if (before === pod) continue;
      this.#store.put(`pods/${uid}`, () => storedPod(pod));
      mustPrune ||= before !== undefined && before.metadata.generation !== pod.metadata.generation;
    }
    for (const uid of this.#pods.keys()) {
      if (next.has(uid)) continue;
      this.#store.delete(`pods/${uid}`);
      mustPrune = true;
    }
    this.#pods = next;
    if (mustPrune) background(this.#prune(), { logger: this.#logger, what: 'Removing unused checkpoints' });
  }

  /**
   * Removes objects that no pod refers to any more, and at first also pods of an earlier run that the API server no longer
   * has.
   */
  async #prune(): Promise<void> {
    const isFirst = !this.#pruned;
    this.#pruned = true;
    try {
      if (isFirst) {
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
      // Reads the current pods, because a pod that was added in the meantime has stored its objects.
      const wanted = new Set([...this.#pods.values()].flatMap(objectsOf));
      for (const [claim, volume] of volumes) if (wanted.has(claim)) wanted.add(volume);
      const prefixes = [...this.#pods.keys()].map((uid) => `objects/${tokenPrefix(uid)}`);
      for (const key of keys) {
        if (!wanted.has(key) && !prefixes.some((prefix) => key.startsWith(prefix))) this.#store.delete(key);
      }
    } catch (error) {
      this.#pruned = false;
      this.#logger.debug({ err: error }, 'Cannot remove unneeded checkpoints');
    }
  }

  /** Saves the Node of this agent without what each heartbeat changes, so that the file is rarely written. */
  saveNode({ status: _status, ...node }: NodeObject): void {
    const { resourceVersion: _version, managedFields: _fields, ...metadata } = node.metadata;
    this.#store.put('node', () => ({ ...node, metadata }));
  }

  /** Returns the saved Node, which has no status, or `undefined` if none was saved. */
  async node(): Promise<NodeObject | undefined> {
    return (await this.#store.get('node')) as NodeObject | undefined;
  }

  /** Returns the inputs that `saveNetworkPolicies` saved last; `undefined` if none were saved. */
  networkPolicies(): Promise<unknown> {
    return this.#store.get('network-policies');
  }

  /** Saves the policies, namespaces and pods from which the rules are compiled. `inputs` is called when the file is written. */
  saveNetworkPolicies(inputs: () => unknown): void {
    this.#store.put('network-policies', inputs);
  }

  /** Returns the nodes that `savePodNetwork` saved last; `undefined` if none were saved. */
  podNetwork(): Promise<unknown> {
    return this.#store.get('pod-network');
  }

  /** Saves the nodes of the pod network. `nodes` is called when the file is written. */
  savePodNetwork(nodes: () => unknown): void {
    this.#store.put('pod-network', nodes);
  }

  /**
   * Returns a lister of the services for the environment of pods: the stored ones until the API server has sent them. Stores
   * the services of `lister` after each change.
   */
  async services(lister: ServiceLister, onChange: (listener: () => void) => void): Promise<ServiceLister> {
    const last = ((await this.#store.get('services')) ?? []) as readonly KubeObject[];
    onChange(() => this.#store.put('services', () => lister.list().map(storedService)));
    return {
      synced: () => lister.synced() || last.length > 0,
      list: () => (lister.synced() ? lister.list() : last),
    };
  }
}

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
  const stored = Object.entries(annotations ?? {}).filter(([key]) =>
    [SERVED_BY, POD_NETWORK, POD_RANGES].includes(key),
  );
  return {
    metadata: { name, namespace, ...(stored.length === 0 ? {} : { annotations: Object.fromEntries(stored) }) },
    spec: { clusterIP, clusterIPs, ports },
  };
}

/** Returns the keys of the objects that a pod refers to, except the volumes of its claims. */
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
