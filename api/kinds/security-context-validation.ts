/** Users, groups, capabilities and confinement of pods and containers. */
import { forbidden, invalid, notFound, required, unsupportedValue, FieldError } from '../meta/field-error.ts';
import type { PodSecurityContext, PodSpec, SecurityContext } from './pod-types.ts';
import { isBlank } from './validation-rules.ts';

const MAX_ID = 2147483647;

export function idErrors(field: string, value: number | undefined): FieldError[] {
  return value !== undefined && (value < 0 || value > MAX_ID)
    ? [invalid(field, value, `must be between 0 and ${MAX_ID}, inclusive`)]
    : [];
}

function seccompErrors(profile: SecurityContext['seccompProfile'], path: string): FieldError[] {
  if (profile === undefined) return [];
  const { type = '', localhostProfile } = profile;
  if (type === 'Localhost') {
    if (localhostProfile === undefined)
      return [required(`${path}.localhostProfile`, 'must be set when seccomp type is Localhost')];
    return localProfileErrors(localhostProfile, `${path}.localhostProfile`);
  }
  if (localhostProfile !== undefined) {
    return [invalid(`${path}.localhostProfile`, localhostProfile, 'can only be set when seccomp type is Localhost')];
  }
  if (type === '') return [required(`${path}.type`, 'type is required when seccompProfile is set')];
  if (type === 'RuntimeDefault' || type === 'Unconfined') return [];
  return [unsupportedValue(`${path}.type`, type, ['Localhost', 'RuntimeDefault', 'Unconfined'])];
}

function localProfileErrors(profile: string, field: string): FieldError[] {
  if (profile.startsWith('/')) return [invalid(field, profile, 'must be a relative path')];
  if (profile.split('/').includes('..')) return [invalid(field, profile, "must not contain '..'")];
  return [];
}

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
    else if (localhostProfile.length > 4095)
      errors.push(new FieldError('FieldValueTooLong', field, '', 'may not be more than 4095 bytes'));
  } else if (type === 'RuntimeDefault' || type === 'Unconfined') {
    if (localhostProfile !== undefined)
      errors.push(invalid(field, localhostProfile, 'can only be set when AppArmor type is Localhost'));
  } else errors.push(unsupportedValue(`${path}.type`, type, ['Localhost', 'RuntimeDefault', 'Unconfined']));
  return errors;
}

const PROC_MOUNTS = ['Default', 'Unmasked'];

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
    else if (hostUsers && procMount === 'Unmasked') {
      errors.push(invalid(`${path}.procMount`, procMount, '`hostUsers` must be false to use `Unmasked`'));
    }
  }
  errors.push(...seccompErrors(context.seccompProfile, `${path}.seccompProfile`));
  if (context.allowPrivilegeEscalation === false) {
    if (context.privileged === true) {
      errors.push(invalid(path, context, 'cannot set `allowPrivilegeEscalation` to false and `privileged` to true'));
    }
    if ((context.capabilities?.add ?? []).includes('CAP_SYS_ADMIN')) {
      errors.push(
        invalid(path, context, 'cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN'),
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
    } else if (seen.has(dotted)) errors.push(new FieldError('FieldValueDuplicate', field, name, ''));
    seen.add(dotted);
    if (spec.hostNetwork === true && dotted.startsWith('net.')) {
      errors.push(invalid(field, name, "may not be specified when 'hostNetwork' is true"));
    }
    if (spec.hostIPC === true && /^(kernel\.(shm|msg|sem)|fs\.mqueue\.)/.test(dotted)) {
      errors.push(invalid(field, name, "may not be specified when 'hostIPC' is true"));
    }
  }
  return errors;
}

function windowsOptionErrors(options: SecurityContext['windowsOptions'], path: string): FieldError[] {
  if (options === undefined) return [];
  const errors: FieldError[] = [];
  const name = options.gmsaCredentialSpecName;
  if (name !== undefined && !/^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/.test(name)) {
    errors.push(
      invalid(
        `${path}.gmsaCredentialSpecName`,
        name,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
      ),
    );
  }
  if (options.gmsaCredentialSpec === '')
    errors.push(invalid(`${path}.gmsaCredentialSpec`, '', 'gmsaCredentialSpec cannot be an empty string'));
  if (options.runAsUserName === '')
    errors.push(invalid(`${path}.runAsUserName`, '', 'runAsUserName cannot be an empty string'));
  return errors;
}

export { forbidden, notFound };
