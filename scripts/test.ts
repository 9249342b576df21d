/**
 * `scripts/test` runs types, format and lint, then every test file. The files with property tests run a second time with a
 * random seed. Integration tests run in several lanes, each with its own network, Docker daemon and containerd, on images that
 * are built here. A file that fails runs again alone; if it passes then, the last lines of the output count and name it as
 * flaky. The last lines also name each file that failed, with its errors.
 */
import { spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs, styleText } from 'node:util';
import { coverageReport } from './coverage-reporter.ts';
import { ensureImages, ensureTestTools, installRuntimes } from './container-runtime.ts';
import { Lane, runLane, usesGivenRuntime } from './test-lane.ts';
import { closingLines, failedFiles, merged } from './test-report.ts';
import { COVERAGE, type Outcome, ROOT, runTests } from './test-run.ts';

const USAGE = `usage: scripts/test [--unit] [--no-checks] [--coverage] [--lanes N] [FILE…]

Runs the checks (types, format, lint) and the tests. Integration tests run in lanes, each in a network
of its own with a Docker daemon and a containerd; or one at a time on those whose sockets
ORCHLET_TEST_DOCKER_SOCKET (Docker, Podman) and ORCHLET_TEST_CONTAINERD_SOCKET (any CRI runtime) name: a
private one of another version is started by PATH=…/bin:$PATH scripts/containerd-private start DIR.

  --unit       leave out the integration tests
  --no-checks  leave out types, format and lint
  --coverage   print the share of lines of each folder that all of these tests together execute, and
               write the other lines to .cache/uncovered-lines
  --lanes N    run N integration tests at a time (3)
  FILE…        these test files only
`;

const COMPILE_CACHE = { NODE_COMPILE_CACHE: join(ROOT, '.cache/compile') };

function report(text: string): void {
  console.log(styleText('bold', `==> ${text}`));
}

function check(name: string, command: string, args: readonly string[]): boolean {
  report(name);
  return spawnSync(command, args, { cwd: ROOT, stdio: 'inherit' }).status === 0;
}

function checks(): boolean {
  const tool = (name: string): string => join(ROOT, 'node_modules/.bin', name);
  const node = join(ROOT, 'bin/node');
  mkdirSync(join(ROOT, '.cache'), { recursive: true });
  const results = [
    check('types', node, [join(ROOT, 'node_modules/typescript/bin/tsc'), '--noEmit', '-p', '.']),
    check('format', node, [tool('oxfmt'), '--check', '.']),
    check('lint', node, [tool('oxlint'), '--quiet']),
  ];
  return results.every(Boolean);
}

/** How often files that failed run again. */
const MAX_REPEATS = 2;
/** The maximum number of failed files that are repeated. If more fail, the tests are not flaky, but there is a defect. */
const MAX_REPEATED_FILES = 5;

/** Returns the test files whose properties are checked with random values. */
function propertyTests(files: readonly string[]): string[] {
  return files.filter((file) => readFileSync(join(ROOT, file), 'utf8').includes("from 'fast-check'"));
}

/**
 * The integration tests that take the longest, which start first, so that no lane waits for one of them at the end. The closing
 * lines of a run name the slowest.
 */
const LONGEST = [
  'pod-network',
  'power',
  'eviction',
  'several-control-planes',
  'pod-parity-docker',
  'network-doctor',
  'authority-rotation',
  'etcd-control-planes',
  'cluster-init',
  'hostile-containers',
  'pod-ends-containerd',
  'agent-soak',
  'network-policies',
];

function longestFirst(files: readonly string[]): string[] {
  const isLong = (file: string): boolean => LONGEST.includes(basename(file, '.test.ts'));
  const place = (file: string): number => LONGEST.indexOf(basename(file, '.test.ts'));
  const long = files.filter(isLong).toSorted((a, b) => place(a) - place(b));
  return [...long, ...files.filter((file) => !isLong(file))];
}

/** The lanes of the integration tests, and where they have their files. */
interface Lanes {
  readonly started: Promise<readonly Lane[]>;
  stop(): Promise<void>;
}

