/** Functions that plugins about pods share: they find the pod of a request, and refuse it in kube-apiserver's words. */
import type { Pod } from '../../api/machinery/kinds.ts';
import { newForbidden, type StatusError } from '../../api/meta/status-error.ts';
import type { AdmissionAttributes } from './admission.ts';

/** True for pods and all their subresources. */
export const isPod = (attributes: AdmissionAttributes): boolean =>
  attributes.resource.group === '' && attributes.resource.resource === 'pods';

/** The specification of a pod as the plugins see it, after defaulting. */
export type PodSpec = NonNullable<Pod['spec']>;

/** Returns the pod of a request on the pod itself, without a subresource. Its spec is always set. */
export function podOf(attributes: AdmissionAttributes): (Pod & { spec: PodSpec }) | undefined {
  if (!isPod(attributes) || attributes.subresource !== '' || attributes.object === undefined) return undefined;
  const pod = attributes.object as Pod;
  return pod.spec === undefined ? undefined : (pod as Pod & { spec: PodSpec });
}

/** Builds `pods "p" is forbidden: …` for the resource of the request. */
export function refusal(attributes: AdmissionAttributes, why: string): StatusError {
  const { group, resource } = attributes.resource;
  return newForbidden({ group, resource }, nameOf(attributes), why);
}

/** The namespace of the request, or that of the object if the request has none. */
export function nameOf(attributes: AdmissionAttributes): string {
  return attributes.name !== '' ? attributes.name : (attributes.object?.metadata.name ?? '');
}
