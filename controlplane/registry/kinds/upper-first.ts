/** The order in which places of a range (addresses, ports) are tried. */

/** All indexes from a random one on. The lower part comes last: it is for what is asked for by name. */
export function* upperFirst(size: number, reserved: number): Generator<number> {
  const upper = size - reserved;
  const start = Math.floor(Math.random() * upper);
  for (let step = 0; step < upper; step++) yield reserved + ((start + step) % upper);
  for (let index = 0; index < reserved; index++) yield index;
}