function startLanes(count: number, directory: string): Lanes {
  report('images and container runtimes for the integration tests');
  const archive = ensureImages(join(directory, 'images'), report);
  installRuntimes(report);
  ensureTestTools(report);
  const env = { ...COMPILE_CACHE, ORCHLET_TEST_IMAGES: archive, ORCHLET_TEST_REGISTRY: 'docker-registry' };
  const starting = Array.from({ length: count }, (_, number) => Lane.start(join(directory, `${number}`), archive, env));
  const started = Promise.all(starting);
  // Whoever waits for the lanes gets the error.
  started.catch(() => undefined);
  return {
    started,
    async stop() {
      for (const lane of await Promise.allSettled(starting)) if (lane.status === 'fulfilled') await lane.value.stop();
    },
  };
}

/** Counts and coverage of a single file. Those of all files together follow at the end. */
const OF_ONE_FILE =
  /^ℹ (?:(?:tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) .*|start of coverage report\n(?:ℹ .*\n)*?ℹ end of coverage report)\n/gm;

/** Runs the files one at a time in each lane, and prints the output of each file when it has finished. */
async function runInLanes(
  lanes: readonly Lane[],
  files: readonly string[],
  { coverage = false }: { readonly coverage?: boolean } = {},
): Promise<Outcome> {
  const left = longestFirst(files);
  let all: Outcome = { code: 0, results: [] };
  const work = async (lane: Lane): Promise<void> => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const { outcome, output } = await lane.run({ file: next, coverage });
      process.stdout.write(output.replaceAll(OF_ONE_FILE, ''));
      all = merged(all, outcome);
    }
  };
  await Promise.all(lanes.map(work));
  return all;
}

/** Runs failed files again, alone, if they are few. Those that pass then are flaky. */
async function repeatFailed(
  first: Outcome,
  run: (files: readonly string[]) => Promise<Outcome>,
): Promise<{ readonly outcome: Outcome; readonly flaky: readonly string[] }> {
  let outcome = first;
  let repeated: readonly string[] = [];
  for (let round = 0; round < MAX_REPEATS; round += 1) {
    const files = failedFiles(outcome);
    if (files.length === 0 || files.length > MAX_REPEATED_FILES) break;
    report(`once more, one at a time: ${files.join(', ')}`);
    const again = await run(files);
    outcome = { code: again.code, results: merged(outcome, again).results };
    repeated = [...new Set([...repeated, ...files])];
  }
  const failed = new Set(failedFiles(outcome));
  return { outcome, flaky: repeated.filter((file) => !failed.has(file)) };
}

/** Test files that run together. */
interface Part {
  readonly name: string;
  readonly files: readonly string[];
  readonly inLanes: boolean;
  readonly run: (files: readonly string[]) => Promise<Outcome>;
  /** Runs failed files, alone. */
  readonly repeat: (files: readonly string[]) => Promise<Outcome>;
}

function unitPart(name: string, files: readonly string[], env: NodeJS.ProcessEnv, coverage = false): Part {
  return {
    name,
    files,
    inLanes: false,
    run: (all) => runTests(all, { env, coverage, concurrency: Math.max(2, availableParallelism()), isModest: true }),
    repeat: (failed) => runTests(failed, { env, concurrency: 1 }),
  };
}

function partsOf(files: readonly string[], lanes: Lanes | undefined, coverage: boolean): Part[] {
  const integration = files.filter((file) => file.includes('test/integration/'));
  const units = files.filter((file) => !integration.includes(file));
  const properties = propertyTests(units);
  const seed = { ORCHLET_TEST_SEED: String(randomInt(2 ** 31 - 1)) };
  const parts = [
    unitPart('test files', units, COMPILE_CACHE, coverage),
    unitPart(`files with property tests once more, ORCHLET_TEST_SEED=${seed.ORCHLET_TEST_SEED}`, properties, {
      ...COMPILE_CACHE,
      ...seed,
    }),
  ];
  if (lanes !== undefined)
    parts.push({
      name: 'files with integration tests',
      files: integration,
      inLanes: true,
      run: async (all) => runInLanes(await lanes.started, all, { coverage }),
      repeat: async (failed) => runInLanes((await lanes.started).slice(0, 1), failed),
    });
  return parts.filter((part) => part.files.length > 0);
}

