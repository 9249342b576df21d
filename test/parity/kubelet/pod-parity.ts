/**
 * Compares what the node agent reports about a pod with what the kubelet 1.36.2 reported about the same pod (`pods/*.json`):
 * status, events and the columns of `kubectl get`. Times, ids and addresses are placeholders on both sides. Restart counts are
 * not compared, because they depend on the moment.
 */
import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { KubeObject } from '../../../api/meta/object.ts';

export interface RecordedEvent {
  readonly type: string;
  readonly reason: string;
  readonly message: string;
  readonly fieldPath?: string;
  readonly component: string;
}

export interface RecordedPod {
  readonly name: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly spec: unknown;
  /** The columns READY and STATUS of `kubectl get pods`, where they were recorded. */
  readonly columns?: readonly [string, string];
  readonly status: unknown;
  readonly events: readonly RecordedEvent[];
}

/** Returns all recorded pods, ordered by the names of their files. */
export function recordedPods(): readonly RecordedPod[] {
  return globSync('pods/*.json', { cwd: import.meta.dirname })
    .toSorted()
    .map((file) => ({
      ...recordedPod(join(import.meta.dirname, file)),
      name: basename(file, '.json'),
    }));
}

function recordedPod(path: string): Omit<RecordedPod, 'name'> {
  const recorded = JSON.parse(readFileSync(path, 'utf8')) as Omit<RecordedPod, 'name'>;
  return { ...recorded, events: recorded.events.map((event) => ({ ...event, message: runtimeWords(event.message) })) };
}

/** Returns the recorded pod as a manifest, with this image in all of its containers. */
export function podOf(recorded: RecordedPod, namespace: string, image: string): KubeObject {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: recorded.name, namespace, ...(recorded.labels === undefined ? {} : { labels: recorded.labels }) },
    spec: JSON.parse(JSON.stringify(recorded.spec).replaceAll('<image>', image)) as unknown,
  } as KubeObject;
}

export interface Facts {
  readonly image: string;
  readonly hostIps: readonly string[];
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

/** Removes the differences between the messages of runc 1.1, which was recorded, and runc 1.3 about the same error. */
function runtimeWords(message: string): string {
  return message.replace('error during container init: ', '').replace(/(no such file or directory): unknown$/, '$1');
}

/** Replaces what depends on the moment or the host with placeholders. */
export function normalizedStatus(pod: KubeObject, facts: Facts): unknown {
  const status = pod['status'] as { podIP?: string } | undefined;
  const text = (value: string): string => {
    if (TIME.test(value)) return '<time>';
    if (facts.hostIps.includes(value)) return '<hostIP>';
    if (value === facts.image) return '<image>';
    if (/^[a-z-]+:\/\/[0-9a-f]{64}$/.test(value)) return '<containerID>';
    if (/^(\S+@)?sha256:[0-9a-f]{64}$/.test(value)) return '<imageID>';
    if (value === status?.podIP) return '<podIP>';
    return placeholders(value, pod);
  };
  return walk(status, text, UNRECORDED);
}

/** Replaces texts inside messages. */
function placeholders(value: string, pod: KubeObject): string {
  const podIp = (pod['status'] as { podIP?: string } | undefined)?.podIP;
  let result = value
    .replaceAll(pod.metadata.uid ?? '?', '<uid>')
    .replaceAll(/kube-api-access-[a-z0-9]{5}/g, 'kube-api-access-<suffix>')
    .replaceAll(/[a-z-]+:\/\/[0-9a-f]{64}/g, '<containerID>')
    // The duration depends on the moment.
    .replaceAll(/back-off (\d+m)?\d+s restarting/g, 'back-off <delay> restarting');
  result = runtimeWords(result);
  if (podIp !== undefined) result = result.replaceAll(podIp, '<podIP>');
  return result;
}

/** The recorded runtime, containerd 1.6, does not report the user of a container. Newer versions do. */
const UNRECORDED: ReadonlySet<string> = new Set(['user']);

function walk(value: unknown, text: (value: string) => string, without: ReadonlySet<string> = new Set()): unknown {
  if (typeof value === 'string') return text(value);
  if (Array.isArray(value)) return value.map((entry) => walk(entry, text, without));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key]) => !without.has(key))
      .toSorted(([left], [right]) => (left < right ? -1 : 1))
      .map(([key, entry]) => [key, key === 'restartCount' ? '<count>' : walk(entry, text, without)]),
  );
}

/** The value of cgroup v1 for "no limit". The recorded kubelet reports it as the pod's limit from its second sync on. */
const NO_LIMIT = '9007199254740988Ki';

/** Returns the recorded status with the same placeholders. */
export function expectedStatus(recorded: RecordedPod): unknown {
  const status = recorded.status as { readonly resources?: { readonly limits?: { readonly memory?: string } } };
  return walk(status.resources?.limits?.memory === NO_LIMIT ? { ...status, resources: {} } : status, (value) =>
    runtimeWords(value.replaceAll(/back-off (\d+m)?\d+s restarting/g, 'back-off <delay> restarting')),
  );
}

/** Returns an event as it is compared, with placeholders for what differs between two runs. */
export function normalizedEvent(event: KubeObject, pod: KubeObject, facts: Facts): RecordedEvent {
  const { type, reason, message, involvedObject, source, reportingComponent } = event as unknown as {
    type: string;
    reason: string;
    message?: string;
    involvedObject?: { fieldPath?: string };
    source?: { component?: string };
    reportingComponent?: string;
  };
  const fieldPath = involvedObject?.fieldPath;
  return {
    type,
    reason,
    message: placeholders((message ?? '').replaceAll(facts.image, '<image>'), pod),
    ...(fieldPath === undefined || fieldPath === '' ? {} : { fieldPath }),
    component: source?.component || (reportingComponent ?? ''),
  };
}

/** Returns the paths at which two values differ, with both values. */
export function differences(expected: unknown, actual: unknown, path = ''): readonly string[] {
  if (Object.is(expected, actual)) return [];
  const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
    typeof value === 'object' && value !== null;
  if (!isObject(expected) || !isObject(actual) || Array.isArray(expected) !== Array.isArray(actual))
    return [`${path}: expected ${JSON.stringify(expected)}, is ${JSON.stringify(actual)}`];
  return [...new Set([...Object.keys(expected), ...Object.keys(actual)])].flatMap((key) =>
    differences(expected[key], actual[key], path === '' ? key : `${path}.${key}`),
  );
}
