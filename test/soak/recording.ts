/**
 * Writes and reads files of what the clients of a soak test saw, in V8's serialization, which keeps maps and absent values as
 * they are.
 */
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deserialize, serialize } from 'node:v8';
import type { Recording } from './clients.ts';

/** Writes the recording below the temporary directory and returns the file's name. */
export function keepRecording({ operations, segments, counts }: Recording, seed: number): string {
  const file = join(mkdtempSync(join(tmpdir(), 'orchlet-soak-seen-')), `${seed}.recording`);
  writeFileSync(file, serialize({ operations, segments, counts }), { mode: 0o600 });
  return file;
}

/** Reads a recording from its file. */
export const readRecording = (file: string): Recording => deserialize(readFileSync(file)) as Recording;
