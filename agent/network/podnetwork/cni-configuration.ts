/**
 * The CNI configuration of this node's pods for runtimes that use CNI plugins: a bridge, addresses of the node's pod range, and
 * host ports. The agent owns one file. A configuration of another network plugin in the same directory has precedence: then the
 * agent removes its own.
 */
import type { CniPlaces } from '../../base/model/cni-places.ts';
import { access, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readOwnFile } from '../../base/files/regular-file.ts';
import { stringifyJson } from '../../../api/codec/json.ts';
import { replaceFile } from '../../../api/machinery/replace-file.ts';
import { type Cidr, formatCidr } from '../../../api/meta/ip-addresses.ts';
import { LINK_PREFIX } from './desired-network.ts';

/** The bridge of pods that the CNI plugin creates. */
export const POD_BRIDGE = `${LINK_PREFIX}pods`;
/**
 * The name of the agent's configuration. Runtimes use the first file in the order of names, so a file of another plugin usually
 * precedes this one.
 */
const CNI_FILE = '90-orchlet.conflist';
const NETWORK_NAME = 'orchlet';
const PLUGINS = ['bridge', 'host-local', 'portmap', 'loopback'] as const;
const CONFIGURATION = /\.(conf|conflist|json)$/;

interface CniSettings {
  readonly ranges: readonly Cidr[];
  readonly mtu: number;
  readonly hairpin: boolean;
  /** Where the plugin host-local keeps the addresses that it has allocated. */
  readonly addressDirectory: string;
}

/** Returns the content of the file. Pure. */
export function cniConfiguration({ ranges, mtu, hairpin, addressDirectory }: CniSettings): string {
  const routes = ranges.map(({ family }) => ({ dst: family === 4 ? '0.0.0.0/0' : '::/0' }));
  return `${stringifyJson(
    {
      cniVersion: '0.4.0',
      name: NETWORK_NAME,
      plugins: [
        {
          type: 'bridge',
          bridge: POD_BRIDGE,
          mtu,
          isGateway: true,
          // A node that registers again may get another range.
          forceAddress: true,
          // The rules of the pod network masquerade: the plugin would also do so between nodes.
          ipMasq: false,
          hairpinMode: hairpin,
          ipam: {
            type: 'host-local',
            dataDir: addressDirectory,
            ranges: ranges.map((range) => [{ subnet: formatCidr(range) }]),
            routes,
          },
        },
        { type: 'portmap', capabilities: { portMappings: true } },
      ],
    },
    2,
  )}\n`;
}

/** Returns the names of the configuration files of other network plugins, sorted; none if the directory does not exist. */
export async function foreignConfigurations({ configurationDirectory }: CniPlaces): Promise<readonly string[]> {
  const names = await readdir(configurationDirectory).catch(absent);
  return names.filter((name) => CONFIGURATION.test(name) && name !== CNI_FILE && !isLoopbackOnly(name)).sort();
}

/** Whether the name is that of a file for the loopback plugin alone, which is not a network. CRI-O installs such a file. */
const isLoopbackOnly = (name: string): boolean => name.includes('loopback');

/** Returns the plugins that are in none of the directories. */
export async function missingPlugins({ pluginDirectories }: CniPlaces): Promise<readonly string[]> {
  const found = await Promise.all(
    PLUGINS.map(async (plugin) => {
      const tries = pluginDirectories.map((directory) =>
        access(join(directory, plugin)).then(
          () => true,
          () => false,
        ),
      );
      return (await Promise.all(tries)).includes(true);
    }),
  );
  return PLUGINS.filter((_plugin, index) => found[index] !== true);
}

/** The file that records, in the agent's directory, the CNI directory, for a removal without the container runtime. */
const RECORD = 'cni-directory';

/** Returns the directory that has the agent's configuration file according to the record; empty if there is no record. */
export async function recordedDirectory(stateDirectory: string): Promise<string> {
  return (await readOwnFile(join(stateDirectory, RECORD)).catch(absentFile))?.trim() ?? '';
}

/** Writes the file if it differs, and records its directory. */
export async function writeCniConfiguration(
  { configurationDirectory }: CniPlaces,
  stateDirectory: string,
  content: string,
): Promise<void> {
  if ((await recordedDirectory(stateDirectory)) !== configurationDirectory)
    await replaceFile(join(stateDirectory, RECORD), `${configurationDirectory}\n`, { mode: 0o600 });
  const path = join(configurationDirectory, CNI_FILE);
  if ((await readOwnFile(path).catch(absentFile)) === content) return;
  await mkdir(configurationDirectory, { recursive: true, mode: 0o755 });
  await replaceFile(path, content, { mode: 0o644 });
}

/** Removes the file of the agent, if there is one. */
export function removeCniConfiguration({ configurationDirectory }: CniPlaces): Promise<void> {
  return rm(join(configurationDirectory, CNI_FILE), { force: true });
}

function absent(error: unknown): [] {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
  throw error;
}

function absentFile(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
  throw error;
}
