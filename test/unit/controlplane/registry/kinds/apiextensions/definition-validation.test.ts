import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  validateDefinition,
  validateDefinitionStatus,
} from '../../../../../../controlplane/registry/kinds/apiextensions/definition-validation.ts';
import type {
  Definition,
  DefinitionVersion,
} from '../../../../../../controlplane/registry/kinds/apiextensions/definition.ts';
import type { JsonSchema } from '../../../../../../controlplane/registry/schemas/json-schema.ts';

const schemaOf = (...fields: readonly string[]): { openAPIV3Schema: JsonSchema } => ({
  openAPIV3Schema: {
    type: 'object',
    properties: {
      spec: { type: 'object', properties: Object.fromEntries(fields.map((name) => [name, { type: 'string' }])) },
    },
  },
});

const faults = (versions: readonly Partial<DefinitionVersion>[], spec: Partial<Definition['spec']> = {}): string[] =>
  validateDefinition(definitionOf(versions, spec)).map(String);

function definitionOf(versions: readonly Partial<DefinitionVersion>[], spec: Partial<Definition['spec']>): Definition {
  return {
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
      ...spec,
    },
    status: { storedVersions: ['v1'] },
  };
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

test('defaults cannot be used if unknown fields are preserved', () => {
  const schema: { openAPIV3Schema: JsonSchema } = {
    openAPIV3Schema: { type: 'object', properties: { a: { type: 'array', items: { type: 'string', default: 'x' } } } },
  };
  assert.deepEqual(faults([{ schema }], { preserveUnknownFields: true }), [
    'spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema',
    'spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead',
  ]);
});

test('a root that is not nullable may say so beside a status', () => {
  const schema = { openAPIV3Schema: { ...schemaOf('a').openAPIV3Schema, nullable: false } };
  assert.deepEqual(faults([{ schema, subresources: { status: {} } }]), []);
});

test('the members of an atomic map are compared with their old values', () => {
  const openAPIV3Schema: JsonSchema = {
    type: 'object',
    properties: {
      spec: {
        type: 'object',
        'x-kubernetes-map-type': 'atomic',
        properties: { a: { type: 'integer', 'x-kubernetes-validations': [{ rule: 'self >= oldSelf' }] } },
      },
    },
  };
  assert.deepEqual(faults([{ schema: { openAPIV3Schema } }]), []);
});

test('a rule that does not compile has no use for the option of its old value', () => {
  const rules = [{ rule: 'self == oldSelf', optionalOldSelf: true }];
  const spec = { type: 'string', 'x-kubernetes-validations': rules } as const;
  const [first, second] = faults([{ schema: { openAPIV3Schema: { type: 'object', properties: { spec } } } }]);
  const at = 'spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]';
  assert.equal(first?.startsWith(`${at}.rule: Invalid value: `), true);
  assert.equal(second, `${at}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule`);
});

test('a schema cannot name another schema by $schema', () => {
  const openAPIV3Schema = { type: 'object', properties: { a: { type: 'string', $schema: 'x' } } } as JsonSchema;
  assert.deepEqual(faults([{ schema: { openAPIV3Schema } }]), [
    `spec.validation.openAPIV3Schema: Invalid value: "": OpenAPIV3Schema 'schema' is not supported`,
  ]);
});

test('the accepted names of a status are checked', () => {
  const definition = definitionOf([{ schema: schemaOf('a') }], {});
  const acceptedNames = { plural: 'Things', kind: 'Thing', listKind: 'Thing' };
  const errors = validateDefinitionStatus({ ...definition, status: { acceptedNames } }).map(String);
  assert.equal(errors.length, 2);
  assert.match(errors[0] ?? '', /^status\.acceptedNames\.plural: Invalid value: "Things": a DNS-1035 label/);
  assert.equal(
    errors[1],
    'status.acceptedNames.listKind: Invalid value: "Thing": kind and listKind may not be the same',
  );
});
