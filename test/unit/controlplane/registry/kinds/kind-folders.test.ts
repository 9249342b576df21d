/** The row of a kind is in the folder of its API group, where CONTRIBUTING.md tells readers to look for it. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const ROOT = join(import.meta.dirname, '../../../../..');
const KINDS = 'controlplane/registry/kinds';

/** Kinds in the folder of another group, and why. */
const ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ['apps/apps.ts replicationcontrollers', 'they have the rules of replica sets'],
  ['core/endpoints.ts endpointslices', 'their addresses have the rules of those of Endpoints'],
]);

const ROW = /kindRow\(\s*(?:'([^']*)'|(\w+)),\s*'([^']+)'/g;

/** Returns the text of a constant of the file, or of one that it imports from the resources of the clients. */
function constant(text: string, name: string): string {
  const declared = new RegExp(`const ${name} = '([^']+)'`);
  const resources = readFileSync(join(ROOT, 'api/client/resources.ts'), 'utf8');
  return (declared.exec(text) ?? declared.exec(resources))?.[1] ?? assert.fail(name);
}

test('the row of a kind is in the folder of its group', () => {
  const misplaced: string[] = [];
  let rows = 0;
  for (const path of globSync('*/*.ts', { cwd: join(ROOT, KINDS) })) {
    const text = readFileSync(join(ROOT, KINDS, path), 'utf8');
    for (const [, literal, name = '', resource = ''] of text.matchAll(ROW)) {
      rows += 1;
      const group = literal ?? constant(text, name);
      const folder = group === '' ? 'core' : group.split('.')[0];
      if (!path.startsWith(`${folder}/`)) misplaced.push(`${path} ${resource}`);
    }
  }
  assert.ok(rows > 40, `${rows} rows`);
  assert.deepEqual(misplaced.toSorted(), [...ELSEWHERE.keys()].toSorted());
});
