/**
 * Converts names of cgroups to the form of each driver, and to their paths below the mount point. systemd nests slices by the
 * dashes of their names, so a dash within a part becomes an underscore. Pure.
 */
import { trimEnd } from '../../../api/component/trim.ts';

/**
 * Returns the path below the mount point. `/kubepods/podX` stays; `kubepods-besteffort-podX.slice` becomes
 * `/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podX.slice`.
 */
export function cgroupPath(name: string): string {
  if (!name.endsWith('.slice') || name.includes('/')) return name.startsWith('/') ? name : `/${name}`;
  const parts = name.slice(0, -'.slice'.length).split('-');
  return parts.map((_part, index) => `/${parts.slice(0, index + 1).join('-')}.slice`).join('');
}

/** The settings on which names of cgroups depend. */
export interface CgroupNaming {
  readonly driver: 'cgroupfs' | 'systemd';
  /** The value of `--cgroup-root`. */
  readonly root: string;
}

/**
 * Returns the name of the cgroup with these parts below the root, for example `/kubepods/burstable/podX` or
 * `kubepods-burstable-podX.slice`.
 */
export function cgroupName(parts: readonly string[], { driver, root }: CgroupNaming): string {
  const levels = [...root.split('/').filter((part) => part !== ''), ...parts];
  if (driver === 'systemd') return `${levels.map((part) => part.replaceAll('-', '_')).join('-')}.slice`;
  return `/${levels.join('/')}`;
}

/**
 * Returns the systemd unit of a cgroup from a flag: the last part of the path, as a slice unless it has another suffix.
 * `/system.slice`, `system.slice` and `/system` are the same slice.
 */
export function unitOf(name: string): string {
  const last = trimEnd(name, '/').split('/').at(-1) ?? '';
  return /\.(slice|service|scope)$/.test(last) ? last : `${last}.slice`;
}
