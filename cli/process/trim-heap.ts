/** Calls `malloc_trim` of the C library, which returns the pages of malloc's heap that no block in use needs. */
import { cFunctions } from './c-library.ts';

/** `int malloc_trim(size_t pad)` in malloc.h. */
const MALLOC_TRIM = { malloc_trim: { arguments: ['u64'], return: 'i32' } } as const;

/** Looked up by the first call. `undefined` if this C library or Node.js has none. */
let trim: ((pad: bigint) => unknown) | undefined;
let isLookedUp = false;

/** Returns free memory of malloc to the kernel. Does nothing where musl is the C library, or before Node.js 26.1. */
export function trimHeap(): void {
  if (!isLookedUp) trim = cFunctions(MALLOC_TRIM)?.malloc_trim;
  isLookedUp = true;
  trim?.(0n);
}
