/**
 * Holds the functions that plugins share. They find the pod, the name and the namespace of a request, and refuse it in
 * kube-apiserver's words.
 */
import type { Pod } from '../../../api/kinds/kinds.ts';
import { newForbidden, type StatusError } from '../../../api/meta/status-error.ts';
import type { AdmissionAttributes } from './admission.ts';
import { namespaces, pods, persistentVolumeClaims } from '../../../api/client/resources.ts';
import { isResource } from '../../../api/meta/group-resource.ts';

/** Whether the request is for pods or any of their subresources. */
export const isPod = (attributes: AdmissionAttributes): boolean => isResource(attributes.resource, pods);

/** Whether the request is for claims themselves, and not for a subresource. */
export const isClaim = (attributes: AdmissionAttributes): boolean =>
  isResource(attributes.resource, persistentVolumeClaims) && attributes.subresource === '';

/** The specification of a pod as the plugins see it, after defaulting. */
export type PodSpec = NonNullable<Pod['spec']>;

/** Returns the pod of a request for a pod itself, if it has a spec. Returns `undefined` for subresources and other kinds. */
export function podOf(attributes: AdmissionAttributes): (Pod & { spec: PodSpec }) | undefined {
  if (!isPod(attributes) || attributes.subresource !== '' || attributes.object === undefined) return undefined;
  const pod = attributes.object as Pod;
  return pod.spec === undefined ? undefined : (pod as Pod & { spec: PodSpec });
}

/** Builds `pods "p" is forbidden: …` for the resource of the request. */
export function refusal(attributes: AdmissionAttributes, why: string): StatusError {
  const { group, resource } = attributes.resource;
  const name = nameOf(attributes) || attributes.object?.metadata.generateName || 'Unknown';
  return newForbidden({ group, resource }, name, why);
}

/** Returns the name of the request, or that of the object if the request has none. */
export function nameOf(attributes: AdmissionAttributes): string {
  return attributes.name !== '' ? attributes.name : (attributes.object?.metadata.name ?? '');
}

/**
 * Returns the namespace that webhooks and expressions see. The namespace of a Namespace is its own name, as in its path
 * `/namespaces/NAME`.
 */
export function namespaceOf(attributes: AdmissionAttributes): string {
  return isResource(attributes.resource, namespaces) ? nameOf(attributes) : attributes.namespace;
}
