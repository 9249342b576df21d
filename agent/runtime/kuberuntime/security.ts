/**
 * Merges the security contexts of pod and container into the runtime's form. The container's values override the pod's. Pure.
 */
import type { Container, Pod } from '../../base/model/pod.ts';
import type { ImageInfo } from '../runtime.ts';
import type { ContainerId } from '../runtime-identity.ts';
import type { ContainerSecurity, NamespaceOptions, SecurityProfile, SeLinuxOptions } from '../runtime-security.ts';
import { join } from 'node:path';
import { ContainerConfigError } from './environment.ts';
import { formatPod } from './pod-containers.ts';
import type { UserNamespace } from './user-namespaces.ts';
import { INT32_MAX } from '../../../api/meta/integers.ts';

/** The flags of seccomp. */
export interface SecuritySettings {
  /** The directory of seccomp profiles: `<root-dir>/seccomp`. */
  readonly seccompDirectory: string;
  /** The value of `--seccomp-default`. */
  readonly seccompDefault: boolean;
}

interface ProfileSpec {
  readonly type?: string | undefined;
  readonly localhostProfile?: string | undefined;
}

/** Returns the profile of the container, else that of the pod, else the node's default. */
export function seccompProfile(
  pod: ProfileSpec | undefined,
  container: ProfileSpec | undefined,
  settings: SecuritySettings,
): SecurityProfile {
  const chosen = container ?? pod;
  switch (chosen?.type) {
    case 'RuntimeDefault':
      return { type: 'RuntimeDefault' };
    case 'Localhost':
      return { type: 'Localhost', localhost: join(settings.seccompDirectory, chosen.localhostProfile ?? '') };
    case 'Unconfined':
      return { type: 'Unconfined' };
    default:
      return { type: settings.seccompDefault ? 'RuntimeDefault' : 'Unconfined' };
  }
}

/** Docker's word for a container without a profile. A profile of the host cannot have this name. */
const NO_APP_ARMOR = 'unconfined';

/**
 * Returns the AppArmor profile of the container, else that of the pod, or `undefined` if neither has one. Throws for a profile
 * of the host with the name `unconfined`: Pod Security allows any name there, and a runtime that gets the name alone would run
 * the container without a profile.
 */
function appArmorProfile(pod: Pod, container: Container): SecurityProfile | undefined {
  const chosen: ProfileSpec | undefined =
    container.securityContext?.appArmorProfile ?? pod.spec.securityContext?.appArmorProfile;
  if (chosen === undefined) return undefined;
  if (chosen.type === 'Localhost') {
    const { localhostProfile: localhost = '' } = chosen;
    if (localhost.trim() === NO_APP_ARMOR)
      throw new ContainerConfigError(`the host has no AppArmor profile with the name "${NO_APP_ARMOR}"`);
    return { type: 'Localhost', localhost };
  }
  return { type: chosen.type === 'Unconfined' ? 'Unconfined' : 'RuntimeDefault' };
}

/**
 * Returns the namespaces that a sandbox or a container shares. `target` is the container whose processes an ephemeral container
 * sees.
 */
export function namespaceOptions(
  pod: Pod,
  { target, userNamespace }: Pick<ContainerSecurityOptions, 'target' | 'userNamespace'>,
): NamespaceOptions {
  const pid =
    pod.spec.hostPID === true
      ? 'node'
      : pod.spec.shareProcessNamespace === true
        ? 'pod'
        : target === undefined
          ? 'container'
          : 'target';
  return {
    network: pod.spec.hostNetwork === true ? 'node' : 'pod',
    ipc: pod.spec.hostIPC === true ? 'node' : 'pod',
    pid,
    ...(pid === 'target' && target !== undefined ? { targetId: target } : {}),
    ...(userNamespace === undefined ? {} : { userNamespace }),
  };
}

function seLinux(
  options:
    | { user?: string | undefined; role?: string | undefined; type?: string | undefined; level?: string | undefined }
    | undefined,
): { seLinux?: SeLinuxOptions } {
  if (options === undefined) return {};
  return {
    seLinux: Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined && value !== '')),
  };
}

interface ContainerSecurityOptions {
  readonly settings: SecuritySettings;
  readonly target?: ContainerId | undefined;
  readonly userNamespace: UserNamespace | undefined;
  readonly extraGroups: readonly number[];
  readonly image: Pick<ImageInfo, 'user'> | undefined;
}

