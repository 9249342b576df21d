/** Tests the choices of flags, which help, validation and completion share. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flag, formatFlags, parseFlags, shownChoices, UsageError } from '../../../../api/component/flags.ts';

const table = {
  modes: flag({ name: 'modes', type: 'list', default: ['a'], choices: ['', 'a', 'b'], group: 'G', help: 'Modes.' }),
  form: flag({ name: 'form', type: 'string', default: 'a', choices: ['a', 'b'], group: 'G', help: 'A form.' }),
  named: flag({
    name: 'named',
    type: 'list',
    default: ['a'],
    choices: ['a', 'b'],
    check: (list) => (list.length > 0 ? undefined : 'must not be empty'),
    group: 'G',
    help: 'Names.',
  }),
};

test('each item of a list is one of the choices, and the message names the first that is not', () => {
  assert.deepEqual(parseFlags(table, ['--modes', 'b,a', '--modes=b']).values.modes, ['b', 'a', 'b']);
  assert.throws(
    () => parseFlags(table, ['--modes=a,x,y']),
    new UsageError('invalid argument "a,x,y" for "--modes" flag: "x" must be one of "a", "b"'),
  );
  assert.throws(
    () => parseFlags(table, ['--form=x']),
    new UsageError('invalid argument "x" for "--form" flag: must be one of "a", "b"'),
  );
});

test('a row with choices also has its check', () => {
  assert.deepEqual(parseFlags(table, ['--modes=']).values.modes, []);
  assert.throws(() => parseFlags(table, ['--named=']), /for "--named" flag: must not be empty$/);
});

test('help shows the choices without the empty one', () => {
  assert.deepEqual(shownChoices(table.modes), ['a', 'b']);
  assert.match(formatFlags(table), /Modes\. Any of: a, b\./);
  assert.match(formatFlags(table), /A form\. One of: a, b\./);
});
