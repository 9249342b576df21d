/**
 * `npm run fuzz -- --target NAME --seconds N` mutates inputs of a target, keeps those with a new outcome, and reports those
 * that violate a rule. The same `--seed` generates the same inputs. Exits with 1 if a rule was violated.
 *
 * With `--growth` it searches for inputs whose time grows faster than their size instead. Without `--target` it does so for
 * every target except `http`, whose responses go over a network.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { keep, readCorpus } from './corpus.ts';
import { searchGrowth } from './growth-search.ts';
import { mutate } from './mutate.ts';
import { Outcomes } from './outcomes.ts';
import { checkMemory, judged } from './oracle.ts';
import { Random } from './random.ts';
import type { Target } from './target.ts';
import { targetNames, loadTarget } from './targets.ts';

const MAX_POOL = 2000;
const MAX_FAILURES = 20;
const SHARED_BYTES = 1 << 20;

const USAGE = `usage: npm run fuzz -- --target NAME [--seconds N] [--seed S] [--executions N] [--failures DIR] [--keep]
       npm run fuzz -- --growth [--target NAME] [--seconds N] [--seed S]

Changes inputs of a target over and over and reports every input that broke a rule; with --growth, searches
inputs whose time grows by more than their size. Exits with 1 where something broke.

  --target NAME    ${targetNames.join(' ')}
  --seconds N      for each target (default 60)
  --seed S         the same seed makes the same inputs (default 1)
  --executions N   stop after so many inputs
  --failures DIR   where inputs that broke a rule are written (default: below the temporary directory)
  --keep           add inputs that showed something new to test/fuzz/corpus
  --growth         measure time against size; without --target, every target but http
  --help           show this
`;

const { values } = parseArgs({
  options: {
    target: { type: 'string' },
    seconds: { type: 'string', default: '60' },
    executions: { type: 'string' },
    seed: { type: 'string', default: '1' },
    failures: { type: 'string', default: join(tmpdir(), 'orchlet-fuzz') },
    keep: { type: 'boolean', default: false },
    growth: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(USAGE);
  process.exit(0);
}
const names = values.target === undefined ? targetNames.filter((name) => name !== 'http') : [values.target];
if ((values.target === undefined && !values.growth) || names.some((name) => !targetNames.includes(name))) {
  process.stderr.write(USAGE);
  process.exit(2);
}
for (const name of names) {
  const code = values.growth ? await searchTarget(name) : await fuzz(name);
  if (code !== 0) process.exitCode = code;
}

async function searchTarget(name: string): Promise<number> {
  const target = await loadTarget(name);
  const end = performance.now() + Number(values.seconds) * 1000;
  const failures: string[] = [];
  const shapes = await searchGrowth(target, {
    random: new Random(Number(values.seed)),
    until: () => performance.now() > end || failures.length >= MAX_FAILURES,
    report: ({ shape, growth }) => {
      const text = Object.values(shape).map((piece: Buffer) => JSON.stringify(piece.toString('latin1')));
      failures.push(text.join(' '));
      console.error(
        `${name}: ${text.join(' ')}: ${growth.ms} ms for ${growth.sizeBytes} bytes, exponent ${growth.exponent}`,
      );
    },
  });
  await target.close?.();
  console.log(`${name}: seed ${values.seed}, ${shapes} shapes, ${failures.length} grow by more than their size`);
  return failures.length === 0 ? 0 : 1;
}

/** Starts a thread that detects an input that does not finish, reports it, and ends the process. */
function startWatchdog(folder: string): { watch(input: Buffer): void; stop(): Promise<number> } {
  const shared = new SharedArrayBuffer(SHARED_BYTES);
  const head = new Int32Array(shared, 0, 2);
  const body = Buffer.from(shared, 8);
  const code = `
    const { workerData } = require('node:worker_threads');
    const head = new Int32Array(workerData.shared, 0, 2);
    let last = -1, same = 0;
    setInterval(() => {
      same = head[0] === last ? same + 1 : 0;
      last = head[0];
      if (same < 30) return;
      require('node:fs').writeFileSync(workerData.folder + '/endless', Buffer.from(workerData.shared, 8, head[1]));
      console.error('one input took 30 s: ' + workerData.folder + '/endless');
      process.kill(process.pid, 'SIGKILL');
    }, 1000);`;
  const worker = new Worker(code, { eval: true, workerData: { shared, folder } });
  worker.unref();
  return {
    watch(input) {
      head[1] = input.copy(body);
      Atomics.add(head, 0, 1);
    },
    stop: () => worker.terminate(),
  };
}

interface Run {
  readonly target: Target;
  readonly pool: Buffer[];
  readonly random: Random;
}

function nextInput({ target, pool, random }: Run, execution: number): Buffer {
  const first = pool[execution];
  if (first !== undefined && execution < pool.length) return first;
  if (target.generate !== undefined && random.chance(4)) return target.generate(random);
  return mutate(random.pick(pool) ?? Buffer.alloc(0), { corpus: pool, words: target.words }, random);
}

async function fuzz(name: string): Promise<number> {
  const target = await loadTarget(name);
  const folder = join(values.failures, name);
  mkdirSync(folder, { recursive: true });
  const watchdog = startWatchdog(folder);
  const run: Run = {
    target,
    random: new Random(Number(values.seed)),
    pool: [...target.seeds.map((seed) => Buffer.from(seed)), ...readCorpus(name)],
  };
  const given = run.pool.length;
  const outcomes = new Outcomes();
  const failures = new Set<string>();
  let current: Buffer = Buffer.alloc(0);
  const fail = (error: unknown): void => {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    const kind = text.split('\n').slice(0, 4).join('\n').replaceAll(/\d+ /g, '');
    if (failures.has(kind)) return;
    failures.add(kind);
    const path = join(folder, `failure-${values.seed}-${failures.size}`);
    writeFileSync(path, current);
    console.error(`${path}: ${text.slice(0, 1500)}`);
  };
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
  const until = performance.now() + Number(values.seconds) * 1000;
  const most = Number(values.executions ?? Infinity);
  const started = performance.now();
  let executions = 0;
  for (; performance.now() < until && executions < most && failures.size < MAX_FAILURES; executions += 1) {
    current = nextInput(run, executions);
    const input = current;
    watchdog.watch(input);
    try {
      const seen = await judged(() => target.execute(input));
      if (outcomes.isNew(seen) && executions >= given && run.pool.length < MAX_POOL) {
        run.pool.push(input);
        if (values.keep) keep(name, input);
      }
      if (executions % 1000 === 0) {
        checkMemory();
        // Pending callbacks run now.
        await new Promise((resolve) => setImmediate(resolve));
      }
    } catch (error) {
      fail(error);
    }
  }
  await target.close?.();
  await watchdog.stop();
  const seconds = Math.round((performance.now() - started) / 1000);
  console.log(
    `${name}: seed ${values.seed}, ${seconds} s, ${executions} executions, ${outcomes.size} outcomes, ${failures.size} failures`,
  );
  return failures.size === 0 ? 0 : 1;
}
