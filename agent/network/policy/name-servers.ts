/**
 * Applies network policies to the queries of pods to the name server of their node. The name server is a process of the node,
 * and policies do not limit traffic between a pod and its node. But it takes the place of the pods of CoreDNS, to which
 * policies apply, and a pod could send data out in the names of its queries although a policy denies all egress. So
 * `policy-inputs.ts` adds a pod with the labels of CoreDNS and the address of the service `kube-dns`, which rules of policies
 * can select.
 */
import { parseIp } from '../../../api/meta/ip-addresses.ts';
import type { AddressFamily, PeerRange } from './address-ranges.ts';

const PORT = 53;
const PROTOCOLS = ['UDP', 'TCP'] as const;

/** Queries that no policy of the pod allows. */
export interface RefusedQueries {
  readonly family: AddressFamily;
  /** The address of the pod in canonical form. */
  readonly pod: string;
  readonly server: string;
  readonly protocol: (typeof PROTOCOLS)[number];
}

/**
 * Returns which queries of which pods to the name servers are refused. `egress` has the egress profile of each isolated pod by
 * its address. Pure.
 */
export function refusedQueries(
  egress: ReadonlyMap<string, { readonly peers: readonly PeerRange[] }>,
  servers: readonly string[],
): readonly RefusedQueries[] {
  return servers.flatMap((server) => {
    const ip = parseIp(server);
    if (ip === undefined) return [];
    const { family, value } = ip;
    return [...egress].flatMap(([pod, { peers }]) => {
      if (parseIp(pod)?.family !== family) return [];
      const peer = peers.find((one) => one.family === family && one.first <= value && value <= one.last);
      return PROTOCOLS.filter((protocol) => !allows(peer, protocol)).map((protocol) => ({
        ...{ family, pod, server, protocol },
      }));
    });
  });
}

function allows(peer: PeerRange | undefined, protocol: string): boolean {
  if (peer === undefined) return false;
  const { isAll, ranges } = peer.ports;
  return isAll || ranges.some((one) => one.protocol === protocol && one.first <= PORT && PORT <= one.last);
}
