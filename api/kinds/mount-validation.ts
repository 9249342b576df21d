/** Validates how a container mounts volumes, as directories and as block devices. */
import { type FieldError, forbidden, invalid, notFound, required, unsupportedValue } from '../meta/field-error.ts';
import type { ContainerContext } from './container-context.ts';
import type { Container, EphemeralContainer, VolumeMount } from './pod-types.ts';
import { isBlank } from './validation-rules.ts';

/** Refuses absolute paths and `..`. */
export function localPathErrors(target: string, field: string): FieldError[] {
  const errors: FieldError[] = [];
  if (target.startsWith('/')) errors.push(invalid(field, target, 'must be a relative path'));
  if (target.split('/').includes('..')) errors.push(invalid(field, target, "must not contain '..'"));
  return errors;
}

/**
 * Validates the `volumeMounts` of a container, which are at the path. `devices` are the names and paths of its devices, which
 * no mount may have. As in kube-apiserver, some errors name a field of a mount without the index of the mount.
 */
export function volumeMountErrors(
  container: Container | EphemeralContainer,
  path: string,
  context: ContainerContext,
  devices: { readonly names: ReadonlySet<string>; readonly paths: ReadonlySet<string> },
): FieldError[] {
  const errors: FieldError[] = [];
  const points = new Set<string>();
  for (const [index, mount] of (container.volumeMounts ?? []).entries()) {
    const at = `${path}[${index}]`;
    const { name = '', mountPath = '' } = mount;
    if (name === '') errors.push(required(`${at}.name`));
    if (!context.volumes.has(name)) errors.push(notFound(`${at}.name`, name));
    if (mountPath === '') errors.push(required(`${at}.mountPath`));
    if (points.has(mountPath)) errors.push(invalid(`${at}.mountPath`, mountPath, 'must be unique'));
    points.add(mountPath);
    if (devices.names.has(name)) errors.push(invalid(`${at}.name`, name, 'must not already exist in volumeDevices'));
    if (devices.paths.has(mountPath))
      errors.push(invalid(`${at}.mountPath`, mountPath, 'must not already exist as a path in volumeDevices'));
    if (!isBlank(mount.subPath)) errors.push(...localPathErrors(mount.subPath, `${path}.subPath`));
    if (!isBlank(mount.subPathExpr)) {
      if (!isBlank(mount.subPath))
        errors.push(invalid(`${at}.subPathExpr`, mount.subPathExpr, 'subPathExpr and subPath are mutually exclusive'));
      errors.push(...localPathErrors(mount.subPathExpr, `${path}.subPathExpr`));
    }
    errors.push(...propagationErrors(mount, container, path), ...recursiveErrors(mount, path));
  }
  return errors;
}

const PROPAGATIONS = ['Bidirectional', 'HostToContainer', 'None'];

function propagationErrors(mount: VolumeMount, container: Container | EphemeralContainer, path: string): FieldError[] {
  const { mountPropagation: mode } = mount;
  if (mode === undefined) return [];
  const field = `${path}.mountPropagation`;
  const errors: FieldError[] = [];
  if (!PROPAGATIONS.includes(mode)) errors.push(unsupportedValue(field, mode, PROPAGATIONS));
  if (mode === 'Bidirectional' && container.securityContext?.privileged !== true) {
    errors.push(forbidden(field, 'Bidirectional mount propagation is available only to privileged containers'));
  }
  return errors;
}

const RECURSIVE = ['Disabled', 'Enabled', 'IfPossible'];

function recursiveErrors(mount: VolumeMount, path: string): FieldError[] {
  const { recursiveReadOnly: mode } = mount;
  if (mode === undefined || mode === 'Disabled') return [];
  const field = `${path}.recursiveReadOnly`;
  if (!RECURSIVE.includes(mode)) return [unsupportedValue(field, mode, RECURSIVE)];
  const errors: FieldError[] = [];
  if (mount.readOnly !== true) errors.push(forbidden(field, 'may only be specified when readOnly is true'));
  if (mount.mountPropagation !== undefined && mount.mountPropagation !== 'None') {
    errors.push(forbidden(field, 'may only be specified when mountPropagation is None or not specified'));
  }
  return errors;
}

/** Validates `volumeDevices`. `mounts` are the names and paths of the container's mounts, which must differ. */
export function volumeDeviceErrors(
  devices: readonly { name?: string | undefined; devicePath?: string | undefined }[],
  mounts: { readonly names: ReadonlySet<string>; readonly paths: ReadonlySet<string> },
  context: ContainerContext,
  path: string,
): FieldError[] {
  const errors: FieldError[] = [];
  const names = new Set<string>();
  const paths = new Set<string>();
  for (const [index, { name = '', devicePath = '' }] of devices.entries()) {
    const at = `${path}[${index}]`;
    if (name === '') errors.push(required(`${at}.name`));
    if (names.has(name)) errors.push(invalid(`${at}.name`, name, 'must be unique'));
    const kind = context.volumes.get(name);
    if (kind !== undefined && kind !== 'persistentVolumeClaim' && kind !== 'ephemeral') {
      errors.push(
        invalid(
          `${at}.name`,
          name,
          'can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode',
        ),
      );
    } else if (kind === undefined) errors.push(notFound(`${at}.name`, name));
    if (devicePath === '') errors.push(required(`${at}.devicePath`));
    if (paths.has(devicePath)) errors.push(invalid(`${at}.devicePath`, devicePath, 'must be unique'));
    if (devicePath !== '' && devicePath.split('/').includes('..'))
      errors.push(invalid(`${at}.devicePath`, devicePath, "can not contain backsteps ('..')"));
    else paths.add(devicePath);
    if (mounts.names.has(name)) errors.push(invalid(`${at}.name`, name, 'must not already exist in volumeMounts'));
    if (mounts.paths.has(devicePath))
      errors.push(invalid(`${at}.devicePath`, devicePath, 'must not already exist as a path in volumeMounts'));
    if (name !== '') names.add(name);
  }
  return errors;
}

interface MountNames {
  readonly names: ReadonlySet<string>;
  readonly paths: ReadonlySet<string>;
}

const NO_NAMES: MountNames = { names: new Set(), paths: new Set() };

/** Returns the names, and the paths without those of entries whose name a later entry has too. */
function namesAndPathsOf(items: readonly (readonly [name: string, path: string])[]): MountNames {
  if (items.length === 0) return NO_NAMES;
  const byName = new Map(items);
  return { names: new Set(byName.keys()), paths: new Set(byName.values()) };
}

/** Returns the names and paths of a container's devices. */
export function devicePathsOf({ volumeDevices = [] }: Container | EphemeralContainer): MountNames {
  return namesAndPathsOf(volumeDevices.map(({ name = '', devicePath = '' }) => [name, devicePath] as const));
}

/** Returns the names and paths of a container's mounts. */
export function mountPathsOf({ volumeMounts = [] }: Container | EphemeralContainer): MountNames {
  return namesAndPathsOf(volumeMounts.map(({ name = '', mountPath = '' }) => [name, mountPath] as const));
}
