/** Computes the resources of a whole pod, for limits and quota. */
import { addQuantities, compareQuantities, parseQuantity, type Quantity } from '../../../api/meta/quantity.ts';
import type { PodSpec } from './pod-attributes.ts';

/** Parses the amounts of a resource list by name; an absent list is empty. */
export const quantities = (amounts: Readonly<Record<string, string>> | undefined | null): Map<string, Quantity> =>
  new Map(Object.entries(amounts ?? {}).map(([name, amount]) => [name, parseQuantity(amount)]));

/**
 * Returns the sum over containers and sidecars. The amount of the largest init container, with the sidecars that start before
 * it, counts if it is higher. An amount that the pod specifies as a whole replaces both. Overhead is not included.
 */
export function podTotal(spec: PodSpec, field: 'requests' | 'limits'): Map<string, Quantity> {
  const total = new Map<string, Quantity>();
  const largest = new Map<string, Quantity>();
  const sidecars = new Map<string, Quantity>();
  const add = (target: Map<string, Quantity>, name: string, amount: Quantity): void => {
    const before = target.get(name);
    target.set(name, before === undefined ? amount : addQuantities(before, amount));
  };
  for (const container of spec.containers) {
    for (const [name, amount] of quantities(container.resources?.[field])) add(total, name, amount);
  }
  for (const container of spec.initContainers ?? []) {
    for (const [name, amount] of quantities(container.resources?.[field])) {
      if (container.restartPolicy === 'Always') {
        add(total, name, amount);
        add(sidecars, name, amount);
      }
      const sidecarAmount = sidecars.get(name);
      const peak =
        container.restartPolicy === 'Always'
          ? (sidecarAmount ?? amount)
          : sidecarAmount === undefined
            ? amount
            : addQuantities(sidecarAmount, amount);
      const largestBefore = largest.get(name);
      if (largestBefore === undefined || compareQuantities(peak, largestBefore) > 0) largest.set(name, peak);
    }
  }
  for (const [name, amount] of largest) {
    const before = total.get(name);
    if (before === undefined || compareQuantities(amount, before) > 0) total.set(name, amount);
  }
  for (const [name, amount] of quantities(spec.resources?.[field])) total.set(name, amount);
  return total;
}
