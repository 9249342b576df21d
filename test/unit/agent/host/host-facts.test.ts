import assert from 'node:assert/strict';
import { test } from 'node:test';
import { maxPids } from '../../../../agent/host/host-facts.ts';

const PID_MAX = '/proc/sys/kernel/pid_max';
const THREADS_MAX = '/proc/sys/kernel/threads-max';

for (const [name, files, expected] of [
  ['kernel.threads-max if it is lower', { [PID_MAX]: '4194304', [THREADS_MAX]: '31285' }, 31_285],
  ['kernel.pid_max if it is lower', { [PID_MAX]: '32768', [THREADS_MAX]: '192730' }, 32_768],
  ['the limit that can be read', { [THREADS_MAX]: '31285' }, 31_285],
  ['the default of the kernel if neither can be read', {}, 32_768],
] as const)
  test(`the maximum number of process ids is ${name}`, () => {
    const texts = new Map<string, string>(Object.entries(files));
    assert.equal(
      maxPids((path) => texts.get(path)),
      expected,
    );
  });
