/** Parses and formats sets of CPUs in the kernel's list format: `0-3,7`. Pure. */
import { quoteText } from '../../../api/meta/quote.ts';

/** The ids of logical CPUs. */
export type CpuSet = ReadonlySet<number>;

/** The empty set, which is shared. */
export const NO_CPUS: CpuSet = new Set();

/** Parses a CPU list such as `0-3,8`. Throws if the text is not a CPU list. */
export function parseCpuSet(text: string): CpuSet {
  const cpus = new Set<number>();
  for (const range of text.trim().split(',')) {
    if (range === '') continue;
    const match = /^(\d+)(?:-(\d+))?$/.exec(range.trim());
    if (match === null) throw new Error(`${quoteText(text)} is not a list of CPUs such as 0-3,7`);
    const first = Number(match[1]);
    const last = match[2] === undefined ? first : Number(match[2]);
    if (last < first) throw new Error(`${quoteText(text)} has a range that ends before it begins`);
    for (let cpu = first; cpu <= last; cpu++) cpus.add(cpu);
  }
  return cpus;
}

/** Returns the CPU numbers in ascending order. */
export function sortedCpus(cpus: CpuSet): number[] {
  return [...cpus].sort((left, right) => left - right);
}

/** Formats the CPUs as a list such as `0-3,8`, and the empty set as an empty string. */
export function formatCpuSet(cpus: CpuSet): string {
  const ranges: string[] = [];
  const sorted = sortedCpus(cpus);
  for (let at = 0; at < sorted.length;) {
    const first = sorted[at] ?? 0;
    let last = first;
    while (sorted[at + 1] === last + 1) last = sorted[++at] ?? 0;
    ranges.push(first === last ? String(first) : `${first}-${last}`);
    at++;
  }
  return ranges.join(',');
}

/** Whether both sets have the same CPUs. */
export function sameCpus(left: CpuSet, right: CpuSet): boolean {
  return left.size === right.size && left.isSubsetOf(right);
}
