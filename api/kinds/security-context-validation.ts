/**
 * Validates the security contexts of pods and containers: users, groups, capabilities, seccomp, AppArmor and SELinux.
 */
import { duplicate, type FieldError, invalid, required, tooLong, unsupportedValue } from '../meta/field-error.ts';
import { dnsSubdomainErrors } from '../meta/names.ts';
import type { PodSecurityContext, PodSpec, SecurityContext } from './pod-types.ts';
import { internalForm } from '../schema/internal-form.ts';
import { localPathErrors } from './mount-validation.ts';
import { invalidFor, isBlank } from './validation-rules.ts';
import { INT32_MAX } from '../meta/integers.ts';

const PROFILE_TYPES = ['Localhost', 'RuntimeDefault', 'Unconfined'];

/** Validates a user or group id; an absent one is valid. */
export function idErrors(field: string, value: number | undefined): FieldError[] {
  return value !== undefined && (value < 0 || value > INT32_MAX)
    ? [invalid(field, value, `must be between 0 and ${INT32_MAX}, inclusive`)]
    : [];
}

function seccompErrors(profile: SecurityContext['seccompProfile'], path: string): FieldError[] {
  if (profile === undefined) return [];
  const { type = '', localhostProfile } = profile;
  const errors: FieldError[] = [];
  if (type === '') errors.push(required(`${path}.type`, 'type is required when seccompProfile is set'));
  else if (!PROFILE_TYPES.includes(type)) errors.push(unsupportedValue(`${path}.type`, type, PROFILE_TYPES));
  const field = `${path}.localhostProfile`;
  if (type !== 'Localhost') {
    if (localhostProfile !== undefined)
      errors.push(
        invalid(
          field,
          internalForm('io.k8s.api.core.v1.SeccompProfile', profile),
          'can only be set when seccomp type is Localhost',
        ),
      );
  } else if (localhostProfile === undefined) errors.push(required(field, 'must be set when seccomp type is Localhost'));
  else errors.push(...localPathErrors(localhostProfile, field));
  return errors;
}

/** The longest path of Linux, without its final zero. */
const MAX_PROFILE_LENGTH = 4095;

function appArmorErrors(profile: SecurityContext['appArmorProfile'], path: string): FieldError[] {
  if (profile === undefined) return [];
  const { type = '', localhostProfile } = profile;
  const errors: FieldError[] = [];
  const field = `${path}.localhostProfile`;
  if (type === '') return [required(`${path}.type`, 'type is required when appArmorProfile is set')];
  if (type === 'Localhost') {
    if (localhostProfile === undefined) errors.push(required(field, 'must be set when AppArmor type is Localhost'));
    else if (localhostProfile.trim() !== localhostProfile)
      errors.push(invalid(field, localhostProfile, 'must not be padded with whitespace'));
    else if (localhostProfile === '') errors.push(required(field, 'must be set when AppArmor type is Localhost'));
    if (localhostProfile !== undefined && localhostProfile.length > MAX_PROFILE_LENGTH)
      errors.push(tooLong(field, MAX_PROFILE_LENGTH));
  } else if (type === 'RuntimeDefault' || type === 'Unconfined') {
    if (localhostProfile !== undefined)
      errors.push(invalid(field, localhostProfile, 'can only be set when AppArmor type is Localhost'));
  } else errors.push(unsupportedValue(`${path}.type`, type, ['Localhost', 'RuntimeDefault', 'Unconfined']));
  return errors;
}

const PROC_MOUNTS = ['Default', 'Unmasked'];

