/** Types that the checks of the Pod Security Standards share: violations, and iteration over containers. */
import { quoteText } from '../../../api/meta/quote.ts';
import type { Pod } from '../../../api/machinery/kinds.ts';
import type { PodSpec } from '../pod-attributes.ts';

export interface Violation {
  readonly reason: string;
  /** Empty if the reason is complete. */
  readonly detail: string;
}

export type Container = PodSpec['containers'][number];

export interface CheckInput {
  readonly metadata: Pod['metadata'];
  readonly spec: PodSpec;
  /** The name in the Pod Security Standards. */
  readonly minor: number;
}

export type Check = (input: CheckInput) => Violation | undefined;

/** Init containers come first, in kube-apiserver's order. */
export function allContainers(spec: PodSpec): Container[] {
  return [...(spec.initContainers ?? []), ...spec.containers, ...((spec.ephemeralContainers ?? []) as Container[])];
}

export function namesOf(spec: PodSpec, matches: (container: Container) => boolean): string[] {
  return allContainers(spec)
    .filter(matches)
    .map((container) => container.name);
}

export const plural = (count: number, one: string, many = `${one}s`): string => (count === 1 ? one : many);

export const quoted = (values: readonly string[]): string => values.map((value) => quoteText(value)).join(', ');

/** `container "a"`, `containers "a", "b"` */
export const containerList = (names: readonly string[]): string =>
  `${plural(names.length, 'container')} ${quoted(names)}`;

/** The security context of the pod comes first, then those of the containers. */
export function setters(pod: boolean, containers: readonly string[]): string[] {
  return [...(pod ? ['pod'] : []), ...(containers.length > 0 ? [containerList(containers)] : [])];
}

export const isWindows = (spec: PodSpec): boolean => spec.os?.name === 'windows';

export const unique = (values: readonly string[]): string[] => [...new Set(values)].sort();
