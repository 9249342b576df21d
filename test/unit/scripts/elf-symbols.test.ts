/** A Node.js without its symbols runs, and loads native addons. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { withoutSymbols } from '../../../scripts/elf-symbols.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

const ADDON = join(import.meta.dirname, '../../../node_modules/better-sqlite3');

test('an executable without symbols is smaller, runs and loads an addon', () => {
  const directory = temporaryFolder();
  const whole = readFileSync(process.execPath);
  const cut = withoutSymbols(whole);
  assert.ok(cut.length < whole.length * 0.9, `${cut.length} of ${whole.length} bytes`);
  const node = join(directory, 'node');
  writeFileSync(node, cut, { mode: 0o755 });
  const program = `const Database = require(${JSON.stringify(ADDON)}); console.log(new Database(':memory:').prepare('SELECT 6 * 7').pluck().get())`;
  assert.equal(execFileSync(node, ['-e', program], { encoding: 'utf8' }), '42\n');
  assert.deepEqual(withoutSymbols(cut), cut, 'nothing is left to remove');
});

test('a file that is no executable stays as it is', () => {
  const script = Buffer.from('#!/bin/sh\nexec node "$@"\n');
  assert.equal(withoutSymbols(script), script);
});
