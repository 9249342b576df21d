/**
 * Validates the annotations of pods and templates that have a meaning: mirror pods, pod deletion cost, and the
 * annotations of AppArmor and seccomp that older clients set.
 */
import { quoteText } from '../meta/quote.ts';
import { forbidden, invalid, type FieldError } from '../meta/field-error.ts';
import { ownMember } from '../meta/own-member.ts';
import { localPathErrors } from './mount-validation.ts';
import type { PodSpec } from './pod-types.ts';
import {
  APP_ARMOR_PREFIX,
  MIRROR_ANNOTATION,
  SECCOMP_CONTAINER_PREFIX,
  SECCOMP_POD_ANNOTATION,
} from './pod-annotations.ts';
import { INT32_MAX, INT32_MIN } from '../meta/integers.ts';

const DELETION_COST = 'controller.kubernetes.io/pod-deletion-cost';

/** Validates the annotations of a pod or template. */
export function podAnnotationErrors(
  annotations: Readonly<Record<string, string>> | undefined,
  spec: PodSpec,
  path: string,
): FieldError[] {
  if (annotations === undefined) return [];
  const errors: FieldError[] = [];
  const mirror = annotations[MIRROR_ANNOTATION];
  if (mirror !== undefined && (spec.nodeName ?? '') === '')
    errors.push(
      invalid(`${path}[${MIRROR_ANNOTATION}]`, mirror, 'must set spec.nodeName if mirror pod annotation is set'),
    );
  const cost = annotations[DELETION_COST];
  if (cost !== undefined && !isDeletionCost(cost))
    errors.push(invalid(`${path}[${DELETION_COST}]`, cost, 'must be a 32bit integer'));
  for (const [key, value] of Object.entries(annotations)) {
    const field = `${path}[${key}]`;
    if (key === SECCOMP_POD_ANNOTATION || key.startsWith(SECCOMP_CONTAINER_PREFIX))
      errors.push(...seccompErrors(value, `${path}.${key}`));
    if (key.startsWith(APP_ARMOR_PREFIX))
      errors.push(...appArmorErrors(value, field, key.slice(APP_ARMOR_PREFIX.length), spec));
  }
  return errors;
}

/** Whether kube-apiserver accepts the cost. A negative one may have leading zeros. */
function isDeletionCost(text: string): boolean {
  return /^(?:0|[1-9]\d*|-\d+)$/.test(text) && Number(text) >= INT32_MIN && Number(text) <= INT32_MAX;
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
  const isKnown = ['', 'runtime/default', 'unconfined'].includes(profile) || profile.startsWith('localhost/');
  if (!isKnown) errors.push(invalid(field, profile, `invalid AppArmor profile name: ${quoteText(profile)}`));
  return errors;
}

type Profile = { readonly type?: string | undefined; readonly localhostProfile?: string | undefined };

/** Whether an annotation with the key contains a profile of AppArmor or seccomp. */
const isConfinementKey = (key: string): boolean =>
  key === SECCOMP_POD_ANNOTATION || key.startsWith(SECCOMP_CONTAINER_PREFIX) || key.startsWith(APP_ARMOR_PREFIX);

/** Validates the annotations of AppArmor and seccomp. An annotation must agree with the field that replaced it. */
export function confinementErrors(
  annotations: Readonly<Record<string, string>> | undefined,
  spec: PodSpec,
  path: string,
): FieldError[] {
  if (annotations === undefined || !Object.keys(annotations).some(isConfinementKey)) return [];
  const errors = matchErrors(annotations[SECCOMP_POD_ANNOTATION], spec.securityContext?.seccompProfile, {
    at: `${path}.securityContext.seccompProfile`,
    system: 'seccomp',
  });
  const containers = containersOf(spec, path);
  for (const [container, at] of containers) {
    errors.push(
      ...matchErrors(
        annotations[`${SECCOMP_CONTAINER_PREFIX}${container.name ?? ''}`],
        container.securityContext?.seccompProfile,
        {
          at: `${at}.securityContext.seccompProfile`,
          system: 'seccomp',
        },
      ),
    );
  }
  if (spec.os?.name === 'windows') return errors;
  for (const [container, at] of containers) {
    const profile = container.securityContext?.appArmorProfile ?? spec.securityContext?.appArmorProfile;
    errors.push(
      ...matchErrors(annotations[`${APP_ARMOR_PREFIX}${container.name ?? ''}`], profile, {
        at: `${at}.securityContext.appArmorProfile`,
        system: 'apparmor',
      }),
    );
  }
  return errors;
}

const DEFAULTS: ReadonlyMap<string, readonly string[]> = new Map(
  Object.entries({
    seccomp: ['runtime/default', 'docker/default'],
    apparmor: ['runtime/default'],
  }),
);

function matchErrors(
  annotation: string | undefined,
  profile: Profile | undefined,
  { at, system }: { readonly at: string; readonly system: 'seccomp' | 'apparmor' },
): FieldError[] {
  if (annotation === undefined || profile === undefined) return [];
  const type = [forbidden(`${at}.type`, `${system} type in annotation and field must match`)];
  switch (profile.type) {
    case 'Unconfined':
      return annotation === 'unconfined' ? [] : type;
    case 'RuntimeDefault':
      return (DEFAULTS.get(system) ?? []).includes(annotation) ? [] : type;
    case 'Localhost':
      if (!annotation.startsWith('localhost/')) return type;
      return annotation.slice('localhost/'.length) === profile.localhostProfile
        ? []
        : [forbidden(`${at}.localhostProfile`, `${system} profile in annotation and field must match`)];
    default:
      return [];
  }
}

type AnyContainer = NonNullable<PodSpec['containers']>[number] | NonNullable<PodSpec['ephemeralContainers']>[number];

/** Returns all containers with their paths, in kube-apiserver's order. */
export function containersOf(spec: PodSpec, path: string): (readonly [AnyContainer, string])[] {
  const found: (readonly [AnyContainer, string])[] = [];
  for (const list of ['initContainers', 'containers', 'ephemeralContainers'] as const) {
    spec[list]?.forEach((one, index) => found.push([one, `${path}.${list}[${index}]`]));
  }
  return found;
}

/** Validates an update. The annotations of AppArmor profiles and of mirror pods are immutable. */
export function podAnnotationUpdateErrors(
  annotations: Readonly<Record<string, string>> = {},
  old: Readonly<Record<string, string>> = {},
  spec: PodSpec = {},
): FieldError[] {
  const path = 'metadata.annotations';
  const errors: FieldError[] = [];
  for (const [key, value] of Object.entries(old)) {
    if (ownMember(annotations, key) === value) continue;
    if (key.startsWith(APP_ARMOR_PREFIX))
      errors.push(forbidden(`${path}[${key}]`, 'may not remove or update AppArmor annotations'));
    if (key === MIRROR_ANNOTATION)
      errors.push(forbidden(`${path}[${key}]`, 'may not remove or update mirror pod annotation'));
  }
  for (const key of Object.keys(annotations)) {
    if (old[key] !== undefined) continue;
    if (key.startsWith(APP_ARMOR_PREFIX)) errors.push(forbidden(`${path}[${key}]`, 'may not add AppArmor annotations'));
    if (key === MIRROR_ANNOTATION) errors.push(forbidden(`${path}[${key}]`, 'may not add mirror pod annotation'));
  }
  return [...errors, ...podAnnotationErrors(annotations, spec, path)];
}