async function runPart({ name, files, run }: Part): Promise<Outcome> {
  report(`${files.length} ${name}`);
  return run(files);
}

/**
 * Runs all parts. Integration tests wait most of the time, so unit tests run beside them. Repeated files run when the others
 * have finished.
 */
async function runAll(parts: readonly Part[]): Promise<{ readonly outcome: Outcome; readonly flaky: string[] }> {
  const firsts = new Map<Part, Outcome>();
  const inTurn = async (some: readonly Part[]): Promise<void> => {
    for (const part of some) firsts.set(part, await runPart(part));
  };
  await Promise.all([inTurn(parts.filter(({ inLanes }) => inLanes)), inTurn(parts.filter(({ inLanes }) => !inLanes))]);
  const all: Outcome[] = [];
  const flaky: string[] = [];
  for (const [part, first] of firsts) {
    const repeated = await repeatFailed(first, part.repeat);
    all.push(repeated.outcome);
    flaky.push(...repeated.flaky);
  }
  const code = all.find((outcome) => outcome.code !== 0)?.code ?? 0;
  return { outcome: { code, results: all.flatMap(({ results }) => results) }, flaky };
}

interface Choice {
  readonly unit: boolean;
  readonly checks: boolean;
  readonly coverage: boolean;
  readonly lanes: number;
  readonly files: readonly string[];
}

async function test({ unit, checks: withChecks, coverage, lanes: count, files }: Choice): Promise<number> {
  const started = performance.now();
  const checked = !withChecks || checks();
  const all = files.length > 0 ? files : globSync('test/**/*.test.ts', { cwd: ROOT }).sort();
  const integration = all.filter((file) => file.includes('test/integration/'));
  const chosen = unit ? all.filter((file) => !integration.includes(file)) : all;
  const directory = mkdtempSync(join(tmpdir(), `orcl-${process.pid}-`));
  process.on('exit', () => rmSync(directory, { recursive: true, force: true }));
  let lanes: Lanes | undefined;
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.on(signal, () => void (lanes?.stop() ?? Promise.resolve()).finally(() => process.exit(130)));
  try {
    const most = usesGivenRuntime() ? 1 : Math.min(count, integration.length);
    if (!unit && most > 0) lanes = startLanes(most, directory);
    if (coverage) {
      rmSync(COVERAGE, { recursive: true, force: true });
      mkdirSync(COVERAGE, { recursive: true });
    }
    const { outcome, flaky } = await runAll(partsOf(chosen, lanes, coverage));
    if (coverage) {
      const list = join(ROOT, '.cache/uncovered-lines');
      console.log(coverageReport(COVERAGE, list).join('\n'));
      report(`${list} has the lines that were not executed`);
    }
    const durationMs = performance.now() - started;
    for (const line of closingLines(outcome, flaky, durationMs)) console.log(line);
    const seconds = (durationMs / 1000).toFixed(1);
    if (outcome.code === 0 && checked) {
      report(`all passed in ${seconds} s, ${flaky.length} flaky`);
      return 0;
    }
    report(`${checked ? 'tests' : 'checks'} failed after ${seconds} s`);
    return 1;
  } finally {
    await lanes?.stop();
  }
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      unit: { type: 'boolean', default: false },
      'no-checks': { type: 'boolean', default: false },
      coverage: { type: 'boolean', default: false },
      lanes: { type: 'string', default: '3' },
      /** The folder of the lane, for the process of a lane. The archive of images is the argument after it. */
      lane: { type: 'string' },
      help: { type: 'boolean' },
    },
  });
  if (values.lane !== undefined) {
    await runLane(values.lane, positionals[0] ?? '');
    return 0;
  }
  if (values.help === true) {
    process.stdout.write(USAGE);
    return 0;
  }
  const { unit, coverage } = values;
  const lanes = Number(values.lanes);
  if (!Number.isInteger(lanes) || lanes < 1) throw new Error(`--lanes ${values.lanes} is not a number of lanes`);
  const absent = positionals.filter((file) => !existsSync(join(ROOT, file)));
  if (absent.length > 0) throw new Error(`there is no test file ${absent.join(', ')}`);
  return test({ unit, coverage, checks: !values['no-checks'], lanes, files: positionals });
}

process.exitCode = await main();
