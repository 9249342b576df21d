/** Where a cgroup stands below the mount point: slices of systemd are nested by the dashes of their names. Pure. */

/** `/kubepods/podX` stays; `kubepods-besteffort-podX.slice` is `/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podX.slice`. */
export function cgroupPath(name: string): string {
  if (!name.endsWith('.slice') || name.includes('/')) return name.startsWith('/') ? name : `/${name}`;
  const parts = name.slice(0, -'.slice'.length).split('-');
  return parts.map((_part, index) => `/${parts.slice(0, index + 1).join('-')}.slice`).join('');
}
