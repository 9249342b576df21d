/** Defines the order in which the allocators try the addresses or ports of a range. */

/** Yields all indexes from a random one on. The lowest `reserved` indexes come last, because clients request them by number. */
export function* upperFirst(size: number, reserved: number): Generator<number> {
  const upper = size - reserved;
  const start = Math.floor(Math.random() * upper);
  for (let step = 0; step < upper; step++) yield reserved + ((start + step) % upper);
  for (let index = 0; index < reserved; index++) yield index;
}
