/**
 * The config maps and secrets that pods of this node refer to. Each has its own watch while a pod needs it, because a node may
 * read no others, and is then served from memory. The watch of an immutable object ends after its first read.
 */
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import type { Client, Resource } from '../../api/client/client.ts';
import { type Clock, pause } from '../../api/machinery/clock.ts';
import { configMaps, secrets } from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import type { Pod } from '../base/model/pod.ts';
import type { ReferencedObjects } from '../base/model/referenced-objects.ts';

interface Watched {
  readonly resource: Resource;
  readonly namespace: string;
  readonly name: string;
  readonly pods: Set<string>;
  readonly stop: AbortController;
  /** The object as the list or the watch last had it. Set from the first list on, also while the watch is broken. */
  current: { readonly object: KubeObject | undefined } | undefined;
  /** The object that a caller got before the watch was established. */
  answered: { readonly object: KubeObject | undefined } | undefined;
}

const RETRY_MS = 1000;
const MAX_RETRY_MS = 30_000;

/** Owns one watch for each object that a registered pod refers to. */
export class WatchedObjects implements ReferencedObjects {
  readonly #client: Client;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #watched = new Map<string, Watched>();
  readonly #listeners: ((podUids: ReadonlySet<string>) => void)[] = [];

  constructor(options: { readonly client: Client; readonly clock: Clock; readonly logger: Logger }) {
    this.#client = options.client;
    this.#clock = options.clock;
    this.#logger = options.logger;
  }

  /** Registers a listener that gets the uids of pods whose objects changed. */
  onChange(listener: (podUids: ReadonlySet<string>) => void): void {
    this.#listeners.push(listener);
  }

  registerPod(pod: Pod): void {
    const wanted = new Map<string, readonly [Resource, string]>();
    for (const name of configMapNames(pod))
      wanted.set(keyOf(configMaps, pod.metadata.namespace, name), [configMaps, name]);
    for (const name of secretNames(pod)) wanted.set(keyOf(secrets, pod.metadata.namespace, name), [secrets, name]);
    for (const [key, watched] of this.#watched) if (!wanted.has(key)) this.#release(key, watched, pod.metadata.uid);
    for (const [key, [resource, name]] of wanted) {
      let watched = this.#watched.get(key);
      if (watched === undefined) {
        watched = {
          resource,
          namespace: pod.metadata.namespace,
          name,
          pods: new Set(),
          stop: new AbortController(),
          current: undefined,
          answered: undefined,
        };
        this.#watched.set(key, watched);
        background(this.#follow(watched), {
          logger: this.#logger,
          what: 'Following an object that pods use',
          fields: { object: key },
          signal: watched.stop.signal,
        });
      }
      watched.pods.add(pod.metadata.uid);
    }
  }

  unregisterPod(pod: Pod): void {
    for (const [key, watched] of this.#watched) this.#release(key, watched, pod.metadata.uid);
  }

  #release(key: string, watched: Watched, podUid: string): void {
    watched.pods.delete(podUid);
    if (watched.pods.size > 0) return;
    watched.stop.abort();
    this.#watched.delete(key);
  }

  configMap(pod: Pod, name: string): Promise<KubeObject | undefined> {
    return this.#read(configMaps, pod.metadata.namespace, name);
  }

  secret(pod: Pod, name: string): Promise<KubeObject | undefined> {
    return this.#read(secrets, pod.metadata.namespace, name);
  }

  /** Returns a secret that a persistent volume names for its driver, or `undefined` if it does not exist. */
  secretOf(namespace: string, name: string): Promise<KubeObject | undefined> {
    return this.#read(secrets, namespace, name);
  }

