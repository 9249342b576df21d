/** Computes what a request consumes of the capacities of a device that claims share, by their policies. Pure. */
import { ownMember } from '../../../api/meta/own-member.ts';
import {
  compareQuantities,
  newQuantity,
  parseQuantity,
  type Quantity,
  wholeUnits,
} from '../../../api/meta/quantity.ts';
import type { Consumption } from './allocated-devices.ts';
import type { Device } from './device-pools.ts';
import type { DeviceAlternative } from './device-requests.ts';

type Capacity = NonNullable<Device['capacity']>[string];
type Policy = NonNullable<Capacity['requestPolicy']>;

/**
 * Returns the amounts by the names of the device's capacities. `undefined` if the request names a capacity that the device
 * lacks, or an amount that its policy does not allow.
 */
export function consumptionOf(
  { capacity = {} }: Device,
  { capacity: wanted }: DeviceAlternative,
): Consumption | undefined {
  const requests = wanted?.requests ?? {};
  if (Object.keys(requests).some((name) => ownMember(capacity, name) === undefined)) return undefined;
  const consumption = new Map<string, Quantity>();
  for (const [name, one] of Object.entries(capacity)) {
    const amount = amountFor(one, ownMember(requests, name));
    if (amount === undefined) return undefined;
    consumption.set(name, amount);
  }
  return consumption;
}

/** Whether the capacities of the device suffice for all of the consumptions together. */
export function suffices({ capacity = {} }: Device, total: Consumption): boolean {
  return Object.entries(capacity).every(([name, { value }]) => {
    const amount = total.get(name);
    return amount === undefined || compareQuantities(amount, parseQuantity(value)) <= 0;
  });
}

function amountFor({ value, requestPolicy }: Capacity, requested: string | undefined): Quantity | undefined {
  const fallback = parseQuantity(requestPolicy?.default ?? value);
  const amount = requested === undefined ? fallback : roundedUp(parseQuantity(requested), requestPolicy);
  if (requestPolicy === undefined) return amount;
  if (requestPolicy.default !== undefined && compareQuantities(amount, fallback) === 0) return amount;
  return isAllowed(amount, requestPolicy) ? amount : undefined;
}

/** Rounds up to the next value that the policy allows, if there is one. */
function roundedUp(amount: Quantity, policy: Policy | undefined): Quantity {
  const { validRange, validValues = [] } = policy ?? {};
  if (validRange?.min !== undefined) {
    const least = parseQuantity(validRange.min);
    if (compareQuantities(amount, least) < 0) return least;
    const step = stepOf(policy);
    if (step === undefined) return amount;
    const from = wholeUnits(least);
    const steps = (wholeUnits(amount) - from + step - 1n) / step;
    return newQuantity(from + step * steps, 'BinarySI');
  }
  return validValues.map(parseQuantity).find((value) => compareQuantities(amount, value) <= 0) ?? amount;
}

function isAllowed(amount: Quantity, policy: Policy): boolean {
  const { validRange, validValues = [] } = policy;
  if (validRange !== undefined) {
    const { min = '0', max } = validRange;
    if (max !== undefined && compareQuantities(amount, parseQuantity(max)) > 0) return false;
    const step = stepOf(policy);
    return step === undefined || (wholeUnits(amount) - wholeUnits(parseQuantity(min))) % step === 0n;
  }
  return validValues.length === 0 || validValues.some((value) => compareQuantities(amount, parseQuantity(value)) === 0);
}

function stepOf({ validRange }: Policy = {}): bigint | undefined {
  const step = validRange?.step === undefined ? 0n : wholeUnits(parseQuantity(validRange.step));
  return step === 0n ? undefined : step;
}
