/** Computes the desired Node object with a list of setters. Pure, given the facts. */
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonValue } from '../../../api/meta/object.ts';
import { formatQuantity } from '../../../api/meta/quantity.ts';
import type { NodeObject } from '../../base/model/node.ts';
import type { FilesystemSpace, HostCapacity, SystemInfo } from '../../host/host-facts.ts';
import type { DeviceCapacity } from '../../resources/managers/devicemanager/plugin-resources.ts';
import type { ImageInfo, RuntimeFeatures, RuntimeInfo } from '../../runtime/runtime.ts';
import { LISTENING_PORTS, SERVING_KEYS } from '../../../api/meta/orchlet-annotations.ts';

type NodeStatus = NonNullable<NodeObject['status']>;
type NodeCondition = NonNullable<NodeStatus['conditions']>[number];

/** All inputs of the status, as they were measured for one update. */
export interface NodeFacts {
  readonly name: string;
  readonly hostname: string;
  /** The first is the primary. */
  readonly addresses: readonly string[];
  readonly system: SystemInfo;
  readonly capacity: HostCapacity;
  readonly rootSpace: FilesystemSpace | undefined;
  readonly runtime: RuntimeInfo | undefined;
  readonly features: RuntimeFeatures;
  readonly images: readonly ImageInfo[];
  /** `--node-status-max-images`; -1 is no limit. */
  readonly maxImages: number;
  readonly version: string;
  readonly maxPods: number;
  readonly podsPerCore: number;
  /**
   * The amounts that pods do not get, by resource: the reservations for the system and the agent, and the hard eviction
   * thresholds.
   */
  readonly reserved: Readonly<Record<string, number>>;
  readonly serverPort: number;
  /** The hashes of the public keys of the certificate of the agent's server. Empty if the server is off. */
  readonly servingKeys: readonly string[];
  /** Ports on which processes of the host listen, such as `TCP 22`. */
  readonly listeningPorts: readonly string[];
  readonly runtimeErrors: readonly string[];
  readonly networkErrors: readonly string[];
  readonly pressure: (kind: 'memory' | 'disk' | 'pid') => boolean;
  readonly deviceCapacity: DeviceCapacity;
  readonly volumesInUse: readonly string[];
  /** The declared features of this agent, in order. */
  readonly declaredFeatures: readonly string[];
  readonly now: string;
}

type Setter = (status: NodeStatus, facts: NodeFacts) => void;

/** The setters. Those of the conditions are in the kubelet's order: pressures first, Ready last. */
const setters: readonly Setter[] = [
  setAddresses,
  setCapacity,
  setNodeInfo,
  setDaemonEndpoints,
  setImages,
  setHandlers,
  setVolumesInUse,
  setDeclaredFeatures,
  pressureSetter({
    type: 'MemoryPressure',
    kind: 'memory',
    under: ['KubeletHasInsufficientMemory', 'kubelet has insufficient memory available'],
    otherwise: ['KubeletHasSufficientMemory', 'kubelet has sufficient memory available'],
  }),
  pressureSetter({
    type: 'DiskPressure',
    kind: 'disk',
    under: ['KubeletHasDiskPressure', 'kubelet has disk pressure'],
    otherwise: ['KubeletHasNoDiskPressure', 'kubelet has no disk pressure'],
  }),
  pressureSetter({
    type: 'PIDPressure',
    kind: 'pid',
    under: ['KubeletHasInsufficientPID', 'kubelet has insufficient PID available'],
    otherwise: ['KubeletHasSufficientPID', 'kubelet has sufficient PID available'],
  }),
  setReady,
];

/**
 * Returns a copy with the status and the agent's annotations that the facts imply. Conditions, annotations and extended
 * resources of other writers stay; addresses of other writers do not.
 */
export function withStatus(node: NodeObject, facts: NodeFacts): NodeObject {
  const status = structuredClone(node.status ?? {});
  for (const set of setters) set(status, facts);
  const { annotations = {}, ...metadata } = node.metadata;
  const others = Object.entries(annotations).filter(([key]) => !PUBLISHED.has(key));
  const ownAnnotations = Object.entries(published(facts)).filter(([, value]) => value !== '');
  return {
    ...node,
    metadata: { ...metadata, annotations: Object.fromEntries([...others, ...ownAnnotations]) },
    status,
  };
}

const PUBLISHED: ReadonlySet<string> = new Set([SERVING_KEYS, LISTENING_PORTS]);

/** Returns the annotations in which the agent publishes its facts. An empty value means that the annotation is absent. */
const published = ({ servingKeys, listeningPorts }: PublishedFacts): Readonly<Record<string, string>> => ({
  [SERVING_KEYS]: servingKeys.join(','),
  [LISTENING_PORTS]: listeningPorts.join(','),
});

type PublishedFacts = Pick<NodeFacts, 'servingKeys' | 'listeningPorts'>;

