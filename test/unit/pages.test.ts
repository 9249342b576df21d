/**
 * Everything that the documentation refers to exists: links with their anchors, paths of the repository, npm scripts, commands
 * and their flags.
 */
import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { commands } from '../../cli/commands.ts';

const root = join(import.meta.dirname, '../..');
/** The pages of the districts, which say what each owns. */
const districtPages = globSync('{agent,controlplane}/*/README.md', { cwd: root });
const pages = [...globSync('*.md', { cwd: root }), ...globSync('docs/*.md', { cwd: root }), ...districtPages];
const textOf = (page: string): string => readFileSync(join(root, page), 'utf8');

/** Returns the anchors that GitHub creates for the headings of a page. */
function anchorsOf(page: string): Set<string> {
  const headings = textOf(page).matchAll(/^#+ (.+)$/gm);
  return new Set(
    [...headings].map(([, heading = '']) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

const spansOf = (page: string): string[] => [...textOf(page).matchAll(/`([^`\n]+)`/g)].map(([, span = '']) => span);

/** Returns the command lines of a page, in code blocks and in code spans. */
function commandLinesOf(page: string): string[] {
  const blocks = [...textOf(page).matchAll(/^```\w*\n([^]*?)^```/gm)];
  return [...blocks.flatMap(([, block = '']) => block.split('\n')), ...spansOf(page)];
}

const FOLDER = /^(agent|api|bin|cli|controlplane|docs|examples|scripts|systemd|test)\/[\w./*-]*$/;
/** A folder or a source file, in the page of a district from its own folder. */
const OWN_PATH = /^(?:[\w.*-]+\/)+$|^(?:[\w.*-]+\/)*[\w.*-]+\.ts$/;
/** `systemd/UNIT`. */
const PLACEHOLDER = /\/[A-Z]+$/;
const PROGRAM = /^(?:bin\/)?orchlet ([^|;#]*)/;
const { scripts } = JSON.parse(textOf('package.json')) as { scripts: Record<string, string> };

describe('the table of commands in README.md', () => {
  const [, section = ''] = textOf('README.md').split('\n## Commands\n');
  const rows =
    section
      .split('\n## ')[0]
      ?.split('\n')
      .filter((line) => line.startsWith('| `orchlet')) ?? [];

  it('has every command of the program', () => {
    const missing = commands
      .map(({ name }) => name)
      .filter((name) => {
        const words = name.split(' ');
        // Whether a row of the table names the command. It names further commands by their last word: `orchlet token create`,
        // `list`.
        const isIn = (row: string): boolean =>
          row.includes(`\`orchlet ${name}`) ||
          (row.includes(words.length === 1 ? '`orchlet ' : `\`orchlet ${words[0]} `) &&
            row.includes(`\`${words.at(-1)}`));
        return !rows.some(isIn);
      });
    assert.deepEqual(missing, []);
  });
});

it('docs/dependencies.md lists every package of package.json', () => {
  const { dependencies, optionalDependencies, devDependencies } = JSON.parse(textOf('package.json')) as Record<
    'dependencies' | 'optionalDependencies' | 'devDependencies',
    Record<string, string>
  >;
  const text = textOf('docs/dependencies.md');
  const rows = text.split('\n').filter((line) => line.startsWith('| '));
  const listed = Object.keys({ ...dependencies, ...optionalDependencies });
  assert.deepEqual(
    listed.filter((name) => !rows.some((row) => (row.split('|')[1] ?? '').trim().split(', ').includes(name))),
    [],
    'each package of an installation needs a row with a reason',
  );
  const tools = Object.keys(devDependencies).filter((name) => !name.startsWith('@types/'));
  assert.deepEqual(
    tools.filter((name) => !text.includes(name)),
    [],
  );
});

for (const page of pages)
  describe(page, () => {
    it('links to files and headings that exist', () => {
      for (const [, link = ''] of textOf(page).matchAll(/\]\(([^)\s]+)\)/g)) {
        if (/^https?:/.test(link)) continue;
        const [path = '', anchor] = link.split('#');
        const target = path === '' ? page : join(dirname(page), path);
        assert.ok(existsSync(join(root, target)), link);
        if (anchor !== undefined) assert.ok(anchorsOf(target).has(anchor), link);
      }
    });

    it('names files and folders that exist', () => {
      const words = spansOf(page).flatMap((span) => span.split(' '));
      const paths = words.filter((word) => FOLDER.test(word) && !PLACEHOLDER.test(word));
      const own = districtPages.includes(page) ? words.filter((word) => OWN_PATH.test(word) && !FOLDER.test(word)) : [];
      const named = [...paths, ...own.map((path) => join(dirname(page), path))];
      const missing = named.filter((path) => globSync(path, { cwd: root }).length === 0);
      assert.deepEqual(missing, []);
    });

    it('names npm scripts that exist', () => {
      const named = commandLinesOf(page).map((line) => /^npm run ([\w-]+)/.exec(line)?.[1]);
      assert.deepEqual(
        named.filter((script) => script !== undefined && scripts[script] === undefined),
        [],
      );
    });

    it('names commands of orchlet that exist, with flags that they have', async () => {
      for (const line of commandLinesOf(page)) {
        const words = PROGRAM.exec(line)?.[1]?.trim().split(/\s+/);
        if (words === undefined) continue;
        const row =
          commands.find(({ name }) => name === words.slice(0, 2).join(' ')) ??
          commands.find(({ name }) => name === words[0]);
        const isGroup = commands.some(({ name }) => name.startsWith(`${words[0] ?? ''} `));
        assert.ok(row !== undefined || isGroup || /^(-|[A-Z…])/.test(words[0] ?? ''), line);
        if (row === undefined) continue;
        const names = Object.values((await row.load()).flags).map(({ name }) => `--${name}`);
        const flags = [...line.matchAll(/--[a-z][a-z0-9-]*/g)].map(([flag]) => flag);
        const unknown = flags.filter((flag) => flag !== '--help' && !names.includes(flag));
        assert.deepEqual(unknown, [], line);
      }
    });
  });
