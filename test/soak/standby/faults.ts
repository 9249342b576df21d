/**
 * Causes the faults of a soak test of a first control plane and its standby, the pair. The pair is settled after each of them.
 */
import { systemClock } from '../../../api/machinery/clock.ts';
import { count, type Recording } from '../clients.ts';
import type { Random } from '../random.ts';
import type { PairHost } from './host.ts';
import type { Pair } from './pair.ts';

export interface PairScene {
  readonly pair: Pair;
  readonly random: Random;
  readonly recording: Recording;
  /** What broke a promise that the clients' records do not show. */
  readonly problems: string[];
}

const sleep = (ms: number): Promise<void> => systemClock.sleep(ms);

function kill({ recording }: PairScene, host: PairHost): void {
  count(recording, 'kills');
  host.kill();
}

async function takeDown({ recording }: PairScene, host: PairHost): Promise<void> {
  count(recording, 'kills');
  await host.down();
}

/** Promotes while the first answers: nothing is lost, or nothing happens. */
async function promote(scene: PairScene): Promise<void> {
  const refused = await scene.pair.promote({ force: false });
  count(scene.recording, refused === undefined ? 'promotions' : 'promotions that were refused');
  if (refused !== undefined) scene.problems.push(`a promotion was refused: ${refused}`);
}

/** Promotes while the first does not answer. Sometimes tries without `--force` before, which must be refused. */
async function forcePromotion(scene: PairScene): Promise<void> {
  const { pair, random, recording, problems } = scene;
  if (random.next() < 0.3) {
    const refused = await pair.promote({ force: false });
    if (refused === undefined || !/repeat the command with --force/.test(refused))
      problems.push(`a promotion without the first gives: ${refused ?? 'success'}`);
    if (refused === undefined) return;
    count(recording, 'promotions that were refused');
  }
  const failed = await pair.promote({ force: true });
  count(recording, 'promotions by force');
  if (failed !== undefined) problems.push(`a promotion by force fails: ${failed}`);
}

/** Starts the former first control plane, with the flag or without it. */
function comeBack({ pair, random, recording }: PairScene, host: PairHost): void {
  const hasFlag = random.next() < 0.5;
  count(recording, hasFlag ? 'former firsts with the flag' : 'former firsts without the flag');
  pair.start(host, hasFlag);
}

/** The faults by name. Each resolves when it is over. */
export const PAIR_FAULTS: Readonly<Record<string, (scene: PairScene) => Promise<void>>> = {
  async 'first-killed'(scene) {
    do {
      kill(scene, scene.pair.first);
      await sleep(scene.random.between(100, 1500));
    } while (scene.random.next() < 0.4);
  },
  async 'standby-killed'(scene) {
    do {
      kill(scene, scene.pair.second);
      await sleep(scene.random.between(100, 1500));
    } while (scene.random.next() < 0.5);
  },
  /** A new standby is killed while it receives its snapshot, or what follows it. */
  async 'snapshot-killed'(scene) {
    const { pair, random } = scene;
    await pair.second.forget();
    pair.start(pair.second);
    for (let left = random.between(1, 4); left > 0; left -= 1) {
      await sleep(random.between(200, 1500));
      kill(scene, pair.second);
    }
  },
  async promoted(scene) {
    await promote(scene);
    await sleep(scene.random.between(0, 2000));
  },
  /** Promotes the standby while it copies what it has missed, which was compacted. */
  async 'promoted-behind'(scene) {
    const { pair, random, recording, problems } = scene;
    await takeDown(scene, pair.second);
    await sleep(random.between(2000, 14_000));
    pair.start(pair.second);
    await sleep(random.between(500, 1500));
    const refused = await pair.promote({ force: false });
    count(recording, refused === undefined ? 'promotions' : 'promotions that were refused');
    // A standby that has just started may not answer yet.
    if (refused !== undefined && !/the standby starts|does not answer|cannot be asked to stop/.test(refused))
      problems.push(`a promotion of a standby that is behind was refused: ${refused}`);
  },
  async 'first-killed-promoted'(scene) {
    const { pair, random } = scene;
    const former = pair.first;
    await takeDown(scene, former);
    await sleep(random.between(0, 500));
    await forcePromotion(scene);
    if (random.next() < 0.7) {
      await pair.first.ready();
      pair.isWithoutFormer();
    }
    await sleep(random.between(0, 2000));
    comeBack(scene, former);
  },
  async 'first-frozen-promoted'(scene) {
    const { pair, random, recording } = scene;
    const former = pair.first;
    former.freeze();
    count(recording, 'freezes');
    await sleep(random.between(500, 5000));
    await forcePromotion(scene);
    await sleep(random.between(0, 3000));
    former.thaw();
  },
  async 'standby-frozen-first-killed'(scene) {
    const { pair, random, recording } = scene;
    const former = pair.first;
    pair.second.freeze();
    count(recording, 'freezes');
    await sleep(random.between(2000, 8000));
    await takeDown(scene, former);
    pair.second.thaw();
    await forcePromotion(scene);
    comeBack(scene, former);
  },
  async cut({ pair, random, recording }) {
    pair.network.cut(random.between(0, 1));
    count(recording, 'cuts');
    await sleep(random.between(200, 6000));
    pair.network.heal();
  },
  async 'cut-promoted'(scene) {
    const { pair, random, recording } = scene;
    const former = pair.first;
    pair.network.cut(random.between(0, 1));
    count(recording, 'cuts');
    await sleep(random.between(0, 2000));
    await forcePromotion(scene);
    await sleep(random.between(0, 3000));
    if (random.next() < 0.3) {
      await takeDown(scene, former);
      comeBack(scene, former);
      await sleep(random.between(0, 4000));
    }
    pair.network.heal();
  },
  async 'first-disk-fails'({ pair, random }) {
    await pair.first.fails(random.pick(['fsyncFails', 'writeFails']));
  },
  async 'standby-disk-fails'({ pair, random }) {
    await pair.second.fails(random.pick(['fsyncFails', 'writeFails']));
  },
  async 'first-disk-full'(scene) {
    const { pair, random, recording } = scene;
    const former = pair.first;
    former.fill(random.pick(['noRoom', 'shortWrite', 'quota']));
    await sleep(random.between(500, 4000));
    if (random.next() < 0.5) {
      const refused = await pair.promote({ force: false });
      count(recording, refused === undefined ? 'promotions' : 'promotions that were refused');
    }
    former.fill('none');
  },
  async 'standby-disk-full'({ pair, random }) {
    pair.second.fill(random.pick(['noRoom', 'shortWrite', 'quota']));
    await sleep(random.between(500, 5000));
    pair.second.fill('none');
  },
  async 'both-killed'(scene) {
    for (const host of scene.pair.hosts) kill(scene, host);
    await sleep(scene.random.between(0, 1500));
  },
};
