/**
 * Merges the pod sources. It compares each full set of a source with the previous one, and reports added, changed, deleted
 * and removed pods to the sync loop.
 */
import { jsonEqual } from '../../api/meta/json-equality.ts';
import type { Logger } from '../../api/component/logger.ts';
import { type Clock, pause } from '../../api/machinery/clock.ts';
import { ANNOTATION_CONFIG_SEEN } from '../base/model/pod-kinds.ts';
import type { Pod } from '../base/model/pod.ts';
import { type ShapedPod, shapedPod } from './pod-shape.ts';
import type { PodSource, PodSourceName } from './pod-source.ts';

/**
 * Changes of pods of one source; added pods in the order of their creation. `remove`: the pod is gone from its source.
 * `delete`: its `deletionTimestamp` or grace period has changed. `reconcile`: only its status has changed.
 */
export interface PodUpdate {
  readonly type: 'add' | 'update' | 'remove' | 'delete' | 'reconcile';
  readonly source: PodSourceName;
  readonly pods: readonly Pod[];
}

/** The merged sources. */
export interface PodConfig {
  /** Calls `onUpdate` in order and synchronously for each update, until the signal aborts. */
  run(signal: AbortSignal, onUpdate: (update: PodUpdate) => void): Promise<void>;
  /** Whether every configured source has reported its first full set, even an empty one. */
  allSourcesReady(): boolean;
}

/** Returns the updates from one full set of a source to the next, in the order in which the sync loop must handle them. */
export function diff(source: PodSourceName, before: ReadonlyMap<string, Pod>, next: readonly Pod[]): PodUpdate[] {
  const added: Pod[] = [];
  const updated: Pod[] = [];
  const deleted: Pod[] = [];
  const reconciled: Pod[] = [];
  const nextUids = new Set<string>();
  for (const pod of next) {
    nextUids.add(pod.metadata.uid);
    const old = before.get(pod.metadata.uid);
    if (old === undefined) added.push(pod);
    else if (old === pod) continue;
    else if (pod.metadata.deletionTimestamp !== undefined && changedForDeletion(old, pod)) deleted.push(pod);
    else if (differs(old, pod)) updated.push(pod);
    else if (!jsonEqual(old.status, pod.status)) reconciled.push(pod);
  }
  const removed = [...before.values()].filter((pod) => !nextUids.has(pod.metadata.uid));
  const updates: PodUpdate[] = [];
  const add = (type: PodUpdate['type'], pods: readonly Pod[]): void => {
    if (pods.length > 0) updates.push({ type, source, pods });
  };
  add('remove', removed);
  add('add', added.toSorted(byCreation));
  add('update', updated);
  add('delete', deleted);
  add('reconcile', reconciled);
  return updates;
}

function changedForDeletion(old: Pod, next: Pod): boolean {
  return (
    old.metadata.deletionTimestamp !== next.metadata.deletionTimestamp ||
    old.metadata.deletionGracePeriodSeconds !== next.metadata.deletionGracePeriodSeconds
  );
}

/** Whether a part changed that the agent acts on: spec, labels, annotations or deletion, but not the status. */
function differs(old: Pod, next: Pod): boolean {
  return (
    !jsonEqual(old.spec, next.spec) ||
    !jsonEqual(old.metadata.labels, next.metadata.labels) ||
    !jsonEqual(withoutSeen(old), withoutSeen(next)) ||
    changedForDeletion(old, next)
  );
}

function withoutSeen(pod: Pod): Record<string, string> {
  const { [ANNOTATION_CONFIG_SEEN]: _seen, ...annotations } = pod.metadata.annotations ?? {};
  return annotations;
}

function byCreation(left: Pod, right: Pod): number {
  return String(left.metadata.creationTimestamp ?? '').localeCompare(String(right.metadata.creationTimestamp ?? ''));
}

interface PodConfigOptions {
  readonly sources: readonly PodSource[];
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The delay before a failed source is restarted. */
const RESTART_MS = 5000;

/** Merges the pods of the sources. Starts no source before `run`. */
export function createPodConfig(options: PodConfigOptions): PodConfig {
  const ready = new Set<PodSource>();
  return {
    allSourcesReady: () => options.sources.every((source) => ready.has(source)),
    async run(signal, onUpdate) {
      await Promise.all(options.sources.map((source) => runSource(source, options, signal, { ready, onUpdate })));
    },
  };
}

/** Formats a time with nine decimals, as the kubelet does in its annotations. */
function nanosecondTime(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '000000Z');
}

/** Drops pods with the name of an earlier pod, because both would have the same mirror pod. */
function firstOfEachName(pods: readonly Pod[], onDuplicate: (pod: string) => void): Pod[] {
  const names = new Set<string>();
  return pods.filter(({ metadata: { namespace, name } }) => {
    const key = `${namespace}/${name}`;
    if (!names.has(key)) return names.add(key);
    onDuplicate(key);
    return false;
  });
}

/**
 * Returns a function that checks each object of the source once, because a source reports all pods with each change. It
 * annotates the pod with the time at which the agent has first seen it, which `firstSeen` returns.
 */
function shapedOnce(
  source: PodSourceName,
  logger: Logger,
  firstSeen: (uid: string) => string,
): (pod: Pod) => ShapedPod {
  const results = new WeakMap<Pod, ShapedPod>();
  return (pod) => {
    const cached = results.get(pod);
    if (cached !== undefined) return cached;
    const result = shapedPod(pod, source);
    results.set(pod, result);
    if ('pod' in result) {
      const { metadata } = result.pod;
      metadata.annotations = { ...metadata.annotations, [ANNOTATION_CONFIG_SEEN]: firstSeen(metadata.uid) };
    } else logger.error({ source, pod: result.name, fault: result.fault }, 'Ignoring a pod that is not valid');
    return result;
  };
}

async function runSource(
  source: PodSource,
  options: PodConfigOptions,
  signal: AbortSignal,
  { ready, onUpdate }: { readonly ready: Set<PodSource>; readonly onUpdate: (update: PodUpdate) => void },
): Promise<void> {
  let last = new Map<string, Pod>();
  const onDuplicate = (pod: string): void =>
    options.logger.error(
      { source: source.name, pod },
      'A source has two pods of the same name, ignoring the second one',
    );
  const firstSeen = (uid: string): string =>
    last.get(uid)?.metadata.annotations?.[ANNOTATION_CONFIG_SEEN] ?? nanosecondTime(options.clock.now());
  const shaped = shapedOnce(source.name, options.logger, firstSeen);
  const usable = (pod: Pod): Pod | undefined => {
    const result = shaped(pod);
    // The containers of a pod must not stop because the pod has become unreadable.
    return 'pod' in result ? result.pod : last.get(result.uid);
  };
  while (!signal.aborted) {
    try {
      await source.run(signal, (pods, { provisional } = { provisional: false }) => {
        const unique = new Map<string, Pod>();
        const found = pods.map(usable).filter((pod) => pod !== undefined);
        for (const pod of source.name === 'api' ? found : firstOfEachName(found, onDuplicate))
          unique.set(pod.metadata.uid, pod);
        const updates = diff(source.name, last, [...unique.values()]);
        last = unique;
        if (!provisional) {
          ready.add(source);
          source.accepted?.([...unique.values()]);
        }
        for (const update of updates) onUpdate(update);
      });
    } catch (error) {
      if (signal.aborted) return;
      options.logger.error(
        { source: source.name, err: error },
        'A source of pods failed, keeping its pods and restarting it',
      );
      await pause(options.clock, RESTART_MS, signal);
    }
  }
}
