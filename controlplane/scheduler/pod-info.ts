/** Computes the values of a pod that filters and scores use, once when the pod arrives or changes. */
import { namespacedName } from '../../api/meta/namespaced-name.ts';
import type { Labels } from '../../api/meta/selector.ts';
import type { Pod } from '../../api/kinds/kinds.ts';
import { podRequests, type PodRequests } from './pod-requests.ts';
import { podTerm, type AffinityTerm, type PodTerm } from './pod-selection.ts';

/** A port of the host that a container uses. The IP is `0.0.0.0` if the pod names none. */
export interface HostPort {
  readonly ip: string;
  readonly protocol: string;
  readonly port: number;
}

interface WeightedTerm {
  readonly term: PodTerm;
  /** The weight, which is negative for anti-affinity. */
  readonly weight: number;
}

/** The weight of a required affinity term in the scores of other pods (`hardPodAffinityWeight`). */
const REQUIRED_WEIGHT = 1;

/** A pod with its computed values. It is immutable: a changed pod gets another `PodInfo`. */
export class PodInfo {
  readonly pod: Pod;
  readonly uid: string;
  readonly namespace: string;
  readonly labels: Labels;
  readonly priority: number;
  readonly requests: PodRequests;
  readonly hostPorts: readonly HostPort[];
  readonly claimNames: readonly string[];
  /**
   * The disks, by kind and name, that pods can share only if all of them mount the disk read-only. The value is whether this
   * pod does; for EBS it is always false, because no two pods can share such a disk.
   */
  readonly disks: ReadonlyMap<string, boolean>;
  readonly requiredAffinity: readonly PodTerm[];
  readonly requiredAntiAffinity: readonly PodTerm[];
  readonly preferences: readonly WeightedTerm[];
  /** The terms that change the score of a node for another pod while this one runs there. */
  readonly attractions: readonly WeightedTerm[];
  /** The UID of the controlling owner. */
  readonly controller: string | undefined;

  constructor(pod: Pod) {
    const { uid = '', namespace = '', labels = {}, ownerReferences = [] } = pod.metadata;
    this.pod = pod;
    this.uid = uid;
    this.namespace = namespace;
    this.labels = labels;
    this.priority = pod.spec?.priority ?? 0;
    this.requests = podRequests(pod);
    this.hostPorts = hostPortsOf(pod);
    this.claimNames = claimNamesOf(pod);
    this.disks = disksOf(pod);
    this.controller = ownerReferences.find((owner) => owner.controller === true)?.uid;
    const { podAffinity, podAntiAffinity } = pod.spec?.affinity ?? {};
    const parsed = (term: AffinityTerm): PodTerm => podTerm(term, { namespace, labels });
    this.requiredAffinity = (podAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? []).map(parsed);
    this.requiredAntiAffinity = (podAntiAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? []).map(parsed);
    this.preferences = [
      ...(podAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? []).map(
        ({ podAffinityTerm, weight }): WeightedTerm => ({ term: parsed(podAffinityTerm), weight }),
      ),
      ...(podAntiAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? []).map(
        ({ podAffinityTerm, weight }): WeightedTerm => ({ term: parsed(podAffinityTerm), weight: -weight }),
      ),
    ];
    this.attractions = [
      ...this.preferences,
      ...this.requiredAffinity.map((term): WeightedTerm => ({ term, weight: REQUIRED_WEIGHT })),
    ];
  }
}

/** Returns `namespace/name`. */
export function nameOf({ pod }: PodInfo): string {
  return namespacedName(pod);
}

function claimNamesOf(pod: Pod): string[] {
  const names: string[] = [];
  for (const volume of pod.spec?.volumes ?? []) {
    if (volume.persistentVolumeClaim !== undefined) names.push(volume.persistentVolumeClaim.claimName);
    else if (volume.ephemeral !== undefined) names.push(`${pod.metadata.name ?? ''}-${volume.name}`);
  }
  return names;
}

/** The value of `disks` of all pods without such disks. */
const NO_DISKS: ReadonlyMap<string, boolean> = new Map();

function disksOf(pod: Pod): ReadonlyMap<string, boolean> {
  let disks: Map<string, boolean> | undefined;
  const add = (parts: readonly (string | undefined)[], readOnly = false): void => {
    const key = parts.join('\0');
    disks ??= new Map();
    disks.set(key, readOnly && disks.get(key) !== false);
  };
  for (const { gcePersistentDisk: gce, awsElasticBlockStore: ebs, iscsi, rbd } of pod.spec?.volumes ?? []) {
    if (gce !== undefined) add(['gce', gce.pdName], gce.readOnly);
    if (ebs !== undefined) add(['ebs', ebs.volumeID]);
    if (iscsi !== undefined) add(['iscsi', iscsi.iqn], iscsi.readOnly);
    // Two RBD volumes are the same disk if pool and image are equal and they have a monitor in common.
    for (const monitor of rbd?.monitors ?? []) add(['rbd', monitor, rbd?.pool, rbd?.image], rbd?.readOnly);
  }
  return disks ?? NO_DISKS;
}

function hostPortsOf(pod: Pod): HostPort[] {
  const sidecars = (pod.spec?.initContainers ?? []).filter((container) => container.restartPolicy === 'Always');
  return [...(pod.spec?.containers ?? []), ...sidecars].flatMap((container) =>
    (container.ports ?? []).flatMap((port) =>
      port.hostPort === undefined || port.hostPort === 0
        ? []
        : [{ ip: port.hostIP ?? '0.0.0.0', protocol: port.protocol ?? 'TCP', port: port.hostPort }],
    ),
  );
}
