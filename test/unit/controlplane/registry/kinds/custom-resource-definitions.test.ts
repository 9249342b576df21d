import assert from 'node:assert/strict';
import { test } from 'node:test';
import { apiextensionsKinds } from '../../../../../controlplane/registry/kinds/apiextensions/apiextensions.ts';
import { type Draft, rulesOf } from './strategy-fixture.ts';

const GROUP = 'apiextensions.k8s.io';
const RESOURCE = 'customresourcedefinitions';

function definition(formats: readonly string[], annotations: Record<string, string> = {}): Draft {
  const openAPIV3Schema = { type: 'object', allOf: formats.map((format) => ({ type: 'string', format })) };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'things.example.com', annotations },
    spec: {
      group: 'example.com',
      scope: 'Namespaced',
      names: { plural: 'things', kind: 'Thing' },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema } }],
    },
    status: { storedVersions: ['v1'] },
  };
}

test('an update warns of formats that the stored definition does not have yet', () => {
  const { create, update } = rulesOf(apiextensionsKinds, GROUP, RESOURCE);
  assert.deepEqual(create(definition(['bogus', 'date'])).warnings, ['unrecognized format "bogus"']);
  assert.deepEqual(update(definition(['bogus']), definition(['bogus'])).warnings, []);
  assert.deepEqual(update(definition(['bogus']), definition(['bogus', 'other'])).warnings, [
    'unrecognized format "other"',
  ]);
});

test('a write of the status changes metadata, but not the spec', () => {
  const { update } = rulesOf(apiextensionsKinds, GROUP, RESOURCE, 'status');
  const { object } = update(definition([]), definition(['date'], { a: 'b' }));
  assert.deepEqual(object.metadata.annotations, { a: 'b' });
  assert.doesNotMatch(JSON.stringify(object['spec']), /date/);
});
