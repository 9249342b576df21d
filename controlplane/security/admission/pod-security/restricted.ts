/** Implements the checks that the restricted level adds, in the order in which violations are listed. */
import { defaultProcMount } from './baseline.ts';
import { containerList, isWindows, namesOf, plural, quoted, setters, unique, type Check } from './check.ts';

/** Requires `allowPrivilegeEscalation: false` of each container, from v1.8 on; from v1.25 on not of Windows pods. */
export const allowPrivilegeEscalation: Check = ({ spec, minor }) => {
  if (minor < 8 || (minor >= 25 && isWindows(spec))) return undefined;
  const containers = namesOf(spec, (container) => container.securityContext?.allowPrivilegeEscalation !== false);
  if (containers.length === 0) return undefined;
  return {
    reason: 'allowPrivilegeEscalation != false',
    detail: `${containerList(containers)} must set securityContext.allowPrivilegeEscalation=false`,
  };
};

/**
 * Requires containers to drop ALL, and allows them to add NET_BIND_SERVICE alone, from v1.22 on; from v1.25 on not those of
 * Windows pods.
 */
export const restrictedCapabilities: Check = ({ spec, minor }) => {
  if (minor < 22 || (minor >= 25 && isWindows(spec))) return undefined;
  const values: string[] = [];
  const missing = namesOf(spec, (container) => container.securityContext?.capabilities?.drop?.includes('ALL') !== true);
  const adding = namesOf(spec, (container) => {
    const bad = (container.securityContext?.capabilities?.add ?? []).filter((one) => one !== 'NET_BIND_SERVICE');
    values.push(...bad);
    return bad.length > 0;
  });
  const details: string[] = [];
  if (missing.length > 0) details.push(`${containerList(missing)} must set securityContext.capabilities.drop=["ALL"]`);
  if (adding.length > 0) {
    details.push(
      `${containerList(adding)} must not include ${quoted(unique(values))} in securityContext.capabilities.add`,
    );
  }
  return details.length === 0 ? undefined : { reason: 'unrestricted capabilities', detail: details.join('; ') };
};

/** The members that a volume may have: its name, and the types that the level allows. */
const ALLOWED_VOLUMES = new Set([
  'name',
  'configMap',
  'csi',
  'downwardAPI',
  'emptyDir',
  'ephemeral',
  'image',
  'persistentVolumeClaim',
  'projected',
  'secret',
]);

/** Allows only the types of volumes that the restricted level lists. */
export const restrictedVolumes: Check = ({ spec }) => {
  const types: string[] = [];
  const names = (spec.volumes ?? [])
    .filter((volume) => {
      const bad = Object.entries(volume).filter(
        ([type, source]) => !ALLOWED_VOLUMES.has(type) && source !== undefined && source !== null,
      );
      types.push(...bad.map(([type]) => type));
      return bad.length > 0;
    })
    .map((volume) => volume.name);
  if (names.length === 0) return undefined;
  const list = unique(types);
  return {
    reason: 'restricted volume types',
    detail: `${plural(names.length, 'volume')} ${quoted(names)} ${plural(names.length, 'uses', 'use')} ${plural(list.length, 'restricted volume type')} ${quoted(list)}`,
  };
};

/** From v1.35 on, forbids any `procMount` but Default also to pods with a user namespace of their own. */
export const restrictedProcMount: Check = (input) => (input.minor < 35 ? undefined : defaultProcMount(input));

/** Requires `runAsNonRoot: true` of the pod or of each container; from v1.35 on a user namespace suffices. */
export const runAsNonRoot: Check = ({ spec, minor }) => {
  if (minor >= 35 && spec.hostUsers === false) return undefined;
  const pod = spec.securityContext?.runAsNonRoot ?? undefined;
  const explicit = namesOf(spec, (container) => container.securityContext?.runAsNonRoot === false);
  const who = setters(pod === false, explicit);
  const reason = 'runAsNonRoot != true';
  if (who.length > 0) return { reason, detail: `${who.join(' and ')} must not set securityContext.runAsNonRoot=false` };
  if (pod === true) return undefined;
  const implicit = namesOf(spec, (container) => (container.securityContext?.runAsNonRoot ?? undefined) === undefined);
  return implicit.length === 0
    ? undefined
    : { reason, detail: `pod or ${containerList(implicit)} must set securityContext.runAsNonRoot=true` };
};

/** Forbids the user 0, from v1.23 on; from v1.35 on, a pod with a user namespace of its own may have it. */
export const runAsUser: Check = ({ spec, minor }) => {
  if (minor < 23 || (minor >= 35 && spec.hostUsers === false)) return undefined;
  const who = setters(
    spec.securityContext?.runAsUser === 0,
    namesOf(spec, (container) => container.securityContext?.runAsUser === 0),
  );
  return who.length === 0
    ? undefined
    : { reason: 'runAsUser=0', detail: `${who.join(' and ')} must not set runAsUser=0` };
};

/** Requires RuntimeDefault or Localhost of the pod or of each container, from v1.19 on; from v1.25 on not of Windows pods. */
export const restrictedSeccomp: Check = ({ spec, minor }) => {
  if (minor < 19 || (minor >= 25 && isWindows(spec))) return undefined;
  const isGood = (type: string): boolean => type === 'RuntimeDefault' || type === 'Localhost';
  const values: string[] = [];
  const podType = spec.securityContext?.seccompProfile?.type;
  const podBad = podType !== undefined && !isGood(podType);
  if (podBad) values.push(podType);
  const explicit = namesOf(spec, (container) => {
    const type = container.securityContext?.seccompProfile?.type;
    if (type === undefined || isGood(type)) return false;
    values.push(type);
    return true;
  });
  const who = setters(podBad, explicit);
  const field = 'securityContext.seccompProfile.type to';
  if (who.length > 0)
    return { reason: 'seccompProfile', detail: `${who.join(' and ')} must not set ${field} ${quoted(unique(values))}` };
  if (podType !== undefined) return undefined;
  const implicit = namesOf(spec, (container) => (container.securityContext?.seccompProfile ?? undefined) === undefined);
  if (implicit.length === 0) return undefined;
  return {
    reason: 'seccompProfile',
    detail: `pod or ${containerList(implicit)} must set ${field} "RuntimeDefault" or "Localhost"`,
  };
};
