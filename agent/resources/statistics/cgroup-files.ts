/** Parses the content of cgroup files and related files in /proc. */

/** Parses `key value` lines (`memory.stat`, `cpu.stat`, `memory.events`). */
export function parseFlatKeyed(text: string): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const line of text.split('\n')) {
    const space = line.indexOf(' ');
    if (space > 0) found.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return found;
}

/**
 * Parses a limit. Returns `undefined` for an absent or empty file, for `max`, for a negative number, and for the value that
 * means no limit in cgroup v1 (the largest multiple of a page).
 */
export function parseLimit(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const trimmed = text.trim();
  if (trimmed === '' || trimmed === 'max') return undefined;
  const value = Number(trimmed);
  return !Number.isFinite(value) || value < 0 || value >= 2 ** 62 ? undefined : value;
}

/** Parses a file with one number. An absent file, and the text `max`, count as 0. */
export function parseCount(text: string | undefined): number {
  const value = Number((text ?? '').trim());
  return Number.isFinite(value) ? value : 0;
}

interface PressureLine {
  readonly avg10: number;
  readonly avg60: number;
  readonly avg300: number;
  /** Nanoseconds, the unit of the Summary API. */
  readonly total: number;
}

/** Pressure stall information: the share of time in which some or all tasks waited. */
export interface Pressure {
  readonly some: PressureLine;
  readonly full: PressureLine;
}

const NO_STALL: PressureLine = { avg10: 0, avg60: 0, avg300: 0, total: 0 };
/** The values of a kernel without pressure stall information. */
export const NO_PRESSURE: Pressure = { some: NO_STALL, full: NO_STALL };

/** Parses `*.pressure` of cgroup v2 and `/proc/pressure/*`. */
export function parsePressure(text: string): Pressure {
  const line = (name: string): PressureLine => {
    const found = new RegExp(`^${name} avg10=([\\d.]+) avg60=([\\d.]+) avg300=([\\d.]+) total=(\\d+)`, 'm').exec(text);
    if (found === null) return NO_STALL;
    return {
      avg10: Number(found[1]),
      avg60: Number(found[2]),
      avg300: Number(found[3]),
      total: Number(found[4]) * 1000,
    };
  };
  return { some: line('some'), full: line('full') };
}

/** The counters of one network interface since it was created. */
export interface InterfaceCounters {
  readonly name: string;
  readonly rxBytes: number;
  readonly rxPackets: number;
  readonly rxErrors: number;
  readonly rxDropped: number;
  readonly txBytes: number;
  readonly txPackets: number;
  readonly txErrors: number;
  readonly txDropped: number;
}

/** Parses `/proc/<pid>/net/dev`. Leaves out loopback and the ends of the interfaces of containers on the host (`veth*`). */
export function parseNetDev(text: string): readonly InterfaceCounters[] {
  return text
    .split('\n')
    .slice(2)
    .flatMap((line) => {
      const colon = line.indexOf(':');
      if (colon === -1) return [];
      const name = line.slice(0, colon).trim();
      const [
        rxBytes = 0,
        rxPackets = 0,
        rxErrors = 0,
        rxDropped = 0,
        ,
        ,
        ,
        ,
        txBytes = 0,
        txPackets = 0,
        txErrors = 0,
        txDropped = 0,
      ] = line
        .slice(colon + 1)
        .trim()
        .split(/\s+/)
        .map(Number);
      if (name === 'lo' || name.startsWith('veth')) return [];
      return [{ name, rxBytes, rxPackets, rxErrors, rxDropped, txBytes, txPackets, txErrors, txDropped }];
    });
}

/** The I/O of one device (`8:0`), from `blkio.throttle.io_service_bytes` and `_serviced`, or from `io.stat`. */
export interface DeviceIo {
  readonly device: string;
  readonly readBytes: number;
  readonly writeBytes: number;
  readonly reads: number;
  readonly writes: number;
}

/** Parses `io.stat` of cgroup v2, with one entry for each device (`major:minor`). */
export function parseIoStat(text: string): readonly DeviceIo[] {
  return text.split('\n').flatMap((line) => {
    const [device = '', ...pairs] = line.trim().split(' ');
    if (device === '') return [];
    const values = new Map(
      pairs.map((pair) => [pair.slice(0, pair.indexOf('=')), Number(pair.slice(pair.indexOf('=') + 1))] as const),
    );
    return [
      {
        device,
        readBytes: values.get('rbytes') ?? 0,
        writeBytes: values.get('wbytes') ?? 0,
        reads: values.get('rios') ?? 0,
        writes: values.get('wios') ?? 0,
      },
    ];
  });
}

/** Parses the `8:0 Read 4096` lines of two blkio files. */
export function parseBlkio(bytes: string, operations: string): readonly DeviceIo[] {
  const read = (text: string): Map<string, { read: number; write: number }> => {
    const found = new Map<string, { read: number; write: number }>();
    for (const line of text.split('\n')) {
      const [device = '', kind = '', value = '0'] = line.trim().split(' ');
      if (!device.includes(':') || (kind !== 'Read' && kind !== 'Write')) continue;
      const entry = found.get(device) ?? { read: 0, write: 0 };
      entry[kind === 'Read' ? 'read' : 'write'] = Number(value);
      found.set(device, entry);
    }
    return found;
  };
  const [amounts, counts] = [read(bytes), read(operations)];
  return [...amounts].map(([device, amount]) => ({
    device,
    readBytes: amount.read,
    writeBytes: amount.write,
    reads: counts.get(device)?.read ?? 0,
    writes: counts.get(device)?.write ?? 0,
  }));
}
