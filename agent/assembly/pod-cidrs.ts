/** Passes the node's pod CIDRs to the container runtime. */
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import type { Runtime } from '../runtime/runtime.ts';

interface PodCidrsOptions {
  readonly node: { onPodCidrs(listener: (cidrs: readonly string[]) => void): void };
  readonly runtime: Pick<Runtime, 'setPodCidr'>;
  /** Resolves to the MTU of pods, if the pod network determines it. */
  readonly mtu: () => Promise<number | undefined>;
  /** Called when the container runtime has accepted the CIDRs. If it rejects, the CIDRs are passed to the runtime again. */
  readonly onAccepted: () => Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

const RETRY = { firstMs: 500, longestMs: 30_000 };

/** Passes the pod CIDRs of the node to the runtime until `signal` aborts. */
export function passPodCidrs({ node, runtime, mtu, onAccepted, clock, logger, signal }: PodCidrsOptions): void {
  let assigned: readonly string[] = [];
  let accepted = assigned;
  const loop = new WakeableLoop({
    clock,
    backoff: new Backoff(RETRY),
    onError: (error) =>
      logger.warn({ cidrs: assigned, err: error }, 'The container runtime does not accept the pod CIDRs yet'),
  });
  node.onPodCidrs((cidrs) => {
    assigned = cidrs;
    loop.wake();
  });
  const passing = loop.run(signal, async () => {
    const cidrs = assigned;
    if (cidrs !== accepted) {
      await runtime.setPodCidr(cidrs, { mtu: await mtu() });
      await onAccepted();
      accepted = cidrs;
    }
    return Number.POSITIVE_INFINITY;
  });
  background(passing, { logger, what: 'Passing the pod CIDRs to the container runtime', signal });
}
