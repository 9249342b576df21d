/** Annotations of pods and templates that mean something: mirrors of static pods, deletion cost, confinement of old clients. */
import { invalid, type FieldError } from '../meta/field-error.ts';
import { localPathErrors } from './mount-validation.ts';
import type { PodSpec } from './pod-types.ts';

const MIRROR = 'kubernetes.io/config.mirror';
const DELETION_COST = 'controller.kubernetes.io/pod-deletion-cost';
const SECCOMP_POD = 'seccomp.security.alpha.kubernetes.io/pod';
const SECCOMP_CONTAINER = 'container.seccomp.security.alpha.kubernetes.io/';
/** Followed by a container's name. */
export const APP_ARMOR_ANNOTATION = 'container.apparmor.security.beta.kubernetes.io/';
const INT32_MAX = 2147483647;

export function podAnnotationErrors(
  annotations: Readonly<Record<string, string>> | undefined,
  spec: PodSpec,
  path: string,
): FieldError[] {
  if (annotations === undefined) return [];
  const errors: FieldError[] = [];
  const mirror = annotations[MIRROR];
  if (mirror !== undefined && (spec.nodeName ?? '') === '')
    errors.push(invalid(`${path}[${MIRROR}]`, mirror, 'must set spec.nodeName if mirror pod annotation is set'));
  const cost = annotations[DELETION_COST];
  if (cost !== undefined && !isDeletionCost(cost))
    errors.push(invalid(`${path}[${DELETION_COST}]`, cost, 'must be a 32bit integer'));
  for (const [key, value] of Object.entries(annotations)) {
    const field = `${path}[${key}]`;
    if (key === SECCOMP_POD || key.startsWith(SECCOMP_CONTAINER)) errors.push(...seccompErrors(value, field));
    if (key.startsWith(APP_ARMOR_ANNOTATION))
      errors.push(...appArmorErrors(value, field, key.slice(APP_ARMOR_ANNOTATION.length), spec));
  }
  return errors;
}

function isDeletionCost(text: string): boolean {
  return /^(0|-?[1-9][0-9]*)$/.test(text) && Math.abs(Number(text)) <= INT32_MAX;
}

function seccompErrors(profile: string, field: string): FieldError[] {
  if (['runtime/default', 'docker/default', 'unconfined'].includes(profile)) return [];
  if (profile.startsWith('localhost/')) return localPathErrors(profile.slice('localhost/'.length), field);
  return [invalid(field, profile, 'must be a valid seccomp profile')];
}

function appArmorErrors(profile: string, field: string, container: string, spec: PodSpec): FieldError[] {
  const containers = [...(spec.initContainers ?? []), ...(spec.containers ?? []), ...(spec.ephemeralContainers ?? [])];
  const errors: FieldError[] = [];
  if (!containers.some(({ name }) => name === container)) errors.push(invalid(field, container, 'container not found'));
  const known = ['', 'runtime/default', 'unconfined'].includes(profile) || profile.startsWith('localhost/');
  if (!known) errors.push(invalid(field, profile, `invalid AppArmor profile name: ${JSON.stringify(profile)}`));
  return errors;
}
