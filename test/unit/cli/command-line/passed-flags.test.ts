/** Tests flags that a command passes on to a part: which are accepted, and the message for the others. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flag } from '../../../../api/component/flags.ts';
import { passedFlags } from '../../../../cli/command-line/passed-flags.ts';

const table = {
  swap: flag({ name: 'fail-swap-on', type: 'boolean', default: true, group: 'G', help: 'Swap.' }),
  hard: flag({ name: 'eviction-hard', type: 'map', default: {}, group: 'G', help: 'Thresholds.' }),
  root: flag({ name: 'root-dir', type: 'string', default: '/r', group: 'G', help: 'Root.' }),
  old: flag({ name: 'old', type: 'string', default: '', group: 'G', help: 'Old.', deprecated: 'use new' }),
};
const passed = (...texts: string[]): ReturnType<typeof passedFlags<typeof table>> =>
  passedFlags('agent-arg', table, texts, ['root']);

test('takes what was given and nothing else, maps collect, and dashes may stand before a name', () => {
  assert.deepEqual(passed('eviction-hard=memory.available<1Gi', '--eviction-hard=pid.available<5%', 'fail-swap-on'), {
    values: { hard: { 'memory.available': '<1Gi', 'pid.available': '<5%' }, swap: true },
    warnings: [],
  });
  assert.deepEqual(passed(), { values: {}, warnings: [] });
});

test('warns of what is deprecated', () => {
  assert.deepEqual(passed('old=x').warnings, ['Flag --old has been deprecated, use new']);
});

test('refuses unknown names, missing values and flags that the command sets itself, and names the flag', () => {
  for (const [texts, message] of [
    [['eviction-soft=a<1'], '--agent-arg: unknown flag: --eviction-soft (did you mean --eviction-hard?)'],
    [['eviction-hard', 'root-dir=x'], '--agent-arg: flag needs an argument: --eviction-hard'],
    [['fail-swap-on=maybe'], /^--agent-arg: invalid argument "maybe" for "--fail-swap-on" flag/],
    [['root-dir=/x'], '--agent-arg: --root-dir is set by this command itself'],
  ] as const)
    assert.throws(() => passed(...texts), { name: 'UsageError', message });
});
