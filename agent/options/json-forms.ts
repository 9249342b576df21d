/**
 * Defines the forms of values in the configuration file that differ from those of the flags: taints, headers, feature
 * gates, thresholds and others.
 */
import { formatDuration, parseDuration } from '../../api/component/duration.ts';
import { quoteText } from '../../api/meta/quote.ts';
import type { JsonForm } from './option.ts';

type Members = Readonly<Record<string, unknown>>;

function isMembers(json: unknown): json is Members {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}

/** Reads each item with a function. Returns the first problem. */
function readList<T>(
  json: unknown,
  what: string,
  item: (members: Members) => T | undefined,
): { readonly value: T[] } | { readonly problem: string } {
  if (!Array.isArray(json)) return { problem: `must be a ${what}` };
  const value: T[] = [];
  for (const entry of json) {
    const read = isMembers(entry) ? item(entry) : undefined;
    if (read === undefined) return { problem: `must be a ${what}, but has ${quoteText(entry)}` };
    value.push(read);
  }
  return { value };
}

function onlyKnown(members: Members, names: readonly string[]): boolean {
  return Object.keys(members).every((name) => names.includes(name));
}

/** `map[string]bool` in the file, and `Gate=true` as a flag. */
export const booleans: JsonForm<'map'> = {
  form: 'map of true and false',
  read(json) {
    if (!isMembers(json)) return { problem: 'must be a map of true and false' };
    const value: Record<string, string> = {};
    for (const [name, on] of Object.entries(json)) {
      if (typeof on !== 'boolean') return { problem: `${quoteText(name)} must be true or false` };
      value[name] = String(on);
    }
    return { value };
  },
  write: (value) => Object.fromEntries(Object.entries(value).map(([name, on]) => [name, /^(1|t|true)$/i.test(on)])),
};

/** `memory.available: 100Mi` in the file, and `memory.available<100Mi` as a flag. */
export const thresholds: JsonForm<'map'> = {
  form: 'map of signals to thresholds',
  read(json) {
    if (!isMembers(json)) return { problem: 'must be a map of signals to thresholds' };
    const value: Record<string, string> = {};
    for (const [signal, threshold] of Object.entries(json)) {
      if (typeof threshold !== 'string')
        return { problem: `${quoteText(signal)} must be a string such as "100Mi" or "10%"` };
      value[signal] = `<${threshold}`;
    }
    return { value };
  },
  write: (value) => plainThresholds(value),
};

/** Removes the `<` of the flag's format. */
export function plainThresholds(value: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(value).map(([signal, threshold]) => [signal, threshold.replace(/^</, '')]));
}

/** A list of taints in the file, and `key=value:effect` as a flag. */
export const taintList: JsonForm<'list'> = {
  form: 'list of taints (key, value, effect)',
  read: (json) =>
    readList(json, 'list of taints', (members) => {
      const { key, value = '', effect } = members;
      if (typeof key !== 'string' || typeof value !== 'string' || typeof effect !== 'string') return undefined;
      return onlyKnown(members, ['key', 'value', 'effect', 'timeAdded'])
        ? `${key}${value === '' ? '' : `=${value}`}:${effect}`
        : undefined;
    }),
  write: (value) => value.map((text) => parseTaint(text)),
};

/** Parses `key=value:effect` or `key:effect`. */
export function parseTaint(text: string): { readonly key: string; readonly value?: string; readonly effect: string } {
  const [pair = '', effect = ''] = text.split(':');
  const [key = '', value] = pair.split('=');
  return { key, ...(value === undefined || value === '' ? {} : { value }), effect };
}

/** `map[string][]string` in the file, and `name:value` as a flag. */
export const headers: JsonForm<'list'> = {
  form: 'map of names to lists of values',
  read(json) {
    if (!isMembers(json)) return { problem: 'must be a map of names to lists of values' };
    const value: string[] = [];
    for (const [name, values] of Object.entries(json)) {
      if (!Array.isArray(values) || values.some((text) => typeof text !== 'string'))
        return { problem: `${quoteText(name)} must be a list of strings` };
      for (const text of values) value.push(`${name}:${text}`);
    }
    return { value };
  },
  write: (value) => {
    const names: Record<string, string[]> = {};
    for (const header of value) {
      const { name, text } = splitHeader(header);
      names[name] = [...(names[name] ?? []), text];
    }
    return names;
  },
};

