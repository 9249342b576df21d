/** Defines the strategy of pods: the fields that are reset, the deletion, and the subresources. */
import { applyPodDefaults } from '../../../../api/kinds/pod-defaults.ts';
import { dropDisabledPodFields } from '../../../../api/kinds/disabled-fields.ts';
import { containersOf } from '../../../../api/kinds/pod-annotation-validation.ts';
import { qosClassOf } from '../../../../api/kinds/pod-qos.ts';
import { hasSameNames, podResizeErrors } from '../../../../api/kinds/pod-resize-validation.ts';
import type { Container, Pod, PodSpec } from '../../../../api/kinds/pod-types.ts';
import {
  podStatusUpdateErrors,
  podUpdateErrors,
  ephemeralContainerUpdateErrors,
} from '../../../../api/kinds/pod-update-validation.ts';
import { validatePod } from '../../../../api/kinds/pod-validation.ts';
import { podNameWarnings, podWarnings } from '../../../../api/kinds/pod-warnings.ts';
import { formatTime } from '../../../../api/machinery/clock.ts';
import { semanticEqual } from '../../../../api/meta/json-equality.ts';
import { ownMember } from '../../../../api/meta/own-member.ts';
import { podColumns } from './pod-columns.ts';
import { restore, specChanged } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import { APP_ARMOR_PREFIX } from '../../../../api/kinds/pod-annotations.ts';

const FIELD_TEXT: Readonly<Record<string, (pod: Pod) => string>> = {
  'spec.nodeName': ({ spec }) => spec?.nodeName ?? '',
  // The name that clients used before the field was renamed.
  'spec.host': ({ spec }) => spec?.nodeName ?? '',
  'spec.restartPolicy': ({ spec }) => spec?.restartPolicy ?? '',
  'spec.schedulerName': ({ spec }) => spec?.schedulerName ?? '',
  'spec.serviceAccountName': ({ spec }) => spec?.serviceAccountName ?? '',
  'spec.hostNetwork': ({ spec }) => String(spec?.hostNetwork === true),
  'status.phase': ({ status }) => status?.phase ?? '',
  'status.podIP': ({ status }) => status?.podIP ?? '',
  'status.podIPs': ({ status }) => (status?.podIPs ?? []).map(({ ip = '' }) => ip).join(','),
  'status.nominatedNodeName': ({ status }) => status?.nominatedNodeName ?? '',
};

function normalizeGracePeriod(spec: PodSpec): void {
  if ((spec.terminationGracePeriodSeconds ?? 0) < 0) spec.terminationGracePeriodSeconds = 1;
}

/** Adds the pod's own values of `matchLabelKeys` and `mismatchLabelKeys` to the selectors. */
function mergeLabelKeys(pod: Pod): void {
  const labels = pod.metadata.labels ?? {};
  const groups = [pod.spec?.affinity?.podAffinity, pod.spec?.affinity?.podAntiAffinity];
  for (const group of groups) {
    const terms = [
      ...(group?.requiredDuringSchedulingIgnoredDuringExecution ?? []),
      ...(group?.preferredDuringSchedulingIgnoredDuringExecution ?? []).map(
        ({ podAffinityTerm }) => podAffinityTerm ?? {},
      ),
    ];
    for (const term of terms) {
      addRequirements(term.labelSelector, term.matchLabelKeys, labels, 'In');
      addRequirements(term.labelSelector, term.mismatchLabelKeys, labels, 'NotIn');
    }
  }
  for (const constraint of pod.spec?.topologySpreadConstraints ?? []) {
    addRequirements(constraint.labelSelector, constraint.matchLabelKeys, labels, 'In');
  }
}

interface Selector {
  matchExpressions?:
    | { key?: string | undefined; operator?: string | undefined; values?: string[] | undefined }[]
    | undefined;
}

function addRequirements(
  selector: Selector | undefined,
  keys: readonly string[] | undefined,
  labels: Readonly<Record<string, string>>,
  operator: string,
): void {
  if (selector === undefined) return;
  for (const key of keys ?? []) {
    const value = ownMember(labels, key);
    if (value === undefined) continue;
    selector.matchExpressions = [...(selector.matchExpressions ?? []), { key, operator, values: [value] }];
  }
}

