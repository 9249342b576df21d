/** Parses and formats Go's durations (`1h2m3.5s`, `300ms`) as milliseconds. The grammar is that of Go's time.ParseDuration. */

const UNIT_MS: ReadonlyMap<string, number> = new Map(
  Object.entries({
    ns: 1e-6,
    us: 1e-3,
    µs: 1e-3,
    μs: 1e-3,
    ms: 1,
    s: 1000,
    m: 60_000,
    h: 3_600_000,
  }),
);

const PART = /^(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)/;

/** Returns milliseconds, or `undefined` if the text is not a duration. */
export function parseDuration(text: string): number | undefined {
  const negative = text.startsWith('-');
  let unread = negative || text.startsWith('+') ? text.slice(1) : text;
  if (unread === '0') return 0;
  if (unread === '') return undefined;
  let total = 0;
  while (unread !== '') {
    const match = PART.exec(unread);
    const [whole, amount, unit] = match ?? [];
    if (whole === undefined || amount === undefined || unit === undefined) return undefined;
    total += Number(amount) * (UNIT_MS.get(unit) ?? 0);
    unread = unread.slice(whole.length);
  }
  return negative ? -total : total;
}

/** Formats a duration as Go prints it: `1h0m0s`, `1m30s`, `250ms`, `0s`. */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s';
  const sign = ms < 0 ? '-' : '';
  const size = Math.abs(ms);
  if (size < 1e-3) return `${sign}${Math.round(size * 1e6)}ns`;
  if (size < 1) return `${sign}${trim(size * 1e3)}µs`;
  if (size < 1000) return `${sign}${trim(size)}ms`;
  const hours = Math.floor(size / 3_600_000);
  const minutes = Math.floor((size % 3_600_000) / 60_000);
  const seconds = trim((size % 60_000) / 1000);
  if (hours > 0) return `${sign}${hours}h${minutes}m${seconds}s`;
  return minutes > 0 ? `${sign}${minutes}m${seconds}s` : `${sign}${seconds}s`;
}

function trim(value: number): string {
  return String(Number(value.toFixed(9)));
}
