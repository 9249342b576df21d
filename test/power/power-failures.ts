/**
 * Records programs that write files, and checks the states of the disk that power failures could have left (`disk.ts`). What
 * was acknowledged is there, what was deleted is not, and nothing is half-written. Then the program goes on in one of these
 * states. `npm run soak -- --power` and `test/integration/power-failures.test.ts` run it.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { errorMessage } from '../../api/meta/error-message.ts';
import { Random } from '../soak/random.ts';
import { readAgentFiles } from './agent-program.ts';
import { readControlPlane } from './control-plane-program.ts';
import { Disk, readTree, type Tree, writeTree } from './disk.ts';
import { type Found, Ledger, NOTHING } from './ledger.ts';
import { Recorder } from './recording.ts';
import { readStorage } from './storage-program.ts';

/** A program, and what it finds in its folder after a power failure. Rejects if the folder cannot be used. */
interface Scene {
  readonly program: string;
  readonly read: (folder: string) => Promise<Found>;
}

/** The recorded programs by name, with the function that reads what they have left on the disk. */
export const SCENES: Readonly<Record<string, Scene>> = {
  storage: { program: 'storage-program.ts', read: readStorage },
  agent: { program: 'agent-program.ts', read: readAgentFiles },
  controlplane: { program: 'control-plane-program.ts', read: readControlPlane },
};

/** What a power failure left. */
interface Left {
  readonly tree: Tree;
  readonly found: Found;
}

export interface PowerOptions {
  readonly seed: number;
  /** The programs to record; all if it is empty. */
  readonly only: readonly string[];
  /** How often each program runs. */
  readonly lives: number;
  /** The number of power failures in each recording. */
  readonly failures: number;
  /** The number of states of the disk for each of them. */
  readonly states: number;
  readonly onProgress?: (line: string) => void;
}

export interface PowerReport {
  readonly violations: readonly string[];
  readonly counts: ReadonlyMap<string, number>;
}

/** Records the programs, checks the states of the disk that power failures leave, and resolves to the violations. */
export async function powerFailures(options: PowerOptions): Promise<PowerReport> {
  const scratch = realpathSync(mkdtempSync(join(tmpdir(), 'orchlet-power-')));
  const violations: string[] = [];
  const counts = new Map<string, number>();
  const count = (what: string, by: number): void => void counts.set(what, (counts.get(what) ?? 0) + by);
  try {
    for (const name of options.only.length === 0 ? Object.keys(SCENES) : options.only) {
      const scene = SCENES[name];
      if (scene === undefined) throw new Error(`there is no program ${name}: ${Object.keys(SCENES).join(', ')}`);
      const random = new Random(options.seed);
      let left: Left = { tree: new Map(), found: NOTHING };
      for (let life = 0; life < options.lives && violations.length === 0; life += 1) {
        const folder = join(scratch, `${name}-${life}`);
        mkdirSync(folder);
        left = await liveAndFail({ ...options, scene, folder, left, random, count, violations });
        options.onProgress?.(`${name}: ${[...counts].map(([what, number]) => `${number} ${what}`).join(', ')}`);
        if (violations.length === 0) rmSync(folder, { recursive: true, force: true });
      }
    }
  } finally {
    if (violations.length === 0) rmSync(scratch, { recursive: true, force: true });
  }
  return { violations, counts };
}

/** Records the programs again and again, with one seed after the other. */
export async function soakPower(
  options: Pick<PowerOptions, 'seed' | 'only' | 'onProgress'> & { readonly seconds: number },
): Promise<PowerReport> {
  const endMs = performance.now() + options.seconds * 1000;
  const counts = new Map<string, number>();
  const violations: string[] = [];
  for (let { seed } = options; performance.now() < endMs && violations.length === 0; seed += 1) {
    const report = await powerFailures({ ...options, seed, lives: 4, failures: 30, states: 3 });
    for (const [what, number] of report.counts) counts.set(what, (counts.get(what) ?? 0) + number);
    violations.push(...report.violations.map((violation) => `seed ${seed}: ${violation}`));
  }
  return { violations, counts };
}

interface Life extends PowerOptions {
  readonly scene: Scene;
  /** An empty folder for this life. */
  readonly folder: string;
  /** What is in the folder of the program when it starts. */
  readonly left: Left;
  readonly random: Random;
  readonly count: (what: string, by: number) => void;
  readonly violations: string[];
}

/** Records the program and checks power failures. Returns what the last of them left. */
async function liveAndFail(life: Life): Promise<Left> {
  const { scene, folder, random, count } = life;
  const root = join(folder, 'root');
  writeTree(root, life.left.tree);
  const disk = new Disk(root);
  const recorder = new Recorder(folder, root);
  await run(join(import.meta.dirname, scene.program), [root, String(random.between(0, 2 ** 31))], recorder);
  const changes = recorder.changes();
  const at = Array.from({ length: life.failures }, () => random.between(0, changes.length - 1)).toSorted(
    (a, b) => a - b,
  );
  let { left } = life;
  for (const [index, change] of changes.entries()) {
    disk.apply(change);
    for (; at[0] === index && life.violations.length === 0; at.shift())
      left = await checkStates(life, disk, `change ${index} of ${changes.length}`);
  }
  // A change that the recorder missed would be missing here.
  assert.deepEqual(disk.current(), readTree(root), 'the recording differs from the folder');
  count('changes recorded', changes.length);
  return left;
}

async function run(program: string, args: readonly string[], recorder: Recorder): Promise<void> {
  const child = spawn(process.execPath, [program, ...args], {
    stdio: 'inherit',
    env: { ...process.env, ...recorder.environment },
  });
  const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
  assert.equal(code, 0, `${program} ended by ${signal ?? code}`);
}

/** Checks states that a power failure at this moment may leave. Returns the last one. */
async function checkStates(life: Life, disk: Disk, when: string): Promise<Left> {
  const { scene, folder, random, count } = life;
  const notes = disk.current().get('notes');
  const ledger = new Ledger(life.left.found, Buffer.isBuffer(notes) ? notes.toString() : '');
  let { left } = life;
  for (let state = 0; state < life.states; state += 1) {
    const tree = disk.afterPowerFailure(random);
    tree.delete('notes');
    const place = join(folder, 'state');
    writeTree(place, tree);
    try {
      left = { tree, found: await scene.read(place) };
      ledger.check(left.found);
    } catch (error) {
      rmSync(place, { recursive: true });
      writeTree(place, tree);
      const what = errorMessage(error);
      life.violations.push(`${when}, state ${state} (kept in ${place}): ${what}`);
      return left;
    }
    rmSync(place, { recursive: true });
    count('states of the disk', 1);
  }
  count('power failures', 1);
  count('acknowledged writes checked', ledger.acknowledged);
  return left;
}
