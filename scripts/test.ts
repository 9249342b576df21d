/**
 * `scripts/test` runs types, format and lint, then every test file. Integration tests get a private Docker daemon, a private
 * containerd and images that are built here. The files with property tests run a second time with a random seed. A file
 * that fails runs again alone; if it passes then, the last lines of the output count and name it as flaky.
 * Integration tests on the container runtimes run one at a time because clusters of one host share its network. Those that
 * need no runtime run beside them, and their output follows.
 */
import { spawn, spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, dirname, join, relative } from 'node:path';
import { parseArgs, styleText } from 'node:util';
import {
  ensureImages,
  ensureTestTools,
  findRuntime,
  type FoundRuntime,
  startPrivateContainerd,
} from './container-runtime.ts';

const ROOT = join(import.meta.dirname, '..');
const USAGE = `usage: scripts/test [--unit] [--no-checks] [--coverage] [FILE…]

Runs the checks (types, format, lint) and the tests. Integration tests run on a Docker daemon and a
containerd of their own; or on those whose sockets ORCHLET_TEST_DOCKER_SOCKET (Docker, Podman) and
ORCHLET_TEST_CONTAINERD_SOCKET (any CRI runtime) name: a private one of another version is started by
PATH=…/bin:$PATH scripts/containerd-private start DIR.

  --unit       leave out the integration tests
  --no-checks  leave out types, format and lint
  --coverage   print the share of executed lines of each half; with integration tests, once for each part
  FILE…        these test files only
`;

interface Outcome {
  readonly code: number;
  readonly failed: readonly string[];
}

function say(text: string): void {
  console.log(styleText('bold', `==> ${text}`));
}

function check(name: string, command: string, args: readonly string[]): boolean {
  say(name);
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

interface RunOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly concurrency: number;
  readonly coverage?: boolean;
  /** Prints the output when the run has ended. */
  readonly later?: boolean;
}

/** The share of executed lines is that of the processes of the tests, and not of programs that they start. */
const COVERAGE = [
  '--experimental-test-coverage',
  '--test-coverage-exclude=test/**',
  '--test-coverage-exclude=scripts/**',
  `--test-reporter=${join(ROOT, 'test/coverage-reporter.ts')}`,
  '--test-reporter-destination=stdout',
];

function runTests(
  files: readonly string[],
  { env, concurrency, coverage = false, later = false }: RunOptions,
): Promise<Outcome> {
  if (files.length === 0) return Promise.resolve({ code: 0, failed: [] });
  const reporter = join(ROOT, 'test/failed-files-reporter.ts');
  const list = join(mkdtempSync(join(tmpdir(), `orchlet-test-${process.pid}-`)), 'failed');
  const args = [
    '--disable-warning=ExperimentalWarning',
    `--import=${join(ROOT, 'test/property-seed.ts')}`,
    '--test',
    `--test-concurrency=${concurrency}`,
    '--test-timeout=300000',
    '--test-reporter=spec',
    '--test-reporter-destination=stdout',
    `--test-reporter=${reporter}`,
    `--test-reporter-destination=${list}`,
    ...(coverage ? COVERAGE : []),
    ...files,
  ];
  return new Promise((resolve) => {
    const child = spawn(join(ROOT, 'bin/node'), args, {
      cwd: ROOT,
      stdio: later ? ['ignore', 'pipe', 'pipe'] : 'inherit',
      env: { ...process.env, ...env },
    });
    const output: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => output.push(chunk));
    child.on('close', (code) => {
      process.stdout.write(Buffer.concat(output));
      const text = existsSync(list) ? readFileSync(list, 'utf8') : '';
      rmSync(join(list, '..'), { recursive: true, force: true });
      resolve({ code: code ?? 1, failed: [...new Set(text.split('\n').filter((line) => line !== ''))] });
    });
  });
}

function both(left: Outcome, right: Outcome): Outcome {
  return { code: left.code === 0 ? right.code : left.code, failed: [...left.failed, ...right.failed] };
}

/**
 * Whether a test file uses the container runtimes that all tests share and the host's network, itself or through what it
 * imports. Nodes in network namespaces have runtimes of their own.
 */
function usesRuntimes(file: string, seen = new Set<string>()): boolean {
  if (basename(file) === 'namespaced-nodes.ts') return false;
  if (basename(file) === 'container-runtimes.ts') return true;
  if (seen.has(file) || !file.includes('test/integration/')) return false;
  seen.add(file);
  const imports = readFileSync(join(ROOT, file), 'utf8').matchAll(/from '(\.\/[^']+)'/g);
  return [...imports].some(([, path = '']) => usesRuntimes(join(dirname(file), path), seen));
}

/** How often files that failed run again. */
const MOST_REPEATS = 2;
/** If more files than this fail, the tests are not flaky, but there is a defect. */
const MOST_REPEATED_FILES = 5;

/** The test files to repeat: a failed test of a shared suite is repeated through the files that use the suite. */
function testFilesOf(failed: readonly string[], all: readonly string[]): string[] {
  const files = failed.flatMap((file) => {
    if (file.endsWith('.test.ts')) return [file];
    const name = basename(file);
    return all.filter((candidate) => readFileSync(join(ROOT, candidate), 'utf8').includes(`/${name}'`));
  });
  return [...new Set(files)];
}

