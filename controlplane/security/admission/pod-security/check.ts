/** Defines the types that the checks of the Pod Security Standards share, and finds the containers of a pod. */
import type { Pod } from '../../../../api/kinds/kinds.ts';
import type { PodSpec } from '../pod-attributes.ts';

/** One violated control, as the message of a refusal lists it: `reason (detail)`. */
export interface Violation {
  readonly reason: string;
  /** The text in parentheses after the reason. Empty for a violation without one. */
  readonly detail: string;
}

/** A regular, init or ephemeral container. */
export type Container = PodSpec['containers'][number];

/** What a check reads of a pod or of a pod template. */
export interface CheckInput {
  readonly metadata: Pod['metadata'];
  readonly spec: PodSpec;
  /** The minor version of Kubernetes whose standards apply; infinite for `latest`. */
  readonly minor: number;
}

/** A check is pure. It returns undefined if the pod complies with the control. */
export type Check = (input: CheckInput) => Violation | undefined;

/** Returns all containers of a pod in kube-apiserver's order: init containers, then ordinary and ephemeral ones. */
export function allContainers(spec: PodSpec): Container[] {
  return [...(spec.initContainers ?? []), ...spec.containers, ...((spec.ephemeralContainers ?? []) as Container[])];
}

/** Returns the names of all containers that match, ephemeral ones included, in the order of the specification. */
export function namesOf(spec: PodSpec, matches: (container: Container) => boolean): string[] {
  return allContainers(spec)
    .filter(matches)
    .map((container) => container.name);
}

/** Chooses the noun's form by the count, for messages. */
export const plural = (count: number, one: string, many = `${one}s`): string => (count === 1 ? one : many);

/** Puts each value in quotes, without escapes, and joins them by a comma. */
export const quoted = (values: readonly string[]): string => values.map((value) => `"${value}"`).join(', ');

/** Returns the names of containers for a message: `container "a"`, or `containers "a", "b"`. */
export const containerList = (names: readonly string[]): string =>
  `${plural(names.length, 'container')} ${quoted(names)}`;

/**
 * Returns, for a message, which security contexts set a field: `pod` first, if that of the pod does, and then the list of
 * containers.
 */
export function setters(pod: boolean, containers: readonly string[]): string[] {
  return [...(pod ? ['pod'] : []), ...(containers.length > 0 ? [containerList(containers)] : [])];
}

/** Whether the pod says that it runs on Windows. */
export const isWindows = (spec: PodSpec): boolean => spec.os?.name === 'windows';

/** Removes duplicates and sorts, as messages list values. */
export const unique = (values: readonly string[]): string[] => [...new Set(values)].sort();