/**
 * Returns the user of an image: a uid, or a name that only the runtime can resolve. Without a user it is root. The group of the
 * image is ignored, as in the kubelet.
 */
function imageUser(image: Pick<ImageInfo, 'user'> | undefined): Pick<ContainerSecurity, 'runAsUser' | 'runAsUserName'> {
  const user = userPart(image);
  return /^\d*$/.test(user) ? { runAsUser: Number(user) } : { runAsUserName: user };
}

function userPart(image: Pick<ImageInfo, 'user'> | undefined): string {
  return (image?.user ?? '').split(':')[0] ?? '';
}

/** Returns the complete security settings of a container. Throws `ContainerConfigError` for a forbidden AppArmor profile. */
export function containerSecurity(
  pod: Pod,
  container: Container,
  options: ContainerSecurityOptions,
): ContainerSecurity {
  const containerContext = container.securityContext;
  const podContext = pod.spec.securityContext;
  const user = containerContext?.runAsUser ?? podContext?.runAsUser;
  const group = containerContext?.runAsGroup ?? podContext?.runAsGroup;
  const groups = [
    ...(podContext?.supplementalGroups ?? []),
    ...(podContext?.fsGroup === undefined ? [] : [podContext.fsGroup]),
    ...options.extraGroups,
  ];
  const privileged = containerContext?.privileged ?? false;
  const appArmor = appArmorProfile(pod, container);
  return {
    addCapabilities: containerContext?.capabilities?.add ?? [],
    dropCapabilities: containerContext?.capabilities?.drop ?? [],
    privileged,
    namespaces: namespaceOptions(pod, options),
    ...(user === undefined ? imageUser(options.image) : { runAsUser: user }),
    ...(group === undefined ? {} : { runAsGroup: group }),
    supplementalGroups: [...new Set(groups)],
    supplementalGroupsPolicy: podContext?.supplementalGroupsPolicy === 'Strict' ? 'Strict' : 'Merge',
    readOnlyRootFilesystem: containerContext?.readOnlyRootFilesystem ?? false,
    noNewPrivileges: containerContext?.allowPrivilegeEscalation === false,
    maskedPaths: containerContext?.procMount === 'Unmasked' ? 'none' : 'default',
    seccomp: privileged
      ? { type: 'Unconfined' }
      : seccompProfile(podContext?.seccompProfile, containerContext?.seccompProfile, options.settings),
    ...(appArmor === undefined ? {} : { appArmor }),
    ...seLinux(containerContext?.seLinuxOptions ?? podContext?.seLinuxOptions),
  };
}

/**
 * The maximum number of characters of a user in an error. An image may name a user of any length, and the error becomes part of
 * a status.
 */
const LONGEST_USER = 256;

/** Throws `ContainerConfigError` if `runAsNonRoot` is set and the container would run as root, or if that is not known. */
export function verifyNonRoot(pod: Pod, container: Container, image: ImageInfo | undefined): void {
  const nonRoot = container.securityContext?.runAsNonRoot ?? pod.spec.securityContext?.runAsNonRoot;
  if (nonRoot !== true) return;
  const where = `(pod: "${formatPod(pod)}", container: ${container.name})`;
  const user = container.securityContext?.runAsUser ?? pod.spec.securityContext?.runAsUser;
  if (user !== undefined) {
    if (user === 0) throw new ContainerConfigError(`container's runAsUser breaks non-root policy ${where}`);
    return;
  }
  const userOfImage = userPart(image);
  // A user id may be spelled with zeros before it: `00` is root as well.
  if (/^0*$/.test(userOfImage))
    throw new ContainerConfigError(`container has runAsNonRoot and image will run as root ${where}`);
  if (!/^\d+$/.test(userOfImage)) {
    throw new ContainerConfigError(
      `container has runAsNonRoot and image has non-numeric user (${userOfImage.slice(0, LONGEST_USER)}), cannot verify user is non-root ${where}`,
    );
  }
  // A runtime that keeps 32 bits of the id runs such a user as another one, root included.
  if (Number(userOfImage) > INT32_MAX)
    throw new ContainerConfigError(
      `container has runAsNonRoot and image has a user id out of range, cannot verify user is non-root ${where}`,
    );
}
