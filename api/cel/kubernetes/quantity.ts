/** Implements the CEL library of quantities: `quantity('1Gi').isLessThan(quantity('2Gi'))`. */
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

const NANO = 1_000_000_000n;

class Quantity extends OpaqueValue {
  readonly typeName = 'kubernetes.Quantity';
  readonly value: QuantityValue;
  /** Whether kube-apiserver keeps the value as an integer, which it does not for texts such as `1.0` and `2000m`. */
  readonly isWhole: boolean;
  constructor(value: QuantityValue, isWhole: boolean) {
    super();
    this.value = value;
    this.isWhole = isWhole;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Quantity && compareQuantities(this.value, other.value) === 0;
  }
}

const quantity = opaque('kubernetes.Quantity');

/** Wraps a quantity as a CEL value. */
export const quantityValue = (value: QuantityValue): OpaqueValue => new Quantity(value, value.nano % NANO === 0n);

function quantityOf(text: string): QuantityValue | undefined {
  try {
    return parseQuantity(text);
  } catch (error) {
    if (error instanceof QuantityError) return undefined;
    throw error;
  }
}

const DECIMAL_EXPONENTS = new Map(
  Object.entries({ n: -9, u: -6, m: -3, '': 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 }),
);

const BINARY_DIGITS = new Map(Object.entries({ Ki: 3, Mi: 6, Gi: 9, Ti: 12, Pi: 15, Ei: 18 }));
const MAX_DECIMAL_DIGITS = 18;
const MAX_BINARY_DIGITS = 14;

/**
 * Whether kube-apiserver parses the text to an integer: its digits after the point are no more than the suffix makes up for (a
 * binary suffix makes up for none), and it has few enough digits to be an integer of 64 bits whatever they are.
 */
function isWholeText(text: string): boolean {
  const [, digits = '', decimals = '', suffix = ''] = /^[+-]?0*(\d*)(?:\.(\d*))?(.*)$/s.exec(text) ?? [];
  const length = digits.length || 1;
  const binary = BINARY_DIGITS.get(suffix);
  if (binary !== undefined) return decimals === '' && length + binary <= MAX_BINARY_DIGITS;
  const exponent = /^[eE]([+-]?\d+)$/.exec(suffix)?.[1] ?? DECIMAL_EXPONENTS.get(suffix) ?? 0;
  return length + decimals.length <= MAX_DECIMAL_DIGITS && decimals.length <= Number(exponent);
}

/** Returns the integer, or `undefined` for a value that is none, or that has more than 64 bits. */
function wholeOf({ value, isWhole }: Quantity): bigint | undefined {
  if (!isWhole || value.nano % NANO !== 0n) return undefined;
  const whole = value.nano / NANO;
  return BigInt.asIntN(64, whole) === whole ? whole : undefined;
}

const combined = (a: Quantity, b: Quantity, value: QuantityValue): Quantity =>
  new Quantity(value, a.isWhole && b.isWhole);

const order = (holds: (difference: number) => boolean) => (a: Quantity, b: Quantity) =>
  holds(compareQuantities(a.value, b.value));

/** The overloads of the library `quantity`. */
export const quantities: readonly FunctionRow[] = [
  fn('quantity', [string], quantity, (text: string) => {
    const value = quantityOf(text);
    if (value === undefined) {
      throw new CelError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
    }
    return new Quantity(value, isWholeText(text));
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
  method('add', [quantity, quantity], quantity, (a: Quantity, b: Quantity) =>
    combined(a, b, addQuantities(a.value, b.value)),
  ),
  method(
    'add',
    [quantity, int],
    quantity,
    (a: Quantity, b: bigint) => new Quantity(addQuantities(a.value, newQuantity(b)), a.isWhole),
  ),
  method('sub', [quantity, quantity], quantity, (a: Quantity, b: Quantity) =>
    combined(a, b, subtractQuantities(a.value, b.value)),
  ),
  method(
    'sub',
    [quantity, int],
    quantity,
    (a: Quantity, b: bigint) => new Quantity(subtractQuantities(a.value, newQuantity(b)), a.isWhole),
  ),
];
