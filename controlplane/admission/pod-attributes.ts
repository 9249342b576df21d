/** What plugins about pods share: is this request about a pod, and refusing it as kube-apiserver does. */
import type { Pod } from '../../api/machinery/kinds.ts';
import { newForbidden, type StatusError } from '../../api/meta/status-error.ts';
import type { AdmissionAttributes } from './admission.ts';

export const isPod = (attributes: AdmissionAttributes): boolean =>
  attributes.resource.group === '' && attributes.resource.resource === 'pods';

export type PodSpec = NonNullable<Pod['spec']>;

/** The pod of a request on the pod itself (no subresource); its spec is there. */
export function podOf(attributes: AdmissionAttributes): (Pod & { spec: PodSpec }) | undefined {
  if (!isPod(attributes) || attributes.subresource !== '' || attributes.object === undefined) return undefined;
  const pod = attributes.object as Pod;
  return pod.spec === undefined ? undefined : (pod as Pod & { spec: PodSpec });
}

/** `pods "p" is forbidden: …` of whatever the request is about. */
export function refusal(attributes: AdmissionAttributes, why: string): StatusError {
  const { group, resource } = attributes.resource;
  return newForbidden({ group, resource }, nameOf(attributes), why);
}

/** Of the request, or what the object says before it has been drawn. */
export function nameOf(attributes: AdmissionAttributes): string {
  return attributes.name !== '' ? attributes.name : (attributes.object?.metadata.name ?? '');
}
