/** Computes a container's mounts and devices from the mounted volumes of its pod, and binds sub-paths safely. */
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import type { Container, Pod } from '../base/model/pod.ts';
import { type PreparedMounts, VolumeError } from '../runtime/container-volumes.ts';
import { expand } from '../runtime/kuberuntime/environment.ts';
import { formatPod } from '../runtime/kuberuntime/pod-containers.ts';
import type { Mount } from '../runtime/runtime.ts';
import type { Mounter } from './mounter.ts';
import type { ReadyVolume } from './volume-set-up.ts';
import { bindSubPath } from './subpath.ts';

interface ContainerMountsOptions {
  readonly pod: Pod;
  readonly container: Container;
  /** The environment of the container, for `subPathExpr`. */
  readonly env: ReadonlyMap<string, string>;
  readonly ready: ReadonlyMap<string, ReadyVolume>;
  readonly podDirectory: string;
  /** The runtime supports recursive read-only mounts. */
  readonly recursiveReadOnly: boolean;
  readonly mounter: Mounter;
  readonly logger: Logger;
}

type VolumeMount = NonNullable<Container['volumeMounts']>[number];

/**
 * Returns the mounts and devices of a container. Throws a `VolumeError` if a volume is missing or has the wrong mode, or if a
 * sub-path cannot be used.
 */
export async function containerMounts(options: ContainerMountsOptions): Promise<PreparedMounts> {
  const { container, ready } = options;
  const mounts: Mount[] = [];
  for (const [index, wanted] of (container.volumeMounts ?? []).entries()) {
    const volume = ready.get(wanted.name);
    if (volume === undefined)
      throw new VolumeError(`cannot find volume "${wanted.name}" to mount into container "${container.name}"`);
    mounts.push(await mountOf(options, wanted, index, volume));
  }
  const devices = (container.volumeDevices ?? []).map((device) => {
    const volume = ready.get(device.name);
    if (volume?.isBlock !== true)
      throw new VolumeError(`cannot find block volume "${device.name}" for container "${container.name}"`);
    return { containerPath: device.devicePath, hostPath: volume.path, permissions: volume.readOnly ? 'r' : 'mrw' };
  });
  return { mounts, devices };
}

async function mountOf(
  options: ContainerMountsOptions,
  wanted: VolumeMount,
  index: number,
  volume: ReadyVolume,
): Promise<Mount> {
  const readonly = wanted.readOnly === true || volume.readOnly;
  const base = {
    containerPath: wanted.mountPath.startsWith('/') ? wanted.mountPath : `/${wanted.mountPath}`,
    readonly,
    recursiveReadOnly: readonly && isRecursive(wanted, options.recursiveReadOnly),
    propagation: propagationOf(wanted.mountPropagation),
    seLinuxRelabel: false,
  } as const;
  const subPath =
    wanted.subPathExpr === undefined ? (wanted.subPath ?? '') : expandSubPath(wanted.subPathExpr, options.env);
  checkSubPath(subPath);
  if (volume.image !== undefined) {
    const part = subPath === '' ? {} : { imageSubPath: subPath };
    return { ...base, hostPath: '', image: volume.image.reference, ...part };
  }
  if (subPath === '') return { ...base, hostPath: volume.path };
  return { ...base, hostPath: await boundSubPath(options, wanted, { index, volumePath: volume.path, subPath }) };
}

/**
 * Whether a read-only mount also makes the mounts below it read-only. Without support of the runtime, `IfPossible` is ignored
 * and `Enabled` is an error.
 */
function isRecursive({ name, recursiveReadOnly = 'Disabled' }: VolumeMount, supported: boolean): boolean {
  if (recursiveReadOnly === 'Enabled' && !supported)
    throw new VolumeError(
      `failed to resolve recursive read-only mode: volume "${name}" requested recursive read-only mode, but it is not supported by the runtime`,
    );
  return supported && recursiveReadOnly !== 'Disabled';
}

/** Binds the sub-path of a volume and returns the path on the host. Throws a `VolumeError` without details of the host. */
async function boundSubPath(
  { pod, container, podDirectory, mounter, logger }: ContainerMountsOptions,
  wanted: VolumeMount,
  { index, volumePath, subPath }: { readonly index: number; readonly volumePath: string; readonly subPath: string },
): Promise<string> {
  const target = join(podDirectory, 'volume-subpaths', wanted.name, container.name, String(index));
  try {
    return await bindSubPath(volumePath, subPath, target, mounter);
  } catch (error) {
    // Only the log contains the details of the error, because they could reveal files of the host.
    const fields = { pod: formatPod(pod), container: container.name, volume: wanted.name, subPath, err: error };
    logger.error(fields, 'Cannot prepare a subPath');
    throw new VolumeError(
      `failed to prepare subPath for volumeMount "${wanted.name}" of container "${container.name}"`,
      { cause: error },
    );
  }
}

function propagationOf(mode: string | undefined): 'private' | 'host-to-container' | 'bidirectional' {
  if (mode === 'Bidirectional') return 'bidirectional';
  return mode === 'HostToContainer' ? 'host-to-container' : 'private';
}

function expandSubPath(expression: string, env: ReadonlyMap<string, string>): string {
  const missing = new Set<string>();
  const expanded = expand(expression, (name) => {
    const value = env.get(name) ?? '';
    if (value === '') missing.add(name);
    return value;
  });
  if (missing.size > 0) throw new VolumeError(`missing value for ${[...missing].toSorted().join(', ')}`);
  return expanded;
}

function checkSubPath(subPath: string): void {
  if (subPath.startsWith('/')) throw new VolumeError(`error SubPath \`${subPath}\` must not be an absolute path`);
  if (subPath.split('/').includes('..'))
    throw new VolumeError(`unable to provision SubPath \`${subPath}\`: must not contain '..'`);
}
