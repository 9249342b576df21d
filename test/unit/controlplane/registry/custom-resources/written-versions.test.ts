/** Tests writes of a custom resource in a version that has other members than the stored version or the version of an owner. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import type { Definition } from '../../../../../controlplane/registry/kinds/apiextensions/definition.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { customStrategy } from '../../../../../controlplane/registry/custom-resources/custom-strategy.ts';
import { createSchemaReader } from '../../../../../controlplane/registry/custom-resources/schema-reader.ts';
import { otherVersions } from '../../../../../controlplane/registry/custom-resources/served-versions.ts';
import { structTypeOf } from '../../../../../controlplane/registry/schemas/schema-type.ts';
import { renamingConversion } from '../../../../../controlplane/registry/custom-resources/version-conversion.ts';
import { createFieldManagement } from '../../../../../controlplane/registry/managed-fields.ts';
import type { StrategyContext } from '../../../../../controlplane/registry/strategy.ts';

const metadata = loadSchema().struct('io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta');
assert(metadata !== undefined);

const schemaWith = (required: readonly string[], ...members: string[]): JsonSchema => ({
  type: 'object',
  properties: {
    spec: {
      type: 'object',
      required,
      properties: Object.fromEntries(members.map((one) => [one, { type: 'string', minLength: 2 }])),
    },
  },
});
const [v1, v2] = [schemaWith([], 'a'), schemaWith(['c'], 'a', 'c')];
const version = (name: string, schema: JsonSchema) => ({
  name,
  served: true,
  storage: name === 'v1',
  schema: { openAPIV3Schema: schema },
});
const definition = {
  metadata: { name: 'things.g.io' },
  spec: { group: 'g.io', names: { plural: 'things', kind: 'Thing' }, versions: [version('v1', v1), version('v2', v2)] },
} as unknown as Definition;
const thing = (apiVersion: string, spec: Record<string, string>, more: object = {}): KubeObject => ({
  apiVersion,
  kind: 'Thing',
  metadata: { name: 'x', uid: 'u', ...more },
  spec,
});

describe('a version with a member that the stored version does not have', () => {
  const conversion = renamingConversion('g.io', { name: 'v1', schema: v1 }, { name: 'v2', schema: v2 });
  const strategy = customStrategy({ version: version('v2', v2), schema: v2, conversion });
  const old = thing('g.io/v1', { a: 'one' });
  const context = {} as StrategyContext;

  test('is judged as it was written', async () => {
    const good = conversion.toStored(thing('g.io/v2', { a: 'one', c: 'set' }));
    assert.deepEqual(await strategy.validateCreate?.(good, context), []);
    const short = conversion.toStored(thing('g.io/v2', { a: 'one', c: 's' }));
    const errors = (await strategy.validateUpdate?.(short, old, context)) ?? [];
    assert.deepEqual(
      errors.map(({ field }) => field),
      ['spec.c'],
    );
  });
  test('counts the write of that member as a change of the spec', () => {
    const written = conversion.toStored(thing('g.io/v2', { a: 'one', c: 'set' }));
    assert.deepEqual(written['spec'], { a: 'one' });
    assert.equal(strategy.changesGeneration?.(written, old), true);
    assert.equal(strategy.changesGeneration?.(conversion.toStored(thing('g.io/v2', { a: 'one' })), old), false);
  });
});

describe('an owner that wrote in a version without a member of the written object', () => {
  assert(metadata !== undefined);
  const gvk = { group: 'g.io', version: 'v2', kind: 'Thing' };
  const management = createFieldManagement(
    systemClock,
    {
      ...gvk,
      struct: structTypeOf(gvk, v2, metadata),
      reader: createSchemaReader(v2, metadata),
      applyDefaults: undefined,
    },
    otherVersions(definition, version('v2', v2), metadata),
  );
  const owner = {
    manager: 'first',
    operation: 'Update',
    apiVersion: 'g.io/v1',
    time: '2026-01-01T00:00:00Z',
    fieldsType: 'FieldsV1',
    fieldsV1: { 'f:spec': { 'f:a': {} } },
  };
  const live = thing('g.io/v2', { a: 'one' }, { managedFields: [owner] });
  const write = { manager: 'second', apiVersion: 'g.io/v2', subresource: '', resetFields: [] };

  test('ends all managed fields with an update', () => {
    assert.equal(
      management.update(live, thing('g.io/v2', { a: 'one', c: 'set' }), write).metadata.managedFields,
      undefined,
    );
  });
  test('keeps its fields if the written object has no such member', () => {
    const { managedFields = [] } = management.update(live, thing('g.io/v2', { a: 'two' }), write).metadata;
    assert.deepEqual(
      managedFields.map(({ manager, apiVersion }) => [manager, apiVersion]),
      [['second', 'g.io/v2']],
    );
  });
  test('refuses an apply', () => {
    const body = { apiVersion: 'g.io/v2', kind: 'Thing', metadata: { name: 'x' }, spec: { c: 'set' } };
    const patch = { type: 'apply', body, duplicates: [], force: true } as const;
    const target = { namespace: '', name: 'x' };
    assert.throws(
      () => management.apply(live, patch, { ...write, target, validation: 'Strict', warn: () => undefined }),
      { message: 'failed to convert new object: .spec.c: field not declared in schema' },
    );
  });
  test('refuses an apply, and drops all managed fields with an update, if its version no longer exists', () => {
    const older = { ...owner, apiVersion: 'g.io/v1alpha1' };
    const orphan = thing('g.io/v2', { a: 'one' }, { managedFields: [older] });
    const body = { apiVersion: 'g.io/v2', kind: 'Thing', metadata: { name: 'x' }, spec: { c: 'set' } };
    const target = { namespace: '', name: 'x' };
    const toApply = { ...write, target, validation: 'Strict', warn: () => undefined } as const;
    assert.throws(() => management.apply(orphan, { type: 'apply', body, duplicates: [], force: true }, toApply), {
      code: 500,
      message: 'request to convert CR to an invalid group/version: g.io/v1alpha1',
    });
    const { metadata: updated } = management.update(orphan, thing('g.io/v2', { a: 'two' }), write);
    assert.equal(updated.managedFields, undefined);
  });
});

test('a webhook converts each object of a write once to the version of an owner', async () => {
  assert(metadata !== undefined);
  const schema = schemaWith([], 'a');
  const gvk = { group: 'g.io', version: 'v2', kind: 'Thing' };
  const converted: string[] = [];
  const management = createFieldManagement(
    systemClock,
    {
      ...gvk,
      struct: structTypeOf(gvk, schema, metadata),
      reader: createSchemaReader(schema, metadata),
      applyDefaults: undefined,
    },
    otherVersions(definition, version('v2', schema), metadata, (object, to) => {
      converted.push(`${JSON.stringify(object['spec'])} to ${to}`);
      return Promise.resolve({ ...object, apiVersion: `g.io/${to}` });
    }),
  );
  const owner = (manager: string) => ({
    ...{ manager, operation: 'Update', apiVersion: 'g.io/v1', time: '2026-01-01T00:00:00Z', fieldsType: 'FieldsV1' },
    fieldsV1: { 'f:spec': { 'f:a': {} } },
  });
  const live = thing('g.io/v2', { a: 'one' }, { managedFields: ['p', 'q', 'r'].map(owner) });
  const write = { manager: 'second', apiVersion: 'g.io/v2', subresource: '', resetFields: [] };
  await management.updateInTurns(live, thing('g.io/v2', { a: 'two' }), write);
  assert.deepEqual(converted, ['{"a":"one"} to v1', '{"a":"two"} to v1']);
});

test('a conversion that has failed is tried again', async () => {
  let calls = 0;
  const lookup = otherVersions(definition, version('v2', v2), metadata, (object) => {
    calls += 1;
    return calls === 1 ? Promise.reject(new Error('the webhook is down')) : Promise.resolve(object);
  });
  const other = lookup('g.io/v1');
  assert(typeof other === 'object');
  const object = thing('g.io/v2', { a: 'one' });
  await assert.rejects(async () => await other.convert(object), /the webhook is down/);
  assert.equal(await other.convert(object), object);
  assert.equal(await other.convert(object), object);
  assert.equal(calls, 2);
});

test('a refused update warns of rules that unchanged values break, as an accepted one does', async () => {
  const positive = { 'x-kubernetes-validations': [{ rule: 'self > 0' }] };
  const schema: JsonSchema = {
    type: 'object',
    properties: {
      spec: {
        type: 'object',
        properties: { kept: { type: 'integer', ...positive }, set: { type: 'integer', ...positive } },
      },
    },
  };
  const conversion = renamingConversion('g.io', { name: 'v1', schema }, { name: 'v1', schema });
  const strategy = customStrategy({ version: version('v1', schema), schema, conversion });
  const warnings: string[] = [];
  const context = { request: { warn: (text: string) => warnings.push(text) } } as unknown as StrategyContext;
  const withSet = (set: number): KubeObject => ({ ...thing('g.io/v1', {}), spec: { kept: 0, set } });
  const errors = (await strategy.validateUpdate?.(withSet(-1), withSet(1), context)) ?? [];
  assert.deepEqual(
    errors.map(({ field }) => field),
    ['spec.set'],
  );
  assert.deepEqual(warnings, ['spec.kept: Invalid value: 0: failed rule: self > 0']);
});
