/**
 * Allocates a pod CIDR of each family to each node. The CIDRs of a deleted node are free again. It runs only with
 * `--cluster-cidr`.
 */
import { referenceTo } from '../../../api/client/event-recorder.ts';
import { cidrAddress, parseCidr, type Cidr } from '../../../api/meta/ip-addresses.ts';
import type { Node } from '../../../api/kinds/kinds.ts';
import { nodes } from '../../../api/client/resources.ts';
import { aborted, ReconcileLoop, type RunController } from '../controller.ts';

/** Returns the first free range of `maskSize` within `cluster`; `undefined` if all are allocated. Pure. */
export function firstFree(cluster: Cidr, maskSize: number, taken: ReadonlySet<string>): string | undefined {
  const bits = cluster.family === 4 ? 32 : 128;
  const count = 2n ** BigInt(maskSize - cluster.prefixLength);
  const step = 2n ** BigInt(bits - maskSize);
  for (let index = 0n; index < count; index++) {
    const range = `${cidrAddress(cluster, index * step)}/${maskSize}`;
    if (!taken.has(range)) return range;
  }
  return undefined;
}

/** Runs the controller that assigns pod CIDRs to nodes. Without a valid cluster CIDR it does nothing. */
export const runNodeIpam: RunController = (environment, signal) => {
  const { client, informers, options, recorder } = environment;
  const clusters = options.clusterCidrs.map(parseCidr).filter((cidr) => cidr !== undefined);
  if (clusters.length === 0) return aborted(signal);
  const cache = informers.for(nodes);
  /** The ranges by node that this process allocated. The informer may not show them yet. */
  const allocated = new Map<string, readonly string[]>();
  const rangesOf = (node: Node): readonly string[] =>
    node.spec?.podCIDRs ?? (node.spec?.podCIDR === undefined ? [] : [node.spec.podCIDR]);
  const loop = new ReconcileLoop(environment, {
    maxDelayMs: 60_000,
    reconcile: async (name) => {
      const node = cache.get('', name);
      if (node === undefined) {
        allocated.delete(name);
        return;
      }
      if (rangesOf(node).length > 0) return;
      const taken = new Set([
        ...cache.list().flatMap(rangesOf),
        ...[...allocated].filter(([other]) => other !== name).flatMap(([, ranges]) => ranges),
      ]);
      const ranges = clusters.map((cluster) =>
        firstFree(cluster, cluster.family === 4 ? options.nodeCidrMaskSizeIpv4 : options.nodeCidrMaskSizeIpv6, taken),
      );
      const free = ranges.filter((range) => range !== undefined);
      if (free.length < ranges.length) {
        recorder.event(
          referenceTo(node, nodes),
          'Normal',
          'CIDRNotAvailable',
          `Node ${name} status is now: CIDRNotAvailable`,
        );
        throw new Error(`no pod CIDR is left for node ${name}: delete unused nodes, or give a larger --cluster-cidr`);
      }
      allocated.set(name, free);
      await client.patch(nodes, '', name, { type: 'strategic', body: { spec: { podCIDR: free[0], podCIDRs: free } } });
    },
  });
  loop.follow(cache);
  return loop.run(signal, cache);
};
