/** Tests that the generated tables of the API equal what `scripts/generate-api` writes, and agree with the client package. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { buildResources, buildTable, disagreements, orderProblems } from '../../../scripts/generate-api.ts';

const read = (name: string): string => readFileSync(new URL(`../../../api/schema/${name}`, import.meta.url), 'utf8');

test('the generated tables are what the facts say', () => {
  assert.equal(read('table.json'), buildTable(), 'run scripts/generate-api');
  assert.equal(read('resources.json'), buildResources(), 'run scripts/generate-api');
});

test('the order of a type has all of its fields and no others', () => {
  assert.deepEqual(orderProblems(), []);
  const field = (name: string) => ({ name, number: '1', type: 'string', required: false, options: {} });
  const type = { name: 'v1.T', options: { order: 'a,c' }, fields: [field('kind'), field('a'), field('b')] };
  assert.deepEqual(orderProblems([type]), ['v1.T.b is not in order= of the type', 'v1.T has no field c of its order=']);
});

test('the facts agree with the client package', async () => assert.deepEqual(await disagreements(), []));
