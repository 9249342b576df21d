/** Formats ages as kubectl does: with two units at most, and coarser as they grow (`45s`, `3m20s`, `2d4h`, `3y20d`). */

/**
 * Formats an age in milliseconds. A time less than two seconds in the future is `0s`, because clocks differ. A later one is
 * `<invalid>`.
 */
export function humanDuration(durationMs: number): string {
  const seconds = Math.trunc(durationMs / 1000);
  if (seconds < -1) return '<invalid>';
  if (seconds < 0) return '0s';
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.trunc(seconds / 60);
  if (minutes < 10) return pair(minutes, 'm', seconds % 60, 's');
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.trunc(minutes / 60);
  if (hours < 8) return pair(hours, 'h', minutes % 60, 'm');
  if (hours < 48) return `${hours}h`;
  const days = Math.trunc(hours / 24);
  if (hours < 192) return pair(days, 'd', hours % 24, 'h');
  if (hours < 24 * 365 * 2) return `${days}d`;
  const years = Math.trunc(days / 365);
  if (hours < 24 * 365 * 8) return pair(years, 'y', days % 365, 'd');
  return `${years}y`;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Returns for how many milliseconds at least the text of a growing duration stays the same; 0 for one below zero. */
export function humanDurationLasts(durationMs: number): number {
  if (durationMs < 0) return 0;
  const unit = durationMs < 10 * MINUTE ? SECOND : durationMs < 8 * HOUR ? MINUTE : durationMs < 8 * DAY ? HOUR : DAY;
  return unit - (durationMs % unit);
}

function pair(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large}${largeUnit}` : `${large}${largeUnit}${small}${smallUnit}`;
}
