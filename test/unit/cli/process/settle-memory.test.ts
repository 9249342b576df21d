import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { cachedDataVersionTag } from 'node:v8';
import { settleMemory } from '../../../../cli/process/settle-memory.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const ROOT = join(import.meta.dirname, '../../../..');

test('memory is collected in a quiet moment after the start, and the flags of V8 stay as they were', async () => {
  const clock = new FakeClock();
  const tag = cachedDataVersionTag();
  settleMemory(clock);
  const unused = new WeakRef(Array.from({ length: 1000 }, String));
  // Within one turn of the event loop, a WeakRef keeps its object. The wait makes the time before the check a quiet one.
  await sleep(300);
  await clock.advance(4_000);
  assert.equal(unused.deref(), undefined);
  assert.equal(cachedDataVersionTag(), tag);
});

test('a control plane starts with flags of V8 for which the compiled form of the modules of Node.js is valid', () => {
  const script = `import v8 from 'node:v8';process.stdout.write(String(v8.cachedDataVersionTag()));process.exit()`;
  const env = { ...process.env, NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(script)}` };
  const [launched, plain] = ['orchlet', 'node'].map((program) =>
    execFileSync(join(ROOT, 'bin', program), ['controlplane'], { encoding: 'utf8', env }),
  );
  assert.match(plain ?? '', /^\d+$/);
  assert.equal(launched, plain);
});
