/** The names that plugins may register with. Metrics and log lines have them, and objects of the API name drivers by them. */
import { driverNameErrors } from '../../../api/kinds/volume-validation.ts';
import { quoteText } from '../../../api/meta/quote.ts';

/** The maximum number of drivers of one kind on a node. */
const MAX_DRIVERS = 100;

/**
 * Checks the name of a driver that registers. Throws if no object of the API can name a driver so, or if the node has as many
 * drivers as it may have. The kubelet accepts any name, but a driver whose name fails this check cannot be used.
 */
export function checkDriverName(name: string, registered: ReadonlyMap<string, unknown>): void {
  if (driverNameErrors('name', name).length > 0)
    throw new Error(`the driver name ${quoteText(name.slice(0, 100))} is not a domain name of at most 63 characters`);
  if (!registered.has(name) && registered.size >= MAX_DRIVERS)
    throw new Error(`${MAX_DRIVERS} drivers are registered already`);
}