/**
 * Copies the AppArmor profile of a deprecated annotation into the field of a container that has none, unless the pod has the
 * same profile. Warns about copied profiles and invalid annotations.
 */
function profilesFromAnnotations(pod: Pod, warn: (text: string) => void): void {
  if (pod.metadata.annotations === undefined || pod.spec?.os?.name === 'windows') return;
  const ofPod = pod.spec?.securityContext?.appArmorProfile;
  for (const [container] of containersOf(pod.spec ?? {}, 'spec')) {
    const key = `${APP_ARMOR_PREFIX}${container.name ?? ''}`;
    const text = ownMember(pod.metadata.annotations, key);
    if (text === undefined) continue;
    const profile = profileOf(text);
    const ofContainer = container.securityContext?.appArmorProfile;
    const copied = profile !== undefined && ofContainer === undefined && !semanticEqual(profile, ofPod);
    if (copied) container.securityContext = { ...container.securityContext, appArmorProfile: profile };
    if (copied || profile === undefined)
      warn(`metadata.annotations[${key}]: deprecated since v1.30; use the "appArmorProfile" field instead`);
  }
}

function profileOf(text: string): { type: string; localhostProfile?: string } | undefined {
  if (text === 'runtime/default') return { type: 'RuntimeDefault' };
  if (text === 'unconfined') return { type: 'Unconfined' };
  const local = text.startsWith('localhost/') ? text.slice('localhost/'.length) : '';
  return local !== '' && local.trim() === local ? { type: 'Localhost', localhostProfile: local } : undefined;
}

function setGatedCondition(pod: Pod, nowMs: number): void {
  if ((pod.spec?.schedulingGates ?? []).length === 0) return;
  const condition = {
    type: 'PodScheduled',
    status: 'False',
    lastProbeTime: null as unknown as string,
    lastTransitionTime: formatTime(nowMs),
    reason: 'SchedulingGated',
    message: 'Scheduling is blocked due to non-empty scheduling gates',
  };
  pod.status = { ...pod.status, conditions: [condition] };
}

/** Aligns `podIP` with the first of `podIPs`. The single field has precedence. */
function alignAddresses(pod: Pod): void {
  const { status } = pod;
  if (status === undefined) return;
  const { podIP = '', podIPs = [] } = status;
  if (podIP !== '' && podIPs[0]?.ip !== podIP) status.podIPs = [{ ip: podIP }];
  else if (podIP === '' && podIPs[0]?.ip !== undefined) status.podIP = podIPs[0].ip;
}

const statusStrategy: UpdateStrategy<Pod> = {
  prepareForUpdate(pod, old) {
    restore(pod, old, 'spec');
    delete pod.metadata.deletionTimestamp;
    if (old.metadata.ownerReferences === undefined) delete pod.metadata.ownerReferences;
    else pod.metadata.ownerReferences = old.metadata.ownerReferences;
    if (pod.status !== undefined && pod.status.qosClass === undefined && old.status?.qosClass !== undefined)
      pod.status.qosClass = old.status.qosClass;
    // The feature gate of the field is off by default. A pod that already has the field keeps it.
    const { nodeAllocatableResourceClaimStatuses: before } = (old.status ?? {}) as Record<string, unknown>;
    const status = pod.status as Record<string, unknown> | undefined;
    if (before === undefined) delete status?.['nodeAllocatableResourceClaimStatuses'];
  },
  validateUpdate: podStatusUpdateErrors,
  resetFields: [['spec'], ['metadata', 'deletionTimestamp'], ['metadata', 'ownerReferences']],
};

/**
 * Restores every field except those that `take` copies from the requested spec into the old one, and the metadata that the
 * server itself maintains (resource version, generation, managed fields).
 */
function keepAllBut(pod: Pod, old: Pod, take: (spec: PodSpec, requested: PodSpec) => void): void {
  const requested = pod.spec ?? {};
  const spec = structuredClone(old.spec ?? {});
  take(spec, requested);
  pod.spec = spec;
  restore(pod, old, 'status');
  const { resourceVersion, managedFields, generation } = pod.metadata;
  pod.metadata = { ...old.metadata };
  if (resourceVersion !== undefined) pod.metadata.resourceVersion = resourceVersion;
  if (generation !== undefined) pod.metadata.generation = generation;
  if (managedFields === undefined) delete pod.metadata.managedFields;
  else pod.metadata.managedFields = managedFields;
}

