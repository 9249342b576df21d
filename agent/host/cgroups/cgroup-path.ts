/**
 * Names of cgroups as the drivers want them, and where they stand below the mount point: slices of systemd are nested by the
 * dashes of their names, so that a dash within a part is written as an underscore. Pure.
 */
import { trimEnd } from '../../../api/component/trim.ts';

/** `/kubepods/podX` stays; `kubepods-besteffort-podX.slice` is `/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podX.slice`. */
export function cgroupPath(name: string): string {
  if (!name.endsWith('.slice') || name.includes('/')) return name.startsWith('/') ? name : `/${name}`;
  const parts = name.slice(0, -'.slice'.length).split('-');
  return parts.map((_part, index) => `/${parts.slice(0, index + 1).join('-')}.slice`).join('');
}

export interface CgroupNaming {
  readonly driver: 'cgroupfs' | 'systemd';
  /** `--cgroup-root`. */
  readonly root: string;
}

/** `['kubepods', 'burstable', 'podX']` below the root: `/kubepods/burstable/podX`, `kubepods-burstable-podX.slice`. */
export function cgroupName(parts: readonly string[], { driver, root }: CgroupNaming): string {
  const all = [...root.split('/').filter((part) => part !== ''), ...parts];
  if (driver === 'systemd') return `${all.map((part) => part.replaceAll('-', '_')).join('-')}.slice`;
  return `/${all.join('/')}`;
}

/**
 * The unit that a cgroup named by somebody else belongs to: the last part of a path, a slice unless it says otherwise, as
 * `/system.slice`, `system.slice` and `/system` all mean the slice of the system.
 */
export function unitOf(name: string): string {
  const last = trimEnd(name, '/').split('/').at(-1) ?? '';
  return /\.(slice|service|scope)$/.test(last) ? last : `${last}.slice`;
}
