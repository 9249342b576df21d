/** Tests that V8 optimizes nothing in a process that is idle most of the time. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

const FILE = new URL('../../../../cli/process/optimize-rarely.ts', import.meta.url).href;
const BUSY =
  'function f(x) { let s = 0; for (let i = 0; i < 100; i++) s += i * x; return s; } for (let i = 0; i < 20000; i++) f(i);';

for (const [name, before, wanted] of [
  ['a function that is called often is optimized', '', true],
  ['no function is optimized after optimizeRarely()', `(await import('${FILE}')).optimizeRarely();`, false],
] as const)
  test(name, () => {
    const program = [
      '--trace-opt',
      '--disable-warning=ExperimentalWarning',
      '--input-type=module',
      '-e',
      before + BUSY,
    ];
    const { stdout } = spawnSync(process.execPath, program, { encoding: 'utf8' });
    assert.equal(/completed optimizing/.test(stdout), wanted, stdout);
  });