/** Validates the security context of a container. `hostUsers` is that of the pod. */
export function containerSecurityErrors(
  context: SecurityContext | undefined,
  path: string,
  hostUsers: boolean,
): FieldError[] {
  if (context === undefined) return [];
  const errors = [
    ...idErrors(`${path}.runAsUser`, context.runAsUser),
    ...idErrors(`${path}.runAsGroup`, context.runAsGroup),
  ];
  const { procMount } = context;
  if (procMount !== undefined) {
    if (!PROC_MOUNTS.includes(procMount)) errors.push(unsupportedValue(`${path}.procMount`, procMount, PROC_MOUNTS));
    if (hostUsers && procMount === 'Unmasked') {
      errors.push(invalid(`${path}.procMount`, procMount, '`hostUsers` must be false to use `Unmasked`'));
    }
  }
  errors.push(...seccompErrors(context.seccompProfile, `${path}.seccompProfile`));
  if (context.allowPrivilegeEscalation === false) {
    const shown = (): object | null => internalForm('io.k8s.api.core.v1.SecurityContext', context);
    if (context.privileged === true) {
      errors.push(invalid(path, shown(), 'cannot set `allowPrivilegeEscalation` to false and `privileged` to true'));
    }
    if ((context.capabilities?.add ?? []).includes('CAP_SYS_ADMIN')) {
      errors.push(
        invalid(path, shown(), 'cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN'),
      );
    }
  }
  errors.push(
    ...windowsOptionErrors(context.windowsOptions, `${path}.windowsOptions`),
    ...appArmorErrors(context.appArmorProfile, `${path}.appArmorProfile`),
  );
  return errors;
}

const SYSCTL = /^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$/;
const SYSCTL_TEXT = '^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$';
const SYSCTL_MAX = 253;

/** Validates the security context of a pod. */
export function podSecurityErrors(
  context: PodSecurityContext | undefined,
  spec: PodSpec,
  specPath: string,
): FieldError[] {
  const path = `${specPath}.securityContext`;
  if (context === undefined) return [];
  const errors: FieldError[] = [
    ...idErrors(`${path}.fsGroup`, context.fsGroup),
    ...idErrors(`${path}.runAsUser`, context.runAsUser),
    ...idErrors(`${path}.runAsGroup`, context.runAsGroup),
  ];
  for (const [index, group] of (context.supplementalGroups ?? []).entries()) {
    errors.push(...idErrors(`${path}.supplementalGroups[${index}]`, group));
  }
  if (spec.shareProcessNamespace === true && spec.hostPID === true) {
    errors.push(
      invalid(`${path}.shareProcessNamespace`, true, 'ShareProcessNamespace and HostPID cannot both be enabled'),
    );
  }
  errors.push(...sysctlErrors(context.sysctls ?? [], `${path}.sysctls`, spec));
  if (
    context.fsGroupChangePolicy !== undefined &&
    !['Always', 'OnRootMismatch'].includes(context.fsGroupChangePolicy)
  ) {
    errors.push(
      unsupportedValue(`${path}.fsGroupChangePolicy`, context.fsGroupChangePolicy, ['Always', 'OnRootMismatch']),
    );
  }
  const { seLinuxChangePolicy, supplementalGroupsPolicy } = context;
  errors.push(...seccompErrors(context.seccompProfile, `${path}.seccompProfile`));
  errors.push(
    ...windowsOptionErrors(context.windowsOptions, `${path}.windowsOptions`),
    ...appArmorErrors(context.appArmorProfile, `${path}.appArmorProfile`),
  );
  if (supplementalGroupsPolicy !== undefined && !['Merge', 'Strict'].includes(supplementalGroupsPolicy)) {
    errors.push(unsupportedValue(`${path}.supplementalGroupsPolicy`, supplementalGroupsPolicy, ['Merge', 'Strict']));
  }
  if (seLinuxChangePolicy !== undefined && seLinuxChangePolicy !== 'Recursive') {
    errors.push(unsupportedValue(`${path}.seLinuxChangePolicy`, seLinuxChangePolicy, ['Recursive']));
  }
  return errors;
}

