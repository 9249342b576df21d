/**
 * The closing lines of `scripts/test`: the slowest files, the files that failed with their errors, and the counts of all runs
 * together. They come last, so that the end of a log shows what happened.
 */
import { relative } from 'node:path';
import type { FileResult, TestCounts } from './results-reporter.ts';
import { type Outcome, ROOT } from './test-run.ts';

/** Returns the outcome of both. A later result of a file replaces the earlier one. */
export function merged(earlier: Outcome, later: Outcome): Outcome {
  const again = new Set(later.results.map(({ file }) => file));
  const kept = earlier.results.filter(({ file }) => !again.has(file));
  return { code: earlier.code === 0 ? later.code : earlier.code, results: [...kept, ...later.results] };
}

/** Returns the paths of files with failed or cancelled tests, relative to the repository. */
export function failedFiles({ results }: Outcome): string[] {
  const failed = results.filter(({ counts, failures }) => counts.failed + counts.cancelled + failures.length > 0);
  return [...new Set(failed.map(({ file }) => relative(ROOT, file)))];
}

const SLOWEST = 10;
const MAX_FAILURES = 12;
const MAX_LINES_OF_AN_ERROR = 10;

function slowest(results: readonly FileResult[]): string[] {
  const slow = results.toSorted((a, b) => b.durationMs - a.durationMs).slice(0, SLOWEST);
  const seconds = (ms: number | undefined): string => (ms === undefined ? '' : (ms / 1000).toFixed(1)).padStart(7);
  return slow.map(
    ({ file, durationMs, processorMs }) => `${seconds(durationMs)} ${seconds(processorMs)}  ${relative(ROOT, file)}`,
  );
}

function failuresOf(results: readonly FileResult[]): string[] {
  const all = results.flatMap(({ file, failures }) => failures.map((failure) => ({ file, ...failure })));
  const shown = all.slice(0, MAX_FAILURES).flatMap(({ file, name, error }) => {
    const lines = error.split('\n').slice(0, MAX_LINES_OF_AN_ERROR);
    return [`✖ ${relative(ROOT, file)}: ${name}`, ...lines.map((line) => `    ${line}`)];
  });
  const more = all.length - MAX_FAILURES;
  return more > 0 ? [...shown, `and ${more} more failures`] : shown;
}

/** Returns the counts in the form in which node:test prints those of one run. */
function countLines(results: readonly FileResult[], durationMs: number): string[] {
  const sum = (name: keyof TestCounts): number => results.reduce((total, { counts }) => total + counts[name], 0);
  const counts = [
    ...[`tests ${sum('tests')}`, `suites ${sum('suites')}`, `pass ${sum('passed')}`, `fail ${sum('failed')}`],
    ...[`cancelled ${sum('cancelled')}`, `skipped ${sum('skipped')}`, `todo ${sum('todo')}`],
    `duration_ms ${Math.round(durationMs)}`,
  ];
  return counts.map((line) => `ℹ ${line}`);
}

/** Returns the lines at the end of a run. `durationMs` is the duration of all files together. */
export function closingLines(outcome: Outcome, flaky: readonly string[], durationMs: number): string[] {
  const failed = failedFiles(outcome);
  return [
    `the slowest of ${outcome.results.length} files (seconds, and of the processor where one ran alone):`,
    ...slowest(outcome.results),
    ...failuresOf(outcome.results),
    ...(failed.length === 0 ? [] : [`${failed.length} files failed: ${failed.join(', ')}`]),
    ...(flaky.length === 0 ? [] : [`${flaky.length} flaky, passed only when repeated: ${flaky.join(', ')}`]),
    ...countLines(outcome.results, durationMs),
  ];
}
