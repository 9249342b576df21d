/** The directories in which the container runtime searches plugins and configuration. */
export interface CniPlaces {
  readonly configurationDirectory: string;
  readonly pluginDirectories: readonly string[];
}

/** The directories of runtimes that report no others. */
export const DEFAULT_CNI_PLACES: CniPlaces = {
  configurationDirectory: '/etc/cni/net.d',
  pluginDirectories: ['/opt/cni/bin', '/usr/lib/cni', '/usr/libexec/cni'],
};
