/**
 * Runs the benchmark on this checkout and on another commit in turns, with the programs of this checkout, and prints medians,
 * their ratio, and the spread of the rounds. Groups that measure this checkout alone are left out.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { cpus, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export interface Comparison {
  /** A commit or branch, as in `git checkout`. */
  readonly commit: string;
  /** The number of runs of each side. */
  readonly rounds: number;
  /** The groups of the benchmark to run. */
  readonly names: readonly string[];
}

interface Row {
  readonly what: string;
  readonly figure: number;
  readonly unit: string;
}

interface Side {
  readonly name: string;
  readonly program: string;
  /** The measurements of each row, with one value for each round. */
  readonly measurements: Map<string, { readonly unit: string; readonly all: number[] }>;
}

const ROOT = join(import.meta.dirname, '../..');
const BENCH = join(import.meta.dirname, 'bench.ts');
/** Groups that measure this checkout, whichever program is compared with it. */
const OF_THIS_CHECKOUT: ReadonlySet<string> = new Set(['auth', 'agent', 'executable', 'installed']);

/** Throws if no group compares commits, if the commit does not exist, or if its packages cannot be installed. */
export async function against({ commit, rounds, names }: Comparison): Promise<void> {
  const compared = names.filter((name) => !OF_THIS_CHECKOUT.has(name));
  if (compared.length === 0) throw new Error(`${names.join()} cannot compare commits: this checkout alone is measured`);
  const other = mkdtempSync(join(tmpdir(), 'orchlet-against-'));
  const git = (...args: readonly string[]): string => execFileSync('git', ['-C', ROOT, ...args], { encoding: 'utf8' });
  git('worktree', 'add', '--quiet', '--force', '--detach', other, commit);
  try {
    execFileSync(join(other, 'scripts/setup'), { stdio: ['ignore', 'inherit', 'inherit'] });
    const sides: readonly [Side, Side] = [
      {
        name: git('rev-parse', '--short', commit).trim(),
        program: join(other, 'bin/orchlet'),
        measurements: new Map(),
      },
      { name: 'this checkout', program: join(ROOT, 'bin/orchlet'), measurements: new Map() },
    ];
    const steal = stealTicks();
    describeMachine();
    for (let round = 1; round <= rounds; round += 1) {
      // The sides take turns in going first, so that a drift of the machine affects both.
      for (const side of round % 2 === 1 ? sides : sides.toReversed()) {
        process.stderr.write(`round ${round} of ${rounds}: ${side.name}\n`);
        await measure(side, compared);
      }
    }
    process.stdout.write(`steal time during the rounds: ${((stealTicks() - steal) / 100).toFixed(1)} s\n\n`);
    printRatios(sides);
  } finally {
    git('worktree', 'remove', '--force', other);
    rmSync(other, { recursive: true, force: true });
  }
}

async function measure(side: Side, names: readonly string[]): Promise<void> {
  const child = spawn(process.execPath, [BENCH, '--json', '--only', names.join(',')], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ORCHLET_BENCH_PROGRAM: side.program },
  });
  const exited = once(child, 'exit');
  let heading = '';
  for await (const line of createInterface({ input: child.stdout })) {
    const { what, figure, unit } = JSON.parse(line) as Row;
    // An indented figure is one of several about what the line before them names.
    const isDetail = what.startsWith('  ');
    if (!isDetail) heading = what;
    const name = isDetail ? `${heading}: ${what.trimStart()}` : what;
    const row = side.measurements.get(name) ?? { unit, all: [] };
    row.all.push(figure);
    side.measurements.set(name, row);
  }
  const [code] = await exited;
  if (code !== 0) throw new Error(`the benchmark of ${side.name} exited with ${String(code)}`);
}

function printRatios([before, now]: readonly [Side, Side]): void {
  process.stdout.write(
    '| what | before | now | now / before | smallest and largest before; now |\n| --- | --- | --- | --- | --- |\n',
  );
  for (const [what, { unit, all }] of now.measurements) {
    const old = before.measurements.get(what)?.all ?? [];
    const spread = [old, all].map(
      (measurements) => `${text(Math.min(...measurements))} to ${text(Math.max(...measurements))}`,
    );
    const [was, is] = [median(old), median(all)];
    const cells = [`${what} (${unit})`, text(was), text(is), (is / was).toFixed(2), spread.join('; ')];
    process.stdout.write(`| ${cells.join(' | ')} |\n`);
  }
}

function describeMachine(): void {
  const [first, ...others] = cpus();
  process.stdout.write(
    `${others.length + 1} x ${first?.model ?? 'unknown processor'}, Node.js ${process.version}, load ${loadavg()[0]?.toFixed(2)}\n`,
  );
}

/** Returns the time, in hundredths of a second, for which the hypervisor gave the processors to other machines. */
function stealTicks(): number {
  return Number(readFileSync('/proc/stat', 'utf8').split('\n', 1)[0]?.trim().split(/\s+/)[8] ?? 0);
}

function median(measurements: readonly number[]): number {
  const sorted = measurements.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? (sorted[middle] ?? Number.NaN)
    : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

const text = (figure: number): string => (figure >= 100 ? Math.round(figure).toString() : figure.toPrecision(3));
