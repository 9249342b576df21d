/** Parses ranges of ports, such as the value of `--service-node-port-range`. */

/** A range of ports. Both ends belong to it. */
interface PortRange {
  readonly from: number;
  readonly to: number;
}

/**
 * Parses `30000-32767`, `30000+2767`, or a single port such as `30000`. Returns `undefined` for other texts, ports out of
 * bounds and empty ranges.
 */
export function parsePortRange(text: string): PortRange | undefined {
  const [, first, separator, second] = /^(\d+)(?:([-+])(\d+))?$/.exec(text) ?? [];
  if (first === undefined) return undefined;
  const from = Number(first);
  const to = separator === '+' ? from + Number(second) : Number(second ?? first);
  return from >= 1 && to <= 65_535 && from <= to ? { from, to } : undefined;
}

/** Checks a flag. Returns the fault as text, or `undefined`. */
export function checkPortRange(text: string): string | undefined {
  return parsePortRange(text) === undefined ? 'must be a range of ports such as 30000-32767' : undefined;
}
