/**
 * Sets how long the kernel tracks TCP connections without packets. The values are the defaults of kube-proxy
 * (`conntrack.tcpEstablishedTimeout`, `conntrack.tcpCloseWaitTimeout`).
 */
import type { Logger } from '../../../api/component/logger.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { type KernelParameterPlaces, setKernelParameter } from '../kernel-parameters.ts';

const TIMEOUTS_SECONDS = {
  nf_conntrack_tcp_timeout_established: 86_400,
  // A connection that one side has closed breaks when it is no longer tracked. The kernel's default is a minute.
  nf_conntrack_tcp_timeout_close_wait: 3600,
} as const;

/** Returns a function that sets the timeouts of this network namespace. It logs what cannot be set, and never rejects. */
export function connectionTimeouts(logger: Logger, places: KernelParameterPlaces = {}): () => Promise<void> {
  return async () => {
    for (const [name, seconds] of Object.entries(TIMEOUTS_SECONDS)) {
      try {
        await setKernelParameter(`${places.parameters ?? '/proc/sys'}/net/netfilter/${name}`, `${seconds}`, places);
      } catch (error) {
        const fields = { parameter: `net.netfilter.${name}`, err: errorMessage(error) };
        logger.warn(fields, 'Cannot set how long connections are tracked; those through services may break early');
      }
    }
  };
}
