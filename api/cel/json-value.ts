/** Converts values of expressions to JSON by the rules of protobuf's well-known types, with the messages of cel-go. */
import { formatDuration, formatTimestamp } from './time.ts';
import {
  adapt,
  CelError,
  type CelValue,
  Double,
  Duration,
  entriesOf,
  OpaqueValue,
  Optional,
  Timestamp,
  typeNameOf,
  Uint,
} from './values.ts';

/**
 * Converts a value to JSON. Throws `CelError` for a value that JSON cannot represent, such as an infinite number or a map whose
 * keys are no texts.
 */
export function toJson(value: CelValue): unknown {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return value;
  if (typeof value === 'bigint') return integerJson(value);
  if (value instanceof Uint) return integerJson(value.value);
  if (value instanceof Double) return finite(value.value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64');
  if (value instanceof Timestamp) return formatTimestamp(value);
  if (value instanceof Duration) return formatDuration(value);
  if (value instanceof Optional) {
    if (value.value === undefined) throw new CelError('optional.none() dereference');
    return toJson(value.value);
  }
  if (Array.isArray(value)) return value.map((item) => toJson(adapt(item)));
  const entries = entriesOf(value);
  if (entries !== undefined) return Object.fromEntries(entries.map(([key, inner]) => [nameOf(key), toJson(inner)]));
  const type = typeNameOf(value);
  throw new CelError(
    value instanceof OpaqueValue
      ? `type conversion error from '${type.slice(type.lastIndexOf('.') + 1)}' to '*structpb.Value'`
      : `type conversion not supported for '${type}'`,
  );
}

function nameOf(key: string | bigint | boolean): string {
  if (typeof key === 'string') return key;
  throw new CelError(
    typeof key === 'boolean'
      ? "type conversion error from bool to 'string'"
      : "unsupported type conversion from 'int' to string",
  );
}

function finite(value: number): number {
  if (Number.isFinite(value)) return value;
  const text = Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf';
  const why = `proto: google.protobuf.Value.number_value: invalid ${text} value`;
  throw new CelError(`json: error calling MarshalJSON for type *structpb.Value: ${why}`);
}

/** Returns an integer as a number, or as a text beyond 2^53 - 1, from where on a double does not represent every integer. */
const integerJson = (value: bigint): string | number => {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
};
