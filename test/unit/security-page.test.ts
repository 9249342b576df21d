/** `docs/security.md` lists every authenticator, authorizer and admission plugin, with its flags and an existing test. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { PLUGINS } from '../../controlplane/security/admission/plugins.ts';
import { AUTHENTICATORS } from '../../controlplane/security/authentication/authenticators.ts';
import { AUTHORIZERS } from '../../controlplane/security/authorization/authorizers.ts';

const docs = join(import.meta.dirname, '../../docs');
const page = readFileSync(join(docs, 'security.md'), 'utf8');

/** Returns the rows of the table below a heading, by their first cell. */
function rowsOf(heading: string): Map<string, string> {
  const section = page.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
  const rows = section.split('\n').filter((line) => line.startsWith('| '));
  return new Map(rows.slice(2).map((row) => [row.split('|')[1]?.trim() ?? '', row]));
}

for (const [heading, parts] of [
  ['Authenticators', AUTHENTICATORS],
  ['Authorizers', AUTHORIZERS],
] as const) {
  test(`${heading} of the page are those of the code, with their flags`, () => {
    const rows = rowsOf(heading);
    assert.deepEqual(
      [...rows.keys()],
      parts.map(({ name }) => name),
    );
    for (const { name, flags } of parts)
      for (const flag of flags) assert.ok(rows.get(name)?.includes(`\`${flag}\``), `${name}: ${flag}`);
  });
}

test('admission plugins of the page are those of the code, in their order', () => {
  const rows = [...rowsOf('Admission plugins').values()].map((row) => row.split('|').map((cell) => cell.trim()));
  assert.deepEqual(
    rows.map(([, name, byDefault, summary]) => ({ name, enabledByDefault: byDefault === 'on', summary })),
    PLUGINS.map(({ name, enabledByDefault, summary }) => ({ name, enabledByDefault, summary })),
  );
});

test('every test that the page names exists', () => {
  const missing = [...page.matchAll(/\]\(([^)#]+)[^)]*\)/g)].filter(([, path = '']) => !existsSync(join(docs, path)));
  assert.deepEqual(
    missing.map(([, path]) => path),
    [],
  );
});

test('every attack of the page is held by the test that it names', () => {
  const rows = [...rowsOf('Faults and attacks').values()];
  assert.ok(rows.length > 15);
  for (const row of rows) {
    const [, path = '', title = ''] = /\]\(([^)]+)\) `(.+)` \|$/.exec(row) ?? [];
    assert.ok(title !== '' && readFileSync(join(docs, path), 'utf8').includes(title), row);
  }
});
