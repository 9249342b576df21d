/** Calls functions of the C library for which Node.js has no function of its own. */
import type { FunctionDefinitions, WrappedFunctionsFromDefinitions } from 'node:ffi';

/**
 * Returns functions of the running program and the libraries that it has loaded. Returns `undefined` if one of them is missing,
 * or before Node.js 26.1.
 */
export function cFunctions<const T extends FunctionDefinitions>(
  definitions: T,
): WrappedFunctionsFromDefinitions<T> | undefined {
  try {
    // A library of `null` is the running program with its libraries.
    return process.getBuiltinModule('node:ffi')?.dlopen(null, definitions).functions;
  } catch {
    return undefined;
  }
}