function sysctlErrors(sysctls: readonly { name?: string | undefined }[], path: string, spec: PodSpec): FieldError[] {
  const errors: FieldError[] = [];
  const seen = new Set<string>();
  for (const [index, { name = '' }] of sysctls.entries()) {
    const field = `${path}[${index}].name`;
    const dotted = name.replaceAll('/', '.');
    if (isBlank(name)) errors.push(required(field));
    else if (!(name.length <= SYSCTL_MAX && SYSCTL.test(name))) {
      errors.push(invalid(field, name, `must have at most ${SYSCTL_MAX} characters and match regex ${SYSCTL_TEXT}`));
    } else if (seen.has(name)) errors.push(duplicate(field, name));
    seen.add(name);
    if (spec.hostNetwork === true && dotted.startsWith('net.')) {
      errors.push(invalid(field, name, "may not be specified when 'hostNetwork' is true"));
    }
    if (spec.hostIPC === true && /^(kernel\.(shm|msg|sem)|fs\.mqueue\.)/.test(dotted)) {
      errors.push(invalid(field, name, "may not be specified when 'hostIPC' is true"));
    }
  }
  return errors;
}

const MAX_CREDENTIAL_KIB = 64;

function windowsOptionErrors(options: SecurityContext['windowsOptions'], path: string): FieldError[] {
  if (options === undefined) return [];
  const { gmsaCredentialSpecName: name, gmsaCredentialSpec: credential, runAsUserName: user } = options;
  const errors: FieldError[] = [];
  if (name !== undefined) errors.push(...invalidFor(`${path}.gmsaCredentialSpecName`, name, dnsSubdomainErrors(name)));
  const field = `${path}.gmsaCredentialSpec`;
  if (credential === '') errors.push(invalid(field, '', 'gmsaCredentialSpec cannot be an empty string'));
  else if (credential !== undefined && Buffer.byteLength(credential) > MAX_CREDENTIAL_KIB * 1024)
    errors.push(invalid(field, credential, `gmsaCredentialSpec size must be under ${MAX_CREDENTIAL_KIB} KiB`));
  if (user !== undefined)
    errors.push(...windowsUserTexts(user).map((text) => invalid(`${path}.runAsUserName`, user, text)));
  return errors;
}

const NETBIOS = /^[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}$/;
const DOMAIN_LABEL = '[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?';
const DOMAIN = new RegExp(`^${DOMAIN_LABEL}(?:\\.${DOMAIN_LABEL})*$`);
/** The domain of a Windows user name has fewer characters than this. */
const DOMAIN_LIMIT = 256;
/** The maximum number of characters of the user. */
const MAX_USER = 104;

/** Validates a Windows user name: `DOMAIN\\user` or `user`. */
function windowsUserTexts(name: string): string[] {
  if (name === '') return ['runAsUserName cannot be an empty string'];
  // oxlint-disable-next-line no-control-regex -- it finds control characters
  if (/[\u0000-\u001f\u007f]/.test(name)) return ['runAsUserName cannot contain control characters'];
  const parts = name.split('\\');
  if (parts.length > 2) return ['runAsUserName cannot contain more than one backslash'];
  const domain = parts.length === 2 ? (parts[0] ?? '') : undefined;
  const user = parts.at(-1) ?? '';
  const texts: string[] = [];
  if (domain !== undefined && domain.length >= DOMAIN_LIMIT)
    texts.push(`runAsUserName's Domain length must be under ${DOMAIN_LIMIT} characters`);
  if (domain !== undefined && !NETBIOS.test(domain) && !DOMAIN.test(domain))
    texts.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
  if (user === '') texts.push("runAsUserName's User cannot be empty");
  else if (user.length > MAX_USER)
    texts.push(`runAsUserName's User length must not be longer than ${MAX_USER} characters`);
  if (/^[. ]+$/.test(user)) texts.push("runAsUserName's User cannot contain only periods or spaces");
  if (/["/\\:;|=,+*?<>@[\]]/.test(user))
    texts.push('runAsUserName\'s User cannot contain the following characters: "/\\:;|=,+*?<>@[]');
  return texts;
}
