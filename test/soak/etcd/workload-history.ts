/**
 * Judges pods and services of a soak test: no pod is started twice, and no two services have the same address at the same
 * time. Pure.
 */

export const WORKLOAD_IMAGE = 'shell:1';

/** A container of a pod was started on a node. */
export interface Start {
  readonly node: string;
  readonly podUid: string;
}

/** The time for which a service surely had its addresses: from the answer to its creation to the request to delete it. */
export interface Tenure {
  readonly service: string;
  /** The cluster address and the node port, each as one text. */
  readonly addresses: readonly string[];
  readonly fromMs: number;
  untilMs: number;
}

/** Returns a line for each pod that was started more than once. Each has one container, which is never restarted. */
export function repeatedStarts(starts: readonly Start[]): readonly string[] {
  const byPod = Map.groupBy(starts, ({ podUid }) => podUid);
  return [...byPod]
    .filter(([, of]) => of.length > 1)
    .map(([uid, of]) => `pod ${uid} was started on ${of.map(({ node }) => node).join(' and ')}`);
}

/** Returns a line for each address that a service got while another one had it. */
export function sharedAddresses(tenures: readonly Tenure[]): readonly string[] {
  const found: string[] = [];
  const last = new Map<string, Tenure>();
  for (const tenure of tenures.toSorted((a, b) => a.fromMs - b.fromMs))
    for (const address of tenure.addresses) {
      const before = last.get(address);
      if (before !== undefined && before.untilMs > tenure.fromMs)
        found.push(`${address} was given to ${tenure.service} while ${before.service} had it`);
      if (before === undefined || before.untilMs < tenure.untilMs) last.set(address, tenure);
    }
  return found;
}