/** Returns the patch of the node's annotations, or `undefined` if nothing differs. Null removes an annotation. */
export function annotationChanges(
  { metadata }: NodeObject,
  facts: PublishedFacts,
): Readonly<Record<string, string | null>> | undefined {
  const found = new Map(Object.entries(metadata.annotations ?? {}));
  const changed = Object.entries(published(facts)).filter(([key, value]) => (found.get(key) ?? '') !== value);
  if (changed.length === 0) return undefined;
  return Object.fromEntries(changed.map(([key, value]) => [key, value === '' ? null : value]));
}

function setAddresses(status: NodeStatus, facts: NodeFacts): void {
  status.addresses = [
    ...facts.addresses.map((address) => ({ type: 'InternalIP', address })),
    { type: 'Hostname', address: facts.hostname },
  ];
}

function setCapacity(status: NodeStatus, facts: NodeFacts): void {
  const { capacity, rootSpace, reserved } = facts;
  const pods = facts.podsPerCore > 0 ? Math.min(facts.maxPods, facts.podsPerCore * capacity.cpus) : facts.maxPods;
  const amounts: Record<string, string> = {
    cpu: String(capacity.cpus),
    memory: bytes(capacity.memoryBytes),
    pods: String(pods),
  };
  const allocatable: Record<string, string> = {
    cpu: milli(capacity.cpus * 1000 - Math.round((reserved['cpu'] ?? 0) * 1000)),
    pods: String(pods),
  };
  let hugeBytes = 0;
  for (const [size, total] of capacity.hugePages) {
    const name = `hugepages-${size}`;
    hugeBytes += total;
    amounts[name] = bytes(total);
    allocatable[name] = bytes(total - (reserved[name] ?? 0));
  }
  allocatable['memory'] = bytes(capacity.memoryBytes - (reserved['memory'] ?? 0) - hugeBytes);
  if (rootSpace !== undefined) {
    amounts['ephemeral-storage'] = bytes(rootSpace.capacityBytes);
    allocatable['ephemeral-storage'] = bytes(rootSpace.capacityBytes - (reserved['ephemeral-storage'] ?? 0));
  }
  Object.assign(amounts, facts.deviceCapacity.capacity);
  Object.assign(allocatable, facts.deviceCapacity.allocatable);
  // Other programs may write extended resources into the capacity. They stay, and are allocatable completely.
  const others = extendedResources(status.capacity);
  status.capacity = { ...others, ...amounts };
  status.allocatable = { ...others, ...allocatable };
}

/** Formats thousandths of a core. A reservation above the capacity leaves 0, not a negative number. */
function milli(value: number): string {
  const amount = Math.max(0, value);
  return amount % 1000 === 0 ? String(amount / 1000) : `${amount}m`;
}

function bytes(value: number): string {
  return formatQuantity({ nano: BigInt(Math.max(0, Math.floor(value))) * 1_000_000_000n, format: 'BinarySI' });
}

function extendedResources(list: Record<string, string> | undefined): Record<string, string> {
  return Object.fromEntries(Object.entries(list ?? {}).filter(([name]) => name.includes('/')));
}

/**
 * Returns a version as the kubelet reports it: a semantic version with its pre-release and build metadata, of another
 * version the leading numbers, without what a distribution adds (`1.6.20~ds1`).
 */
export function semanticVersion(text: string): string {
  const [, numbers = '', suffix = ''] = /^\s*v?(\d+(?:\.\d+)+)(.*)$/s.exec(text) ?? [];
  if (numbers === '') return text;
  const parts = numbers.split('.').map(Number);
  const isSemantic = parts.length === 3 && /^(?:-[\dA-Za-z.-]+)?(?:\+[\dA-Za-z.-]+)?$/.test(suffix);
  return `${parts.join('.')}${isSemantic ? suffix : ''}`;
}

function setNodeInfo(status: NodeStatus, facts: NodeFacts): void {
  const { system, runtime, version } = facts;
  status.nodeInfo = {
    machineID: system.machineID,
    systemUUID: system.systemUUID,
    bootID: system.bootID,
    kernelVersion: system.kernelVersion,
    osImage: system.osImage,
    containerRuntimeVersion:
      runtime === undefined
        ? (status.nodeInfo?.containerRuntimeVersion ?? 'unknown://unknown')
        : `${runtime.name}://${semanticVersion(runtime.version)}`,
    kubeletVersion: version,
    kubeProxyVersion: '',
    operatingSystem: system.operatingSystem,
    architecture: system.architecture,
    ...(facts.capacity.swapBytes === 0 ? {} : { swap: { capacity: facts.capacity.swapBytes } }),
  };
}

function setDaemonEndpoints(status: NodeStatus, facts: NodeFacts): void {
  status.daemonEndpoints = { kubeletEndpoint: { Port: facts.serverPort } };
}

/** The maximum number of names of an image in the status, as in the kubelet. */
const MAX_NAMES_PER_IMAGE = 5;

function setImages(status: NodeStatus, facts: NodeFacts): void {
  const images = [...facts.images].sort((left, right) => right.sizeBytes - left.sizeBytes);
  const listed = facts.maxImages < 0 ? images : images.slice(0, facts.maxImages);
  status.images = listed.map((image) => ({
    names: [...image.repoDigests, ...image.repoTags].slice(0, MAX_NAMES_PER_IMAGE),
    sizeBytes: image.sizeBytes,
  }));
}