/** The test files whose properties are checked with random values. */
function propertyTests(files: readonly string[]): string[] {
  return files.filter((file) => readFileSync(join(ROOT, file), 'utf8').includes("from 'fast-check'"));
}

/** Starts what integration tests need, adds it to `runtimes`, and sets the variables by which the tests find it. */
async function startRuntimes(directory: string, env: NodeJS.ProcessEnv, runtimes: FoundRuntime[]): Promise<void> {
  say('container runtimes and images for the integration tests');
  const archive = ensureImages(join(directory, 'images'), say);
  env['ORCHLET_TEST_IMAGES'] = archive;
  const use = async (variable: string, start: () => FoundRuntime | Promise<FoundRuntime>): Promise<void> => {
    if ((process.env[variable] ?? '') !== '') return say(`${variable}: ${process.env[variable]}`);
    const runtime = await start();
    runtimes.push(runtime);
    env[variable] = runtime.endpoint.replace('unix://', '');
  };
  await use('ORCHLET_TEST_DOCKER_SOCKET', () =>
    findRuntime({ directory: join(directory, 'docker'), say, privately: true }),
  );
  await use('ORCHLET_TEST_CONTAINERD_SOCKET', () =>
    startPrivateContainerd(join(directory, 'containerd'), archive, say),
  );
  ensureTestTools(say);
  env['ORCHLET_TEST_REGISTRY'] = 'docker-registry';
}

/** Runs failed files again, alone, if they are few. Those that pass then are flaky. */
async function repeatFailed(
  first: Outcome,
  all: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<{ readonly outcome: Outcome; readonly flaky: readonly string[] }> {
  let outcome = first;
  let flaky: readonly string[] = [];
  const worthRepeating = (): boolean =>
    outcome.code !== 0 && outcome.failed.length > 0 && outcome.failed.length <= MOST_REPEATED_FILES;
  for (let round = 0; round < MOST_REPEATS && worthRepeating(); round += 1) {
    const failed = outcome.failed.map((file) => relative(ROOT, file));
    const files = testFilesOf(failed, all);
    say(`once more, one at a time: ${files.join(', ')}`);
    outcome = await runTests(files, { env, concurrency: 1 });
    flaky = [...new Set([...flaky, ...files])];
  }
  return { outcome, flaky };
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      unit: { type: 'boolean' },
      'no-checks': { type: 'boolean' },
      coverage: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  });
  if (values.help === true) {
    process.stdout.write(USAGE);
    return 0;
  }
  const coverage = values.coverage === true;
  const started = performance.now();
  const checked = values['no-checks'] === true || checks();
  const all = positionals.length > 0 ? positionals : globSync('test/**/*.test.ts', { cwd: ROOT }).sort();
  const integration = values.unit === true ? [] : all.filter((file) => file.includes('test/integration/'));
  const units = all.filter((file) => !file.includes('test/integration/'));
  const runtimes: FoundRuntime[] = [];
  const env: NodeJS.ProcessEnv = { NODE_COMPILE_CACHE: join(ROOT, '.cache/compile') };
  const directory = mkdtempSync(join(tmpdir(), 'orch-'));
  const stop = (): void => {
    for (const runtime of runtimes) runtime.stop();
    rmSync(directory, { recursive: true, force: true });
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      stop();
      process.exit(130);
    });
  }
  try {
    if (integration.length > 0) await startRuntimes(directory, env, runtimes);
    say(`${units.length + integration.length} test files`);
    let outcome: Outcome = { code: 0, failed: [] };
    if (units.length > 0)
      outcome = await runTests(units, { env, coverage, concurrency: Math.max(2, availableParallelism()) });
    const properties = propertyTests(units);
    if (properties.length > 0) {
      const seed = String(randomInt(2 ** 31 - 1));
      say(`${properties.length} files with property tests once more, ORCHLET_TEST_SEED=${seed}`);
      outcome = both(outcome, await runTests(properties, { env: { ...env, ORCHLET_TEST_SEED: seed }, concurrency: 2 }));
    }
    const onRuntimes = integration.filter((file) => usesRuntimes(file));
    const others = integration.filter((file) => !onRuntimes.includes(file));
    const parts = await Promise.all([
      runTests(onRuntimes, { env, coverage, concurrency: 1 }),
      runTests(others, { env, coverage, concurrency: 1, later: onRuntimes.length > 0 }),
    ]);
    for (const part of parts) outcome = both(outcome, part);
    const repeated = await repeatFailed(outcome, all, env);
    outcome = repeated.outcome;
    const { flaky } = repeated;
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    if (outcome.code === 0 && checked) {
      if (flaky.length > 0) say(`${flaky.length} flaky, passed only when repeated: ${flaky.join(', ')}`);
      say(`all passed in ${seconds} s, ${flaky.length} flaky`);
      return 0;
    }
    say(`${checked ? 'tests' : 'checks'} failed after ${seconds} s`);
    return 1;
  } finally {
    stop();
  }
}

process.exitCode = await main();
