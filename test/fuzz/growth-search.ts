/**
 * Searches for inputs of a target whose time grows faster than their size. An input has a beginning, a repeated part and an
 * end. These are words of the target's format, single characters and pieces of its seeds.
 */
import { MAX_EXPONENT, measureGrowth, type Growth } from './growth.ts';
import type { Random } from './random.ts';
import type { Target } from './target.ts';

const MAX_BYTES = 1 << 16;
/** The time below which a garbage collection during a run looks like growth. Quadratic time is far above it at 64 KiB. */
const NOTICEABLE_MS = 60;
const MAX_PIECE_BYTES = 24;

export interface Shape {
  readonly prefix: Buffer;
  readonly pump: Buffer;
  readonly suffix: Buffer;
}

export interface Found {
  readonly shape: Shape;
  readonly growth: Growth;
}

/** Returns an input of at least `size` bytes: the repeated part between the beginning and the end. */
export function inputOf({ prefix, pump, suffix }: Shape, size: number): Buffer {
  return Buffer.concat([prefix, Buffer.alloc(Math.ceil(size / pump.length) * pump.length, pump), suffix]);
}

/** Calls `report` for each input found. Returns the number of inputs that were tried. */
export async function searchGrowth(
  target: Target,
  { random, until, report }: { readonly random: Random; until(): boolean; report(found: Found): void },
): Promise<number> {
  let tried = 0;
  for (const word of target.words.filter((text) => text !== '')) {
    if (until()) return tried;
    tried += 1;
    await judge(
      target,
      { prefix: Buffer.alloc(0), pump: Buffer.from(word, 'latin1'), suffix: Buffer.alloc(0) },
      report,
    );
  }
  while (!until()) {
    tried += 1;
    await judge(target, shapeOf(target, random), report);
  }
  return tried;
}

function shapeOf({ seeds, words }: Target, random: Random): Shape {
  const piece = (): Buffer => {
    switch (random.below(4)) {
      case 0:
        return Buffer.from([random.below(128)]);
      case 1: {
        const seed = Buffer.from(random.pick(seeds) ?? '');
        return seed.subarray(random.below(seed.length + 1)).subarray(0, 1 + random.below(MAX_PIECE_BYTES));
      }
      default:
        return Buffer.from(random.pick(words) ?? '', 'latin1');
    }
  };
  const pieces = (count: number): Buffer => Buffer.concat(Array.from({ length: count }, piece));
  const pump = pieces(1 + random.below(3));
  return {
    prefix: pieces(random.below(3)),
    pump: pump.length === 0 ? Buffer.from(' ') : pump,
    suffix: pieces(random.below(2)),
  };
}

async function judge(target: Target, shape: Shape, report: (found: Found) => void): Promise<void> {
  const run = (size: number): unknown => target.execute(inputOf(shape, size));
  const growth = await measureGrowth(run, { maxBytes: MAX_BYTES, noticeableMs: NOTICEABLE_MS });
  if (growth === undefined || growth.exponent <= MAX_EXPONENT) return;
  // Other processes may have slowed down the largest run.
  const again = await measureGrowth(run, { maxBytes: growth.sizeBytes });
  if (again !== undefined && again.exponent > MAX_EXPONENT) report({ shape, growth: again });
}