function setHandlers(status: NodeStatus, { features }: NodeFacts): void {
  if (features.handlers.length === 0) return;
  status.runtimeHandlers = features.handlers.map((handler) => ({
    name: handler.name,
    features: { recursiveReadOnlyMounts: handler.recursiveReadOnlyMounts, userNamespaces: handler.userNamespaces },
  }));
  status.features = { supplementalGroupsPolicy: features.supplementalGroupsPolicy };
}

/** Sets the attached volumes. The field stays absent if the node never had any. */
function setVolumesInUse(status: NodeStatus, facts: NodeFacts): void {
  if (facts.volumesInUse.length === 0 && status.volumesInUse === undefined) return;
  status.volumesInUse = [...facts.volumesInUse];
}

function setDeclaredFeatures(status: NodeStatus, { declaredFeatures }: NodeFacts): void {
  if (declaredFeatures.length > 0) status.declaredFeatures = [...declaredFeatures];
  else delete status.declaredFeatures;
}

interface PressureCondition {
  readonly type: string;
  readonly kind: 'memory' | 'disk' | 'pid';
  readonly under: readonly [reason: string, message: string];
  readonly otherwise: readonly [reason: string, message: string];
}

function pressureSetter({ type, kind, under, otherwise }: PressureCondition): Setter {
  return (status, facts) => {
    const isUnder = facts.pressure(kind);
    const [reason, message] = isUnder ? under : otherwise;
    setCondition(status, { type, status: isUnder ? 'True' : 'False', reason, message }, facts.now);
  };
}

function setReady(status: NodeStatus, facts: NodeFacts): void {
  const errors = [...facts.runtimeErrors, ...facts.networkErrors];
  setCondition(
    status,
    errors.length === 0
      ? { type: 'Ready', status: 'True', reason: 'KubeletReady', message: 'kubelet is posting ready status' }
      : {
          type: 'Ready',
          status: 'False',
          reason: 'KubeletNotReady',
          message: errors.length === 1 ? (errors[0] ?? '') : `[${errors.join(', ')}]`,
        },
    facts.now,
  );
}

function setCondition(
  status: NodeStatus,
  next: Pick<NodeCondition, 'type' | 'status'> & { reason: string; message: string },
  now: string,
): void {
  const conditions = (status.conditions ??= []);
  const index = conditions.findIndex((entry) => entry.type === next.type);
  const before = conditions[index];
  const entry = {
    ...next,
    lastHeartbeatTime: now,
    lastTransitionTime:
      before !== undefined && before.status === next.status ? (before.lastTransitionTime ?? now) : now,
  } as NodeCondition;
  if (index < 0) conditions.push(entry);
  else conditions[index] = entry;
}

/** Returns the fields of `next` that differ, all without regard to heartbeats. Null stands for a field that `next` lacks. */
export function statusChanges(before: NodeStatus | undefined, next: NodeStatus | undefined): Record<string, JsonValue> {
  return Object.fromEntries(changedFields(withoutHeartbeats(before), withoutHeartbeats(next)));
}

type Fields = Readonly<Record<string, JsonValue | undefined>>;

function changedFields(before: Fields, next: Fields): readonly (readonly [string, JsonValue])[] {
  return [...new Set([...Object.keys(next), ...Object.keys(before)])].flatMap((key) => {
    const value = next[key] ?? null;
    return jsonEqual(before[key] ?? null, value) ? [] : [[key, value] as const];
  });
}

function withoutHeartbeats(status: NodeStatus = {}): Record<string, JsonValue> {
  const { conditions = [], ...fields } = status;
  const lasting = conditions.map(({ lastHeartbeatTime: _time, ...condition }) => condition);
  return { ...fields, conditions: lasting } as unknown as Record<string, JsonValue>;
}

/**
 * Returns the strategic merge patch of what differs: conditions merge by type, addresses are replaced as a list, and null
 * removes a field, also one of `nodeInfo`, `capacity` and other objects, which merge.
 */
export function statusPatch(before: NodeStatus = {}, next: NodeStatus = {}): Record<string, unknown> {
  const previous = before as Fields;
  const changes = changedFields(previous, next as Fields);
  // Addresses would merge by their types, which several may have in common, so the directive replaces the list. Older API
  // servers store the directive itself as an address if the node has no list yet.
  return Object.fromEntries(
    changes.map(([key, value]) => [
      key,
      key === 'addresses' && previous[key] !== undefined
        ? [...(value as unknown[]), { $patch: 'replace' }]
        : withRemovals(previous[key], value),
    ]),
  );
}

/** Returns an object of a patch with null for each member that only the previous object has. Returns other values unchanged. */
function withRemovals(before: JsonValue | undefined, next: JsonValue): JsonValue {
  if (!isJsonObject(before) || !isJsonObject(next)) return next;
  const removed = Object.keys(before).filter((name) => next[name] === undefined);
  return { ...Object.fromEntries(removed.map((name) => [name, null])), ...next };
}
