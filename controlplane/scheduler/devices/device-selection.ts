/** Judges whether a device suits a request: selectors of the request and its class, taints, and the capacity. */
import { compile, type Program } from '../../../api/cel/cel.ts';
import { DEVICE_ENVIRONMENT, deviceValue } from '../../../api/cel/device-environment.ts';
import type { DeviceClass } from '../../../api/machinery/kinds.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { compareQuantities, parseQuantity } from '../../../api/meta/quantity.ts';
import type { DeviceAlternative } from './device-requests.ts';
import type { Device, PooledDevice } from './device-pools.ts';

/** The error of an expression, by which a claim cannot be allocated anywhere. */
export class SelectorError extends Error {}

/** The programs that are kept. Users write the expressions. */
const MOST_PROGRAMS = 1_000;

export class DeviceSelection {
  readonly #programs = new Map<string, Program>();
  /** The results by device, since devices do not change and are judged for many pods. */
  readonly #results = new WeakMap<Device, Map<string, boolean>>();

  /** Throws `SelectorError`. */
  suits(pooled: PooledDevice, alternative: DeviceAlternative, deviceClass: DeviceClass): boolean {
    const { device } = pooled;
    const selectors = [...(deviceClass.spec?.selectors ?? []), ...(alternative.selectors ?? [])];
    return (
      isTolerated(device, alternative) &&
      hasCapacity(device, alternative) &&
      selectors.every(({ cel }, index) => this.#matches(pooled, cel?.expression ?? '', index))
    );
  }

  #matches({ driver, device }: PooledDevice, expression: string, index: number): boolean {
    const known = this.#results.get(device) ?? new Map<string, boolean>();
    this.#results.set(device, known);
    const before = known.get(expression);
    if (before !== undefined) return before;
    const value = deviceValue(driver, device);
    let matches: unknown;
    try {
      matches = this.#program(expression).run((name) => (name === 'device' ? value : undefined));
    } catch (error) {
      throw new SelectorError(`selector #${index}: CEL runtime error: ${(error as Error).message}`, { cause: error });
    }
    known.set(expression, matches === true);
    return matches === true;
  }

  #program(expression: string): Program {
    const known = this.#programs.get(expression);
    if (known !== undefined) return known;
    if (this.#programs.size >= MOST_PROGRAMS) this.#programs.clear();
    const program = compile(expression, DEVICE_ENVIRONMENT);
    this.#programs.set(expression, program);
    return program;
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
    const has = ownMember(capacity, name)?.value;
    return has !== undefined && compareQuantities(parseQuantity(has), parseQuantity(amount)) >= 0;
  });
}
