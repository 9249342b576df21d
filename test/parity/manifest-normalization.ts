/** Removes from the response to an applied manifest what differs between servers or what controllers write. */
import type { JsonValue } from '../../api/meta/object.ts';

/** A JSON value, or none. */
export type Json = JsonValue | undefined;

/** Members whose values the server chooses. */
const CHOSEN: ReadonlySet<string> = new Set([
  'batch.kubernetes.io/controller-uid',
  'controller-uid',
  'uid',
  'resourceVersion',
  'creationTimestamp',
  'deletionTimestamp',
  'time',
  'lastTransitionTime',
  'clusterIP',
  'clusterIPs',
  'nodePort',
  'healthCheckNodePort',
  'lastUpdateTime',
]);

/** Kinds whose status, and therefore generation, controllers write. */
const STATUS_BY_CONTROLLERS: ReadonlySet<string> = new Set([
  'Deployment',
  'DaemonSet',
  'StatefulSet',
  'ReplicaSet',
  'Job',
  'CronJob',
  'Pod',
  'Service',
  'PersistentVolumeClaim',
  'PersistentVolume',
  'Namespace',
  'PodDisruptionBudget',
  'HorizontalPodAutoscaler',
  'APIService',
  'Ingress',
  'ResourceQuota',
  'FlowSchema',
  'ValidatingAdmissionPolicy',
]);

const APPLIER = 'raw';

/** Returns the response with what remains to be compared. A text has `*` for its times. */
export function normalizeManifest(answer: Json): Json {
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) {
    return String(answer).replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, '*');
  }
  const object = scrub(answer) as Members;
  const metadata = membersOf(object['metadata']);
  if (Array.isArray(metadata['managedFields'])) {
    metadata['managedFields'] = entriesOf(metadata['managedFields'], object['kind'] === 'CustomResourceDefinition');
  }
  if (STATUS_BY_CONTROLLERS.has(String(object['kind']))) {
    delete object['status'];
    delete metadata['generation'];
  }
  if (Object.keys(membersOf(metadata['annotations'])).length === 0) delete metadata['annotations'];
  return object;
}

type Members = { [key: string]: Json };

function membersOf(value: Json): Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {};
}

function scrub(value: Json): Json {
  if (Array.isArray(value)) return value.map((item) => scrub(item) ?? null);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, CHOSEN.has(key) ? '*' : scrub(inner)]));
}

/**
 * Returns the entries of the applier, sorted. For definitions it returns all entries, because the server itself writes their
 * status.
 */
function entriesOf(entries: readonly JsonValue[], all: boolean): JsonValue[] {
  const keyOf = (entry: JsonValue): string => {
    const { manager, operation, subresource } = membersOf(entry);
    return JSON.stringify([manager, operation, subresource ?? '']);
  };
  return entries
    .filter((entry) => all || membersOf(entry)['manager'] === APPLIER)
    .sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
}
