/**
 * Lists the CEL libraries that Kubernetes adds to the language. `kubernetes/` has a file for each. `jsonpatch` is in this file,
 * because it has only one function.
 */
import { fn, type FunctionRow } from './functions.ts';
import { addresses } from './kubernetes/addresses.ts';
import { formats } from './kubernetes/format.ts';
import { quantities } from './kubernetes/quantity.ts';
import { versions } from './kubernetes/semver.ts';
import { urls } from './kubernetes/url.ts';
import { reading } from './reading-cost.ts';
import { string } from './types.ts';

/** The functions that only mutating policies have. */
export const patchFunctions: readonly FunctionRow[] = [
  fn('jsonpatch.escapeKey', [string], string, (key: string) => key.replaceAll('~', '~0').replaceAll('/', '~1')),
];

/** The number of steps that parsing or comparing one of these values costs. */
const STEPS = 4;

/** The overloads of the libraries in `kubernetes/`. */
export const kubernetesFunctions: readonly FunctionRow[] = reading(
  [...quantities, ...addresses, ...urls, ...versions, ...formats],
  STEPS,
);
