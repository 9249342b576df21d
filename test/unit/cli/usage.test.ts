/**
 * For every row of the command table, a wrong number of arguments, an invalid argument and an unknown flag exit with 2, with a
 * message that names them.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { commands } from '../../../cli/commands.ts';
import type { Command } from '../../../cli/command-line/command.ts';
import { orchlet } from './command-run.ts';

type Row = Command & { readonly name: string };

const rows: readonly Row[] = await Promise.all(commands.map(async ({ name, load }) => ({ name, ...(await load()) })));

async function refused(command: Row, words: readonly string[], line: RegExp): Promise<void> {
  const argv = [...command.name.split(' '), ...words];
  const { code, stdout, stderr } = await orchlet(argv, { env: { KUBECONFIG: '/nonexistent' } });
  assert.deepEqual({ argv, code, stdout }, { argv, code: 2, stdout: '' });
  assert.match(stderr, line);
  assert.equal(stderr.split('\n').length, 2, `one line: ${stderr}`);
}

describe('an argument too many is named', () => {
  for (const command of rows) {
    const { most = 0, choices = ['word'] } = command.arguments ?? {};
    if (most === Infinity) continue;
    it(`orchlet ${command.name}`, async () => {
      const given = Array.from({ length: most }, () => choices[0] ?? '');
      await refused(command, [...given, 'surplus'], /"surplus"/);
    });
  }
});

describe('a missing argument is named as help names it', () => {
  for (const command of rows) {
    const { least = 0, usage = '' } = command.arguments ?? {};
    if (least === 0) continue;
    it(`orchlet ${command.name}`, async () => {
      const { stdout } = await orchlet([...command.name.split(' '), '--help']);
      assert.ok(stdout.includes(usage));
      await refused(command, [], new RegExp(`^orchlet: 'orchlet ${command.name}' needs ${RegExp.escape(usage)}:`));
    });
  }
});

describe('a word or a value that is no choice is named, and the choices are', () => {
  for (const command of rows) {
    const { choices } = command.arguments ?? {};
    if (choices !== undefined)
      it(`orchlet ${command.name} ${choices.join('|')}`, () =>
        refused(command, ['other'], new RegExp(`"other" is not one of ${choices.join(', ')}`)));
    for (const { name, choices: values } of Object.values(command.flags))
      if (values !== undefined)
        it(`orchlet ${command.name} --${name}`, () =>
          refused(command, [`--${name}=no-such-value`], new RegExp(`"no-such-value"[^]*--${name}`)));
  }
});

describe('a wrong flag is named', () => {
  for (const command of rows) {
    it(`orchlet ${command.name}: one that is unknown`, () => refused(command, ['--no-such-flag'], /--no-such-flag/));
    const valued = Object.values(command.flags).find(({ type }) => type !== 'boolean');
    if (valued !== undefined)
      it(`orchlet ${command.name}: one without its value`, () =>
        refused(command, [`--${valued.name}`], new RegExp(`--${valued.name}`)));
    const numbered = Object.values(command.flags).find(({ type }) => type === 'integer' || type === 'duration');
    if (numbered !== undefined)
      it(`orchlet ${command.name}: a number that is none`, () =>
        refused(command, [`--${numbered.name}=many`], new RegExp(`"many"[^]*--${numbered.name}`)));
  }
});
