/** Reads the directories of CNI plugins and configuration from containerd's verbose status. Other runtimes use the defaults. */
import { type CniPlaces, DEFAULT_CNI_PLACES } from '../../base/model/cni-places.ts';

/**
 * Returns the directories. `config` is the member `config` of containerd's verbose status (JSON), or empty with other
 * runtimes.
 */
export function cniPlacesOf(config: string): CniPlaces {
  const { cni } = parsed(config);
  const text = (value: unknown): string => (typeof value === 'string' ? value : '');
  // containerd 2.1 has a list of directories, older releases one.
  const listed = Array.isArray(cni?.['binDirs']) ? cni['binDirs'].map(text) : [text(cni?.['binDir'])];
  const plugins = listed.filter((directory) => directory !== '');
  const configuration = text(cni?.['confDir']);
  return {
    configurationDirectory: configuration === '' ? DEFAULT_CNI_PLACES.configurationDirectory : configuration,
    pluginDirectories: plugins.length === 0 ? DEFAULT_CNI_PLACES.pluginDirectories : plugins,
  };
}

function parsed(config: string): { readonly cni?: Readonly<Record<string, unknown>> } {
  try {
    const value: unknown = JSON.parse(config);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    // The runtime reports no configuration, or one of another form.
    return {};
  }
}
