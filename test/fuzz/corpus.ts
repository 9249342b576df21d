/** Keeps inputs with a new outcome in `corpus/<target>/<digest>`. The corpus is in the repository and must stay small. */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, 'corpus');
const MAX_FILES = 40;
const MAX_FILE_BYTES = 2048;

/** Returns the kept inputs of a target in the order of their names. */
export function readCorpus(target: string): Buffer[] {
  const folder = join(ROOT, target);
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .toSorted()
    .map((name) => readFileSync(join(folder, name)));
}

/** Keeps an input if there is room. */
export function keep(target: string, input: Buffer): void {
  const folder = join(ROOT, target);
  mkdirSync(folder, { recursive: true });
  if (input.length > MAX_FILE_BYTES || readdirSync(folder).length >= MAX_FILES) return;
  writeFileSync(join(folder, createHash('sha256').update(input).digest('hex').slice(0, 12)), input);
}
