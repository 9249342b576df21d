/**
 * A reporter of node:test for programs: prints one JSON line for each test file, a `FileResult`. `scripts/test` reads these
 * lines to repeat files that failed and to write its closing lines.
 */

/** The counts of node:test, by its names. */
export interface TestCounts {
  readonly tests: number;
  readonly suites: number;
  readonly passed: number;
  readonly failed: number;
  readonly cancelled: number;
  readonly skipped: number;
  readonly todo: number;
}

interface TestFailure {
  readonly name: string;
  /** The stack of the error, or what node:test says about the failure. */
  readonly error: string;
}

export interface FileResult {
  /** The path of the test file, also if a suite in another file failed. */
  readonly file: string;
  readonly counts: TestCounts;
  readonly durationMs: number;
  /** The processor time of the file and the programs that it started, except daemons; known if the file ran alone. */
  readonly processorMs?: number;
  readonly failures: readonly TestFailure[];
}

interface TestEvent {
  readonly type: string;
  readonly data: {
    readonly name?: string;
    readonly file?: string;
    /** The file that was run, if the test is in a file that it imports. */
    readonly entryFile?: string;
    readonly counts?: TestCounts;
    readonly duration_ms?: number;
    readonly details?: {
      readonly error?: { readonly failureType?: string; readonly cause?: unknown; readonly message?: string };
    };
  };
}

const ONE_FAILED: TestCounts = { tests: 1, suites: 0, passed: 0, failed: 1, cancelled: 0, skipped: 0, todo: 0 };

function textOf(error: { readonly cause?: unknown; readonly message?: string } | undefined): string {
  const cause = error?.cause;
  if (cause instanceof Error) return cause.stack ?? cause.message;
  return typeof cause === 'string' ? cause : (error?.message ?? 'no error was reported');
}

/** Yields a `FileResult` as a line of JSON for each test file. `node --test-reporter` calls it. */
export default async function* results(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const failures = new Map<string, TestFailure[]>();
  const line = (result: FileResult): string => `${JSON.stringify(result)}\n`;
  for await (const { type, data } of source) {
    const file = data.entryFile ?? data.file;
    if (file === undefined) continue;
    const error = data.details?.error;
    // A suite fails with each of its tests, and says nothing more.
    if (type === 'test:fail' && error?.failureType !== 'subtestsFailed')
      failures.set(file, [...(failures.get(file) ?? []), { name: data.name ?? '', error: textOf(error) }]);
    if (type !== 'test:summary' || data.counts === undefined) continue;
    const { counts, duration_ms: durationMs = 0 } = data;
    yield line({ file, counts, durationMs, failures: failures.get(file) ?? [] });
    failures.delete(file);
  }
  // A file that could not be loaded, or that took too long, has no summary.
  for (const [file, left] of failures) yield line({ file, counts: ONE_FAILED, durationMs: 0, failures: left });
}
