/** The CEL library of quantities: `quantity('1Gi').isLessThan(quantity('2Gi'))`. */
import {
  addQuantities,
  approximate,
  compareQuantities,
  newQuantity,
  parseQuantity,
  type Quantity as QuantityValue,
  QuantityError,
  subtractQuantities,
} from '../../meta/quantity.ts';
import { fn, type FunctionRow, method } from '../functions.ts';
import { bool, double, int, opaque, string } from '../types.ts';
import { CelError, Double, OpaqueValue } from '../values.ts';

class Quantity extends OpaqueValue {
  readonly typeName = 'kubernetes.Quantity';
  readonly value: QuantityValue;
  constructor(value: QuantityValue) {
    super();
    this.value = value;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Quantity && compareQuantities(this.value, other.value) === 0;
  }
}

const quantity = opaque('kubernetes.Quantity');

/** Wraps a quantity as a CEL value. */
export const quantityValue = (value: QuantityValue): OpaqueValue => new Quantity(value);

function quantityOf(text: string): QuantityValue | undefined {
  try {
    return parseQuantity(text);
  } catch (error) {
    if (error instanceof QuantityError) return undefined;
    throw error;
  }
}

function wholeOf({ value }: Quantity): bigint | undefined {
  return value.nano % 1_000_000_000n === 0n ? value.nano / 1_000_000_000n : undefined;
}

const order = (holds: (difference: number) => boolean) => (a: Quantity, b: Quantity) =>
  holds(compareQuantities(a.value, b.value));

/** The overloads of the library `quantity`. */
export const quantities: readonly FunctionRow[] = [
  fn('quantity', [string], quantity, (text: string) => {
    const value = quantityOf(text);
    if (value === undefined) {
      throw new CelError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
    }
    return new Quantity(value);
  }),
  fn('isQuantity', [string], bool, (text: string) => quantityOf(text) !== undefined),
  // As in Kubernetes, whose documentation names a method, it is a function.
  fn('sign', [quantity], int, ({ value }: Quantity) => (value.nano > 0n ? 1n : value.nano < 0n ? -1n : 0n)),
  method(
    'isGreaterThan',
    [quantity, quantity],
    bool,
    order((difference) => difference > 0),
  ),
  method(
    'isLessThan',
    [quantity, quantity],
    bool,
    order((difference) => difference < 0),
  ),
  method('compareTo', [quantity, quantity], int, (a: Quantity, b: Quantity) =>
    BigInt(compareQuantities(a.value, b.value)),
  ),
  method('asApproximateFloat', [quantity], double, ({ value }: Quantity) => new Double(approximate(value))),
  method('isInteger', [quantity], bool, (value: Quantity) => wholeOf(value) !== undefined),
  method('asInteger', [quantity], int, (value: Quantity) => {
    const whole = wholeOf(value);
    if (whole === undefined) throw new CelError('cannot convert value to integer');
    return whole;
  }),
  method(
    'add',
    [quantity, quantity],
    quantity,
    (a: Quantity, b: Quantity) => new Quantity(addQuantities(a.value, b.value)),
  ),
  method(
    'add',
    [quantity, int],
    quantity,
    (a: Quantity, b: bigint) => new Quantity(addQuantities(a.value, newQuantity(b))),
  ),
  method(
    'sub',
    [quantity, quantity],
    quantity,
    (a: Quantity, b: Quantity) => new Quantity(subtractQuantities(a.value, b.value)),
  ),
  method(
    'sub',
    [quantity, int],
    quantity,
    (a: Quantity, b: bigint) => new Quantity(subtractQuantities(a.value, newQuantity(b))),
  ),
];