const ephemeralStrategy: UpdateStrategy<Pod> = {
  prepareForUpdate(pod, old) {
    keepAllBut(pod, old, (spec, requested) => {
      if (requested.ephemeralContainers === undefined) delete spec.ephemeralContainers;
      else spec.ephemeralContainers = requested.ephemeralContainers;
    });
  },
  changesGeneration: specChanged,
  validateUpdate: ephemeralContainerUpdateErrors,
};

/**
 * Restores containers except for their resources and resize policies. A list with other names stays as it is, and validation
 * refuses it.
 */
function resized(requested: Container[] = [], old: readonly Container[] = []): Container[] {
  if (!hasSameNames(requested, old)) return requested;
  return old.map(({ resources: _resources, resizePolicy: _policy, ...container }, index) => {
    const { resources, resizePolicy } = requested[index] ?? {};
    return { ...container, ...(resources && { resources }), ...(resizePolicy && { resizePolicy }) };
  });
}

const resizeStrategy: UpdateStrategy<Pod> = {
  prepareForUpdate(pod, old) {
    const lengths = ({ spec }: Pod): string => `${spec?.containers?.length ?? 0} ${spec?.initContainers?.length ?? 0}`;
    // Validation refuses another number of containers.
    if (lengths(pod) !== lengths(old)) return;
    keepAllBut(pod, old, (spec, requested) => {
      if (requested.resources === undefined) delete spec.resources;
      else spec.resources = requested.resources;
      for (const list of ['containers', 'initContainers'] as const)
        if (spec[list] !== undefined) spec[list] = resized(requested[list], spec[list]);
    });
  },
  changesGeneration: specChanged,
  validateUpdate: podResizeErrors,
};

const DONE: ReadonlySet<string> = new Set(['Succeeded', 'Failed']);
/** The default of `terminationGracePeriodSeconds`. */
const GRACE_PERIOD_SECONDS = 30;

const pods: Strategy<Pod> = {
  managesGeneration: true,
  applyDefaults(pod) {
    applyPodDefaults(pod);
    alignAddresses(pod);
  },
  prepareForCreate(pod, { nowMs, request }) {
    const spec = (pod.spec ??= {});
    pod.status = { phase: 'Pending', qosClass: qosClassOf(spec) };
    normalizeGracePeriod(spec);
    dropDisabledPodFields(spec, undefined);
    mergeLabelKeys(pod);
    profilesFromAnnotations(pod, (text) => request.warn(text));
    setGatedCondition(pod, nowMs);
  },
  validateCreate: (pod) => validatePod(pod),
  warningsOnCreate: (pod) => [
    ...podNameWarnings(pod.metadata.name ?? ''),
    ...podWarnings(pod.metadata, pod.spec ?? {}),
  ],
  prepareForUpdate(pod, old) {
    restore(pod, old, 'status');
    if (Object.keys(pod.spec?.overhead ?? {}).length === 0) delete pod.spec?.overhead;
    normalizeGracePeriod(pod.spec ?? {});
    dropDisabledPodFields(pod.spec, old.spec);
  },
  changesGeneration: specChanged,
  validateUpdate: podUpdateErrors,
  resetFields: [['status']],
  gracefulDeletion: {
    gracePeriodSeconds(object, requested) {
      const pod: Pod = object;
      if ((pod.spec?.nodeName ?? '') === '' || DONE.has(pod.status?.phase ?? '')) return 0;
      const seconds = requested ?? pod.spec?.terminationGracePeriodSeconds ?? GRACE_PERIOD_SECONDS;
      return seconds < 0 ? 1 : seconds;
    },
  },
  returnsDeleted: true,
  selectableFields: FIELD_TEXT,
  indexedFields: ['spec.nodeName'],
  columns: podColumns,
  status: statusStrategy,
  subresources: { ephemeralcontainers: ephemeralStrategy, resize: resizeStrategy },
};

export const podKinds = [kindRow('', 'pods', pods)];
