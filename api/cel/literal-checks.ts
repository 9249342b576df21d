/**
 * Checks calls with a literal argument that can never succeed, so that the error appears at compile time instead of run
 * time.
 */
import { patternOf, timestampOf } from './operators.ts';
import type { Expr } from './parser.ts';
import { parseDuration, parseTimestamp } from './time.ts';
import { CelError } from './values.ts';

const READERS: ReadonlyMap<string, { readonly isMethod: boolean; readonly read: (text: string) => unknown }> = new Map(
  Object.entries({
    duration: { isMethod: false, read: parseDuration },
    timestamp: { isMethod: false, read: parseTimestamp },
    matches: { isMethod: true, read: patternOf },
  }),
);

/** Returns the fault of a call, or `undefined` if it may succeed. */
export function literalFault({
  name,
  target,
  args,
}: Extract<Expr, { kind: 'call' }>): { readonly at: number; readonly message: string } | undefined {
  const reader = READERS.get(name);
  const [arg] = args;
  if (reader === undefined || arg?.kind !== 'literal') return undefined;
  const isSeconds = name === 'timestamp' && typeof arg.value === 'bigint';
  if (typeof arg.value !== 'string' && !isSeconds) return undefined;
  if (args.length !== 1 || (target !== undefined) !== reader.isMethod) return undefined;
  try {
    if (typeof arg.value === 'bigint') timestampOf(arg.value);
    else reader.read(String(arg.value));
    return undefined;
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    return { at: arg.at, message: `invalid ${name} argument` };
  }
}
