/** Tests the Scale and the Table cells of custom resources. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JsonObject, KubeObject } from '../../../../../api/meta/object.ts';
import {
  customScale,
  validateScaleFields,
} from '../../../../../controlplane/registry/custom-resources/custom-scale.ts';
import { printerColumns } from '../../../../../controlplane/registry/custom-resources/printer-columns.ts';
import { disownReplicas, withOwners } from '../../../../../controlplane/registry/scale-view.ts';

const thing = (members: object): KubeObject => ({
  apiVersion: 'g.io/v1',
  kind: 'T',
  metadata: { name: 'a' },
  ...members,
});

test('an object without a number of replicas has no scale to read, but can be given one', () => {
  const view = customScale({ specReplicasPath: '.spec.size', statusReplicasPath: '.status.size' });
  const bare = thing({});
  assert.throws(() => view.scaleOf(bare), /the spec replicas field ".spec.size" does not exist/);
  const before = view.scaleBefore?.(bare);
  assert.throws(
    () => view.setReplicas(bare, before?.spec?.replicas ?? 0),
    /the spec replicas field ".spec.size" cannot be empty/,
  );
  view.setReplicas(bare, 3);
  assert.deepEqual(bare['spec'], { size: 3 });
  assert.equal(view.scaleOf(bare).spec?.replicas, 3);
});

test('a Scale of 0 has no owner of the replicas, wherever the definition keeps them', () => {
  const { replicasPath } = customScale({ specReplicasPath: '.spec.pool.size', statusReplicasPath: '.status.size' });
  const entry = (manager: string, fieldsV1: JsonObject) => ({ manager, operation: 'Update', fieldsV1 });
  const object = thing({});
  object.metadata.managedFields = [
    entry('scaler', { 'f:spec': { 'f:pool': { 'f:size': {} } } }),
    entry('author', { 'f:spec': { '.': {}, 'f:pool': { 'f:size': {}, 'f:kind': {} } } }),
    entry('other', { 'f:spec': { 'f:replicas': {} } }),
  ];
  const scale = withOwners({ metadata: {} }, object, replicasPath);
  assert.deepEqual(
    scale.metadata.managedFields?.map(({ manager }) => manager),
    ['scaler', 'author'],
  );
  disownReplicas(object, replicasPath);
  assert.deepEqual(object.metadata.managedFields, [
    entry('author', { 'f:spec': { '.': {}, 'f:pool': { 'f:kind': {} } } }),
    entry('other', { 'f:spec': { 'f:replicas': {} } }),
  ]);
});

test('the replicas of a Scale at a path of inherited names become members of the object alone', () => {
  const path = '.spec.__proto__.polluted';
  const object = thing({ spec: {} });
  customScale({ specReplicasPath: path, statusReplicasPath: '.status.size' }).setReplicas(object, 3);
  const inherited = (Object.prototype as { polluted?: unknown }).polluted;
  delete (Object.prototype as { polluted?: unknown }).polluted;
  assert.equal(inherited, undefined);
  assert.equal(JSON.stringify(object['spec']), '{"__proto__":{"polluted":3}}');
  const paths = { specReplicasPath: '.spec.constructor', statusReplicasPath: '.status.toString.length' };
  assert.deepEqual(validateScaleFields(thing({ spec: {}, status: {} }), paths), []);
});

test('a column of dates shows what is a time, and says what is none', () => {
  const { cells } = printerColumns([{ name: 'When', type: 'date', jsonPath: '.spec.when' }]);
  const shown = (when: unknown): unknown => cells(thing({ spec: { when } }))[1];
  assert.deepEqual(shown('2024-01-02T03:04:05Z'), { sinceMs: Date.UTC(2024, 0, 2, 3, 4, 5) });
  assert.equal(shown('2024'), '<invalid>');
  assert.equal(shown(''), '<unknown>');
  assert.equal(shown(7), null);
});

test('columns show values of their type, and lists and objects as text', () => {
  const column = (type: string, jsonPath: string) => ({ name: type, type, jsonPath });
  const { cells } = printerColumns([
    column('string', '.spec.list'),
    column('integer', '.spec.ratio'),
    column('number', '.spec.ratio'),
    column('boolean', '.spec.list'),
    column('string', '.spec.none'),
    column('string', '.spec.conditions[?(@.type=="Ready")].status'),
  ]);
  const conditions = [{ type: 'Ready', status: 'True' }];
  const [, ...shown] = cells(thing({ spec: { list: ['a', 1], ratio: 1.5, conditions } }));
  assert.deepEqual(shown, ['["a",1]', 1, 1.5, null, null, 'True']);
});

test('a column shows whole numbers that a double cannot hold, by themselves and in an object', () => {
  const column = (type: string, jsonPath: string) => ({ name: type, type, jsonPath });
  const { cells } = printerColumns([
    column('string', '.spec'),
    column('string', '.spec.n'),
    column('integer', '.spec.n'),
    column('number', '.spec.n'),
  ]);
  const [, ...shown] = cells(thing({ spec: { n: 12_345_678_901_234_567n } }));
  assert.deepEqual(shown, [
    '{"n":12345678901234567}',
    '12345678901234567',
    12_345_678_901_234_567n,
    Number(12_345_678_901_234_567n),
  ]);
});

test('a column of text shows null, fractions, and objects as the JSONPath printer of Go', () => {
  const { cells } = printerColumns([{ name: 'X', type: 'string', jsonPath: '.spec.x' }]);
  const shown = (x: unknown): unknown => cells(thing({ spec: { x } }))[1];
  assert.equal(shown(null), '<no value>');
  assert.equal(shown(undefined), null);
  assert.equal(shown(2_500_000.5), '2.5000005e+06');
  assert.equal(shown({ b: '<&>', a: [2, 1] }), String.raw`{"a":[2,1],"b":"\u003c\u0026\u003e"}`);
});