/** Splits `Name: text` at the first colon and trims both parts. */
export function splitHeader(header: string): { readonly name: string; readonly text: string } {
  const colon = header.indexOf(':');
  return { name: header.slice(0, colon).trim(), text: header.slice(colon + 1).trim() };
}

/** A list of whole numbers in the file, a list of texts on the command line. */
export const numbers: JsonForm<'list'> = {
  form: 'list of numbers',
  read: (json) =>
    Array.isArray(json) && json.every((item) => Number.isInteger(item))
      ? { value: json.map(String) }
      : { problem: 'must be a list of whole numbers' },
  write: (value) => value.map(Number),
};

/** `[{priority, shutdownGracePeriodSeconds}]` in the file, and a map from the first to the second here. */
export const gracePeriods: JsonForm<'map'> = {
  form: 'list of priority and shutdownGracePeriodSeconds',
  read(json) {
    const read = readList(json, 'list of priority and shutdownGracePeriodSeconds', (members) => {
      const { priority = 0, shutdownGracePeriodSeconds = 0 } = members;
      const isRight = Number.isInteger(priority) && Number.isInteger(shutdownGracePeriodSeconds);
      return isRight && onlyKnown(members, ['priority', 'shutdownGracePeriodSeconds'])
        ? ([String(priority), String(shutdownGracePeriodSeconds)] as const)
        : undefined;
    });
    return 'problem' in read ? read : { value: Object.fromEntries(read.value) };
  },
  write: (value) =>
    Object.entries(value).map(([priority, seconds]) => ({
      priority: Number(priority),
      shutdownGracePeriodSeconds: Number(seconds),
    })),
};

/** `[{numaNode, limits}]` in the file, and `0:memory=1Gi,hugepages-2Mi=64Mi;1:…` as a flag. */
export const memoryReservations: JsonForm<'string'> = {
  form: 'list of numaNode and limits',
  read(json) {
    const read = readList(json, 'list of numaNode and limits', (members) => {
      const { numaNode = 0, limits } = members;
      if (!Number.isInteger(numaNode) || !isMembers(limits) || !onlyKnown(members, ['numaNode', 'limits']))
        return undefined;
      return `${String(numaNode)}:${Object.entries(limits)
        .map(([name, amount]) => `${name}=${String(amount)}`)
        .join(',')}`;
    });
    return 'problem' in read ? read : { value: read.value.join(';') };
  },
  write: (value) =>
    value.split(';').map((node) => ({
      numaNode: Number(node.slice(0, node.indexOf(':'))),
      limits: Object.fromEntries(
        node
          .slice(node.indexOf(':') + 1)
          .split(',')
          .map((pair) => pair.split('=', 2) as [string, string]),
      ),
    })),
};

/** `[{filePattern, verbosity}]` in the file, and `pattern=N,…` as a flag. */
export const filePatterns: JsonForm<'map'> = {
  form: 'list of filePattern and verbosity',
  read(json) {
    const read = readList(json, 'list of filePattern and verbosity', (members) => {
      const { filePattern, verbosity = 0 } = members;
      const isRight = typeof filePattern === 'string' && Number.isInteger(verbosity);
      return isRight && onlyKnown(members, ['filePattern', 'verbosity'])
        ? ([filePattern, String(verbosity)] as const)
        : undefined;
    });
    return 'problem' in read ? read : { value: Object.fromEntries(read.value) };
  },
  write: (value) =>
    Object.entries(value).map(([filePattern, verbosity]) => ({ filePattern, verbosity: Number(verbosity) })),
};

/** A duration, or a number of nanoseconds, which is the former format of the field. */
export const durationOrNanoseconds: JsonForm<'duration'> = {
  form: 'duration',
  read(json) {
    const value = typeof json === 'number' ? json / 1e6 : typeof json === 'string' ? parseDuration(json) : undefined;
    return value === undefined ? { problem: 'must be a duration such as "5s"' } : { value };
  },
  write: formatDuration,
};
