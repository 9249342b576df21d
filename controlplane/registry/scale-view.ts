/** Maps a workload to its `autoscaling/v1` Scale: the fields that the Scale shows, and the fields that a write of it sets. */
import type { V1LabelSelector, V1Scale } from '@kubernetes/client-node';
import type { Kind } from '../../api/kinds/wire.ts';
import { invalid, type FieldError } from '../../api/meta/field-error.ts';
import { nameIsSubdomain } from '../../api/meta/names.ts';
import { isJsonObject } from '../../api/meta/json-object.ts';
import type { JsonObject, JsonValue, KubeObject } from '../../api/meta/object.ts';
import { ownMember } from '../../api/meta/own-member.ts';
import { formatLabelSelector } from '../../api/meta/selector.ts';
import { validateMetadata } from '../../api/meta/validation.ts';

/** The `autoscaling/v1` Scale as clients send it. */
export type Scale = Kind<Pick<V1Scale, 'spec' | 'status'>>;

interface Workload {
  readonly spec?: { readonly replicas?: number; readonly selector?: unknown };
  readonly status?: { readonly replicas?: number };
}

/** Creates a Scale. As in kube-apiserver, zero replicas are omitted from `spec` and an empty selector from `status`. */
export function newScale(
  { metadata }: KubeObject,
  shown: { readonly desired: number; readonly current: number; readonly selector: string },
): Scale {
  const { name, namespace, uid, resourceVersion, creationTimestamp } = metadata;
  const { desired, current, selector } = shown;
  return {
    kind: 'Scale',
    apiVersion: 'autoscaling/v1',
    metadata: {
      ...(name === undefined ? {} : { name }),
      ...(namespace === undefined ? {} : { namespace }),
      ...(uid === undefined ? {} : { uid }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
      ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
    },
    spec: desired === 0 ? {} : { replicas: desired },
    status: { replicas: current, ...(selector === '' ? {} : { selector }) },
  };
}

/** Returns the Scale of a workload. An absent number of replicas is 0, as in kube-apiserver. */
function scaleOf(object: KubeObject): Scale {
  const { spec, status } = object as unknown as Workload;
  return newScale(object, {
    desired: spec?.replicas ?? 0,
    current: status?.replicas ?? 0,
    selector: selectorText(spec?.selector),
  });
}

/**
 * Formats the selector of a workload. A replication controller has plain labels as its selector; all other workloads have label
 * selectors.
 */
function selectorText(selector: unknown): string {
  if (!isJsonObject(selector)) return '';
  const { matchLabels, matchExpressions } = selector;
  // A plain label may have one of these names, but its value is a text. An object there belongs to a label selector.
  if (typeof matchLabels === 'object' || typeof matchExpressions === 'object')
    return formatLabelSelector(selector as V1LabelSelector);
  return formatLabelSelector({ matchLabels: selector as Record<string, string> });
}

/** Adds the managers that own the replicas of the workload. A patch of the Scale sees them, and a read does not. */
export function withOwners(scale: Scale, { metadata }: KubeObject, replicasPath: readonly string[]): Scale {
  const owners = (metadata.managedFields ?? []).filter(({ fieldsV1 }) => hasField(fieldsV1, replicasPath));
  if (owners.length === 0) return scale;
  const managedFields = owners.map((owner) => ({
    ...owner,
    apiVersion: 'autoscaling/v1',
    fieldsV1: { 'f:spec': { 'f:replicas': {} } },
  }));
  return { ...scale, metadata: { ...scale.metadata, managedFields } };
}

/**
 * Takes the replicas from all managers, as kube-apiserver does when a write of the Scale sets them to 0: a Scale omits that
 * number, so nobody owns it.
 */
export function disownReplicas({ metadata }: KubeObject, replicasPath: readonly string[]): void {
  const managedFields = (metadata.managedFields ?? []).flatMap((entry) => {
    if (!hasField(entry.fieldsV1, replicasPath)) return [entry];
    const fieldsV1 = withoutField(entry.fieldsV1 ?? {}, replicasPath);
    return isEmpty(fieldsV1) ? [] : [{ ...entry, fieldsV1 }];
  });
  if (managedFields.length > 0) metadata.managedFields = managedFields;
  else delete metadata.managedFields;
}

function hasField(set: JsonValue | undefined, path: readonly string[]): boolean {
  const [name, ...below] = path;
  if (name === undefined) return set !== undefined;
  return isJsonObject(set) && hasField(ownMember(set, `f:${name}`), below);
}

/** Returns the set of fields without the field at the path. A set that is empty then is removed from the set around it. */
function withoutField(set: JsonObject, [name = '', ...below]: readonly string[]): JsonObject {
  const { [`f:${name}`]: inner, ...others } = set;
  if (!isJsonObject(inner) || below.length === 0) return others;
  const remainder = withoutField(inner, below);
  return isEmpty(remainder) ? others : { ...others, [`f:${name}`]: remainder };
}

/** Whether the set of fields has no entries. A set with the entry `.` alone, which is the field itself, is not empty. */
const isEmpty = (set: object): boolean => Object.keys(set).length === 0;

/** Maps a workload to its Scale and back. */
export interface ScaleView {
  /** The names of the members that lead to the replicas in the workload. */
  readonly replicasPath: readonly string[];
  scaleOf(object: KubeObject): Scale;
  /** Returns the Scale that a write changes. Unlike `scaleOf`, which is the default, it accepts an object without replicas. */
  scaleBefore?(object: KubeObject): Scale;
  setReplicas(object: KubeObject, replicas: number): void;
  errorsOf(scale: Scale): FieldError[];
}

/** The view of the built-in workloads. */
export const workloadScale: ScaleView = {
  replicasPath: ['spec', 'replicas'],
  scaleOf,
  setReplicas(object, replicas) {
    const spec = (object['spec'] ??= {}) as { replicas?: number };
    spec.replicas = replicas;
  },
  errorsOf: scaleErrors,
};

function scaleErrors(scale: Scale): FieldError[] {
  const errors = validateMetadata(scale.metadata, { namespaced: true, nameRule: nameIsSubdomain, builtIn: true });
  const replicas = scale.spec?.replicas ?? 0;
  if (replicas < 0) errors.push(invalid('spec.replicas', replicas, 'must be greater than or equal to 0'));
  return errors;
}
