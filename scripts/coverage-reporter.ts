/**
 * Computes the coverage of `scripts/test --coverage`. Each run of the test runner prints a record for each file that it loaded,
 * in lines of JSON. `mergeCoverage` unites the records of several runs: a line counts as executed if any run executed it. Lines
 * of files that no run loads count as not executed, comments and types included. A file that has types alone is left out,
 * because nothing in it can be executed.
 */
import { globSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join, relative } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const FOLDERS = ['api', 'agent', 'controlplane', 'cli'] as const;

interface FileCoverage {
  readonly path: string;
  readonly totalLineCount: number;
  readonly lines: readonly { readonly line: number; readonly count: number }[];
}

interface CoverageEvent {
  readonly type: string;
  readonly data: { readonly summary?: { readonly files: readonly FileCoverage[] } };
}

/** What one run executed of a file: its path in the repository, its number of lines, and the numbers of executed lines. */
interface FileRecord {
  readonly path: string;
  readonly total: number;
  readonly executed: readonly number[];
}

/** The share of executed lines of a folder, and the lines of its files that were not executed. */
interface MergedCoverage {
  /** A line for each folder, such as `api: 92.6 % of 21257 lines, 3 of 138 files not loaded`. */
  readonly summary: readonly string[];
  /** A line for each file with lines that were not executed, such as `api/meta/quote.ts: 12-14, 30`. */
  readonly missing: readonly string[];
}

const lineCount = (text: string): number => text.split('\n').length - 1;

/** Whether a source has nothing that runs: what is left without its types are comments. */
export function hasTypesAlone(text: string): boolean {
  const code = stripTypeScriptTypes(text).replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*/g, '');
  return /^\s*(export \{\};?\s*)?$/.test(code);
}

/** Writes line numbers in ascending order as ranges: `12-14, 30`. */
function ranges(lines: readonly number[]): string {
  const found: [first: number, last: number][] = [];
  for (const line of lines) {
    const open = found.at(-1);
    if (open?.[1] === line - 1) open[1] = line;
    else found.push([line, line]);
  }
  return found.map(([first, last]) => (first === last ? String(first) : `${first}-${last}`)).join(', ');
}

/** Unites the output of several runs of this reporter. */
export function mergeCoverage(outputs: readonly string[]): MergedCoverage {
  const executed = new Map<string, { readonly total: number; readonly lines: Set<number> }>();
  for (const text of outputs.flatMap((output) => output.split('\n')).filter((line) => line !== '')) {
    const record: FileRecord = JSON.parse(text);
    const known = executed.get(record.path) ?? { total: record.total, lines: new Set() };
    for (const line of record.executed) known.lines.add(line);
    executed.set(record.path, known);
  }
  const missing: string[] = [];
  const summary = FOLDERS.map((folder) => {
    const paths = globSync(`${folder}/**/*.ts`, { cwd: ROOT }).toSorted();
    let [total, covered, unloaded, files] = [0, 0, 0, 0];
    for (const path of paths) {
      const file = executed.get(path);
      const text = file === undefined ? readFileSync(join(ROOT, path), 'utf8') : '';
      if (file === undefined && hasTypesAlone(text)) continue;
      files += 1;
      if (file === undefined) unloaded += 1;
      const lines = file?.total ?? lineCount(text);
      const rest = Array.from({ length: lines }, (_, index) => index + 1).filter((line) => !file?.lines.has(line));
      if (rest.length > 0) missing.push(`${path}: ${ranges(rest)}`);
      total += lines;
      covered += lines - rest.length;
    }
    const share = ((100 * covered) / Math.max(1, total)).toFixed(1);
    return `${folder}: ${share} % of ${total} lines, ${unloaded} of ${files} files not loaded`;
  });
  return { summary, missing };
}

/**
 * Reads what the runs have left in the folder. Returns the summary, and writes the lines that no run has executed to the file
 * `list`, a line for each source.
 */
export function coverageReport(folder: string, list: string): readonly string[] {
  const { summary, missing } = mergeCoverage(
    readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8')),
  );
  writeFileSync(list, missing.map((line) => `${line}\n`).join(''));
  return summary;
}

/** Yields a `FileRecord` as a line of JSON for each file of a run: the numbers of its lines and of those that were executed. */
export default async function* coverageReporter(events: AsyncIterable<CoverageEvent>): AsyncGenerator<string> {
  for await (const { type, data } of events) {
    if (type !== 'test:coverage') continue;
    for (const { path, totalLineCount, lines } of data.summary?.files ?? []) {
      const executed = lines.filter(({ count }) => count > 0).map(({ line }) => line);
      yield `${JSON.stringify({ path: relative(ROOT, path), total: totalLineCount, executed } satisfies FileRecord)}\n`;
    }
  }
}