  async #read(resource: Resource, namespace: string, name: string): Promise<KubeObject | undefined> {
    const watched = this.#watched.get(keyOf(resource, namespace, name));
    if (watched?.current !== undefined) return watched.current.object;
    const object = await this.#get(resource, namespace, name);
    if (watched !== undefined) watched.answered = { object };
    return object;
  }

  async #get(resource: Resource, namespace: string, name: string): Promise<KubeObject | undefined> {
    try {
      return await this.#client.get(resource, namespace, name);
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  /** Lists and watches the object until no pod needs it or it is immutable. */
  async #follow(watched: Watched): Promise<void> {
    const { resource, namespace, name, stop } = watched;
    const fieldSelector = `metadata.name=${name}`;
    const backoff = new Backoff({ firstMs: RETRY_MS, longestMs: MAX_RETRY_MS });
    while (!stop.signal.aborted) {
      try {
        const list = await this.#client.list(resource, { namespace, fieldSelector, signal: stop.signal });
        this.#put(watched, list.items[0]);
        if (isImmutable(list.items[0])) return;
        backoff.reset();
        const resourceVersion = list.metadata.resourceVersion ?? '';
        const fromMs = this.#clock.monotonic();
        for await (const event of this.#client.watch(resource, {
          namespace,
          fieldSelector,
          resourceVersion,
          signal: stop.signal,
        })) {
          if (event.type === 'BOOKMARK') continue;
          this.#put(watched, event.type === 'DELETED' ? undefined : event.object);
          if (event.type !== 'DELETED' && isImmutable(event.object)) return;
        }
        // Avoids a tight loop with a server that ends watches at once.
        if (this.#clock.monotonic() - fromMs < RETRY_MS) await this.#clock.sleep(RETRY_MS, stop.signal);
      } catch (error) {
        if (stop.signal.aborted) return;
        this.#logger.debug(
          { object: `${resource.resource} ${namespace}/${name}`, err: error },
          'The watch of an object that a pod uses failed, retrying',
        );
        await pause(this.#clock, backoff.next(), stop.signal);
      }
    }
  }

  /** Stores the object, and notifies the listeners if it differs from the one that is known. */
  #put(watched: Watched, object: KubeObject | undefined): void {
    const previous = watched.current ?? watched.answered;
    watched.current = { object };
    if (previous === undefined || previous.object?.metadata.resourceVersion === object?.metadata.resourceVersion)
      return;
    for (const listener of this.#listeners) listener(watched.pods);
  }

  close(): void {
    for (const watched of this.#watched.values()) watched.stop.abort();
    this.#watched.clear();
  }
}

/** Whether the object can no longer change. */
function isImmutable(object: KubeObject | undefined): boolean {
  return object?.['immutable'] === true;
}

/** Referenced objects of which none exists. */
export const noReferencedObjects: ReferencedObjects = {
  registerPod: () => undefined,
  unregisterPod: () => undefined,
  configMap: () => Promise.resolve(undefined),
  secret: () => Promise.resolve(undefined),
};

function keyOf(resource: Resource, namespace: string, name: string): string {
  return `${resource.resource}/${namespace}/${name}`;
}

function allContainers(pod: Pod): Pod['spec']['containers'] {
  return [
    ...(pod.spec.initContainers ?? []),
    ...pod.spec.containers,
    ...((pod.spec.ephemeralContainers ?? []) as unknown as Pod['spec']['containers']),
  ];
}

/** Returns the names of all config maps that the pod refers to. */
export function configMapNames(pod: Pod): Set<string> {
  const names = new Set<string>();
  for (const volume of pod.spec.volumes ?? []) {
    if (volume.configMap?.name !== undefined) names.add(volume.configMap.name);
    for (const source of volume.projected?.sources ?? [])
      if (source.configMap?.name !== undefined) names.add(source.configMap.name);
  }
  for (const container of allContainers(pod)) {
    for (const from of container.envFrom ?? [])
      if (from.configMapRef?.name !== undefined) names.add(from.configMapRef.name);
    for (const env of container.env ?? [])
      if (env.valueFrom?.configMapKeyRef?.name !== undefined) names.add(env.valueFrom.configMapKeyRef.name);
  }
  return names;
}

/** Returns the names of the secrets that this agent needs for the pod, image pull secrets included. */
export function secretNames(pod: Pod): Set<string> {
  const names = new Set<string>();
  for (const reference of pod.spec.imagePullSecrets ?? []) if (reference.name !== undefined) names.add(reference.name);
  for (const volume of pod.spec.volumes ?? []) {
    if (volume.secret?.secretName !== undefined) names.add(volume.secret.secretName);
    for (const source of volume.projected?.sources ?? [])
      if (source.secret?.name !== undefined) names.add(source.secret.name);
    for (const reference of [
      volume.csi?.nodePublishSecretRef,
      volume.cephfs?.secretRef,
      volume.iscsi?.secretRef,
      volume.rbd?.secretRef,
      volume.flexVolume?.secretRef,
    ]) {
      if (reference?.name !== undefined) names.add(reference.name);
    }
  }
  for (const container of allContainers(pod)) {
    for (const from of container.envFrom ?? []) if (from.secretRef?.name !== undefined) names.add(from.secretRef.name);
    for (const env of container.env ?? [])
      if (env.valueFrom?.secretKeyRef?.name !== undefined) names.add(env.valueFrom.secretKeyRef.name);
  }
  return names;
}
