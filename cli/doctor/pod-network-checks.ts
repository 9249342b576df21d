/** Checks what the pod network between hosts needs of this host. Changes nothing. */
import { type CniPlaces, DEFAULT_CNI_PLACES } from '../../agent/base/model/cni-places.ts';
import { existsSync } from 'node:fs';
import { missingPlugins } from '../../agent/network/podnetwork/cni-configuration.ts';
import { hostNetwork, type HostNetwork, type LinkSupport } from '../../agent/network/podnetwork/host-network.ts';
import type { Finding } from './host-checks.ts';
import { KNOWN_CRI_SOCKETS } from '../../agent/runtime/known-sockets.ts';

interface PodNetworkHost {
  readonly network: Pick<HostNetwork, 'linkSupport'>;
  readonly places: CniPlaces;
  /** Whether a container runtime that uses CNI plugins is installed. */
  readonly usesCni: boolean;
}

/** Returns the tools and places of this host. */
export const podNetworkHost = (): PodNetworkHost => ({
  network: hostNetwork(),
  places: DEFAULT_CNI_PLACES,
  usesCni: KNOWN_CRI_SOCKETS.some((path) => existsSync(path)),
});

/** Checks what the pod network needs on this host. A missing tunnel is a warning, as another mode may be chosen. */
export async function checkPodNetwork({ network, places, usesCni }: PodNetworkHost): Promise<readonly Finding[]> {
  return [
    finding(
      'vxlan',
      await network.linkSupport('vxlan'),
      'pods of other hosts cannot be reached by --pod-network=vxlan',
    ),
    finding('wireguard', await network.linkSupport('wireguard'), 'only --pod-network=wireguard needs it'),
    ...(usesCni ? [await pluginFinding(places)] : []),
  ];
}

function finding(name: string, { problem, substitute }: LinkSupport, consequence: string): Finding {
  if (problem === '') return { name, verdict: 'ok', text: substitute === '' ? 'available' : substitute };
  // The text has the remedy in parentheses.
  const open = problem.indexOf(' (');
  const close = problem.indexOf(')', open);
  const isNamed = open >= 0 && close > open;
  return {
    name,
    verdict: 'warn',
    text: `${isNamed ? problem.slice(0, open) + problem.slice(close + 1) : problem}: ${consequence}`,
    remedy: isNamed ? problem.slice(open + 2, close) : 'install it, or choose another --pod-network',
  };
}

async function pluginFinding(places: CniPlaces): Promise<Finding> {
  const missing = await missingPlugins(places);
  if (missing.length === 0) return { name: 'CNI plugins', verdict: 'ok', text: 'available' };
  return {
    name: 'CNI plugins',
    verdict: 'warn',
    text: `missing: ${missing.join(', ')}; containerd and CRI-O have no network of pods without them`,
    remedy: 'apt-get install containernetworking-plugins',
  };
}
