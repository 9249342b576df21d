import assert from 'node:assert/strict';
import { test } from 'node:test';
import { validateDefinition } from '../../../../controlplane/custom-resources/definition-validation.ts';
import type { Definition, DefinitionVersion } from '../../../../controlplane/custom-resources/definition.ts';
import type { JsonSchema } from '../../../../controlplane/custom-resources/json-schema.ts';

const schemaOf = (...fields: readonly string[]): { openAPIV3Schema: JsonSchema } => ({
  openAPIV3Schema: {
    type: 'object',
    properties: {
      spec: { type: 'object', properties: Object.fromEntries(fields.map((name) => [name, { type: 'string' }])) },
    },
  },
});

function faults(versions: readonly Partial<DefinitionVersion>[]): string[] {
  const definition: Definition = {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'things.example.com' },
    spec: {
      group: 'example.com',
      scope: 'Namespaced',
      names: { plural: 'things', singular: 'thing', kind: 'Thing', listKind: 'ThingList' },
      versions: versions.map((version, index) => ({
        name: `v${index + 1}`,
        served: true,
        storage: index === 0,
        ...version,
      })),
    },
    status: { storedVersions: ['v1'] },
  };
  return validateDefinition(definition).map(String);
}

test('selectable fields that all versions share need a schema that all versions share', () => {
  const selectableFields = [{ jsonPath: '.spec.a' }];
  const shared = { schema: schemaOf('a'), selectableFields };
  assert.deepEqual(faults([shared, shared]), []);
  assert.deepEqual(faults([shared, { schema: schemaOf('a', 'b'), selectableFields }]), [
    'spec.selectableFields: Invalid value: "": may only be set when validations.schema is included',
  ]);
});

test('selectable fields of one version need a schema of that version alone', () => {
  const [a, b] = [[{ jsonPath: '.spec.a' }], [{ jsonPath: '.spec.b' }]];
  assert.deepEqual(
    faults([
      { schema: schemaOf('a'), selectableFields: a },
      { schema: schemaOf('b'), selectableFields: b },
    ]),
    [],
  );
  const schema = schemaOf('a', 'b');
  const text = 'Invalid value: "": may only be set when `version.schema.openAPIV3Schema` is not included';
  assert.deepEqual(
    faults([
      { schema, selectableFields: a },
      { schema, selectableFields: b },
    ]),
    [`spec.versions[0].selectableFields: ${text}`, `spec.versions[1].selectableFields: ${text}`],
  );
});
