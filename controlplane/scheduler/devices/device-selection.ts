/** Decides whether a device suits a request, by the selectors of the request and its class, taints and the capacity. */
import { compile, type Program } from '../../../api/cel/cel.ts';
import { DEVICE_ENVIRONMENT, deviceValue } from '../../../api/cel/device-environment.ts';
import type { DeviceClass } from '../../../api/kinds/kinds.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { compareQuantities, parseQuantity } from '../../../api/meta/quantity.ts';
import type { DeviceAlternative } from './device-requests.ts';
import type { Device, PooledDevice } from './device-pools.ts';
import type { SearchBudget } from './search-budget.ts';

/** The error of an expression. A claim with such an expression cannot be allocated anywhere. */
export class SelectorError extends Error {}

/**
 * The maximum number of compiled expressions that are kept with their results. It bounds the memory, because users write the
 * expressions.
 */
const MAX_PROGRAMS = 1_000;
/** The number of kept results of all expressions from which on a further expression discards all of them. */
const MAX_RESULTS = 1_000_000;
/** The CEL cost that takes as long as one unit of a search. */
const CEL_COST_PER_UNIT = 4;
/** The cost of creating the value of a device, in units of a search. */
const VALUE_UNITS = 30;

interface Selector {
  readonly program: Program;
  /** The kept results by device. */
  readonly results: WeakMap<Device, boolean>;
}

interface SuitOptions {
  readonly deviceClass: DeviceClass;
  readonly budget: SearchBudget;
}

/** Keeps compiled selectors and their results. */
export class DeviceSelection {
  readonly #selectors = new Map<string, Selector>();
  #results = 0;

  /**
   * Whether the device suits the request. Throws `SelectorError` and `SearchExhausted`. After the latter, the results so far
   * are kept for the next attempt.
   */
  suits(pooled: PooledDevice, alternative: DeviceAlternative, { deviceClass, budget }: SuitOptions): boolean {
    const { device } = pooled;
    const selectors = [...(deviceClass.spec?.selectors ?? []), ...(alternative.selectors ?? [])];
    budget.spend(1 + selectors.length + (device.taints ?? []).length * (alternative.tolerations ?? []).length);
    return (
      isTolerated(device, alternative) &&
      hasCapacity(device, alternative) &&
      selectors.every(({ cel }, index) =>
        this.#matches(pooled, this.#selector(cel?.expression ?? '', budget), index, budget),
      )
    );
  }

  #matches(
    { driver, device }: PooledDevice,
    { program, results }: Selector,
    index: number,
    budget: SearchBudget,
  ): boolean {
    const cached = results.get(device);
    if (cached !== undefined) return cached;
    const value = deviceValue(driver, device);
    const cost = { left: Number.MAX_SAFE_INTEGER };
    let matches: boolean;
    try {
      matches = program.run((name) => (name === 'device' ? value : undefined), cost) === true;
    } catch (error) {
      throw new SelectorError(`selector #${index}: CEL runtime error: ${(error as Error).message}`, { cause: error });
    }
    results.set(device, matches);
    this.#results += 1;
    budget.spend(VALUE_UNITS + Math.ceil((Number.MAX_SAFE_INTEGER - cost.left) / CEL_COST_PER_UNIT));
    return matches;
  }

  #selector(expression: string, budget: SearchBudget): Selector {
    const cached = this.#selectors.get(expression);
    if (cached !== undefined) return cached;
    if (this.#selectors.size >= MAX_PROGRAMS || this.#results >= MAX_RESULTS) {
      this.#selectors.clear();
      this.#results = 0;
    }
    const selector = { program: compile(expression, DEVICE_ENVIRONMENT), results: new WeakMap<Device, boolean>() };
    this.#selectors.set(expression, selector);
    budget.spend(expression.length);
    return selector;
  }
}

function isTolerated({ taints = [] }: Device, { tolerations = [], adminAccess }: DeviceAlternative): boolean {
  if (adminAccess === true) return true;
  return taints.every(
    (taint) =>
      taint.effect === 'None' ||
      tolerations.some(
        ({ key = '', operator = 'Equal', value = '', effect = '' }) =>
          (effect === '' || effect === taint.effect) &&
          (key === '' ? operator === 'Exists' : key === taint.key) &&
          (operator === 'Exists' || value === (taint.value ?? '')),
      ),
  );
}

function hasCapacity({ capacity }: Device, { capacity: wanted }: DeviceAlternative): boolean {
  return Object.entries(wanted?.requests ?? {}).every(([name, amount]) => {
    const available = ownMember(capacity, name)?.value;
    return available !== undefined && compareQuantities(parseQuantity(available), parseQuantity(amount)) >= 0;
  });
}
