/** Runs test files with node:test, and returns the result of each file that the reporter has written. */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { setPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FileResult } from './results-reporter.ts';

/** The folder of the repository. */
export const ROOT = join(import.meta.dirname, '..');

export interface Outcome {
  readonly code: number;
  readonly results: readonly FileResult[];
}

interface RunOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly concurrency: number;
  readonly coverage?: boolean;
  /** Receives the output when the run has ended. By default it is printed while the tests run. */
  readonly onOutput?: (output: string) => void;
  /** Leaves the processor to other tests, whose timing may matter more. */
  readonly isModest?: boolean;
  /** Ends the run. */
  readonly signal?: AbortSignal;
}

/** The folder in which each run with coverage leaves a file with the lines that it has executed. */
export const COVERAGE = join(ROOT, '.cache/coverage');

const coverageArguments = (): string[] => [
  '--experimental-test-coverage',
  '--test-coverage-exclude=test/**',
  '--test-coverage-exclude=scripts/**',
  `--test-reporter=${join(ROOT, 'scripts/coverage-reporter.ts')}`,
  `--test-reporter-destination=${join(COVERAGE, randomUUID())}`,
];

/** Returns the files whose run was ended before they had a result, each as a failure. */
function unfinished(files: readonly string[], results: readonly FileResult[]): FileResult[] {
  const counts = { tests: 1, suites: 0, passed: 0, failed: 0, cancelled: 1, skipped: 0, todo: 0 };
  const finished = new Set(results.map(({ file }) => file));
  return files
    .map((file) => join(ROOT, file))
    .filter((file) => !finished.has(file))
    .map((file) => ({ file, counts, durationMs: 0, failures: [{ name: 'the file', error: 'its run has no result' }] }));
}

/** The niceness of a modest run: it gets a third of the processor time that another process gets. */
const MODEST = 5;

/** Runs the files with `node --test`, and resolves to its exit code and the results of the files. */
export function runTests(
  files: readonly string[],
  { env, concurrency, coverage = false, isModest = false, onOutput, signal }: RunOptions,
): Promise<Outcome> {
  if (files.length === 0) return Promise.resolve({ code: 0, results: [] });
  const list = join(mkdtempSync(join(tmpdir(), `orchlet-test-${process.pid}-`)), 'results');
  const args = [
    '--disable-warning=ExperimentalWarning',
    `--import=${join(ROOT, 'test/property-seed.ts')}`,
    '--test',
    `--test-concurrency=${concurrency}`,
    '--test-timeout=300000',
    '--test-reporter=spec',
    '--test-reporter-destination=stdout',
    `--test-reporter=${join(ROOT, 'scripts/results-reporter.ts')}`,
    `--test-reporter-destination=${list}`,
    ...(coverage ? coverageArguments() : []),
    ...files,
  ];
  return new Promise((resolve) => {
    const child = spawn(join(ROOT, 'bin/node'), args, {
      cwd: ROOT,
      stdio: onOutput === undefined ? 'inherit' : ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
    });
    if (isModest && child.pid !== undefined) setPriority(child.pid, MODEST);
    signal?.addEventListener('abort', () => child.kill('SIGTERM'), { once: true });
    const output: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => output.push(chunk));
    child.on('close', (code) => {
      onOutput?.(Buffer.concat(output).toString());
      const text = existsSync(list) ? readFileSync(list, 'utf8') : '';
      rmSync(join(list, '..'), { recursive: true, force: true });
      const lines = text.split('\n').filter((line) => line !== '');
      const results = lines.map((line) => JSON.parse(line) as FileResult);
      resolve({ code: code ?? 1, results: code === 0 ? results : [...results, ...unfinished(files, results)] });
    });
  });
}
