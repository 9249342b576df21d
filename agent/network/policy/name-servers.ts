/**
 * Queries of pods to the name server of their node. It is a process of the node, which network policies do not concern: a
 * pod and its node may always talk. Users know it as the pods of CoreDNS, whose place it takes, and a policy that denies all
 * egress must stop data in the names of queries. So `policy-inputs.ts` shows policies a pod of that kind with the address of
 * the service `kube-dns`.
 */
import { parseIp } from '../../../api/meta/ip-addresses.ts';
import type { AddressFamily, PeerRange } from './address-ranges.ts';

const PORT = 53;
const PROTOCOLS = ['UDP', 'TCP'] as const;

/** Queries that no policy of the pod allows. */
export interface RefusedQueries {
  readonly family: AddressFamily;
  /** In canonical form. */
  readonly pod: string;
  readonly server: string;
  readonly protocol: (typeof PROTOCOLS)[number];
}

/** `egress` are the profiles of pods by address. Pure. */
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
