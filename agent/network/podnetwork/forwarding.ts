/** Sets the kernel parameters with which this host forwards the packets of pods. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { setKernelParameter, setKernelParameters } from '../kernel-parameters.ts';

const IPV6 = '/proc/sys/net/ipv6/conf';
/** The value of `accept_ra` by which an interface accepts router advertisements also while the host forwards. */
const ALWAYS = '2';

/** Enables IP forwarding for the families. Never rejects: a parameter that cannot be set is logged. */
export async function allowForwarding(families: ReadonlySet<4 | 6>, logger: Logger): Promise<void> {
  if (families.has(6)) await keepAdvertisedRoutes(logger);
  await setKernelParameters(
    {
      ...(families.has(4) ? { 'net.ipv4.ip_forward': '/proc/sys/net/ipv4/ip_forward' } : {}),
      ...(families.has(6) ? { 'net.ipv6.conf.all.forwarding': `${IPV6}/all/forwarding` } : {}),
    },
    logger,
    'Cannot set a kernel parameter to 1, pods cannot reach other hosts',
  );
}

/**
 * Makes interfaces accept router advertisements while the host forwards. Otherwise a host that forwards IPv6 ignores their
 * routes, its default route among them.
 */
async function keepAdvertisedRoutes(logger: Logger): Promise<void> {
  try {
    if ((await readFile(join(IPV6, 'all/forwarding'), 'utf8')).trim() === '1') return;
    for (const name of await readdir(IPV6)) {
      const path = join(IPV6, name, 'accept_ra');
      if (name !== 'all' && (await readFile(path, 'utf8')).trim() === '1') await setKernelParameter(path, ALWAYS);
    }
  } catch (error) {
    logger.warn({ err: errorMessage(error) }, 'Cannot keep the routes of IPv6 router advertisements');
  }
}
