import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describe } from '../../../../api/schema/descriptions.ts';

test('fields have the names and the texts that the generator of the package has changed', () => {
  assert.match(describe('io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta', 'continue') ?? '', /^continue may be set/);
  const schema = 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps';
  assert.match(describe(schema, 'x-kubernetes-list-map-keys') ?? '', /^x-kubernetes-list-map-keys annotates/);
  const rule = 'io.k8s.api.admissionregistration.v1.RuleWithOperations';
  assert.match(describe(rule, 'resources') ?? '', /'pods\/\*' means all subresources of pods\. '\*\/scale' means/);
});

test('paragraphs of a description are separated by an empty line, where two blanks stand for it', () => {
  const META = 'io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta';
  assert.match(describe(META, 'creationTimestamp') ?? '', /in UTC\.\n\nPopulated by the system\./);
  assert.match(describe(META, 'finalizers') ?? '', /\. {2}\S/);
  assert.match(describe('io.k8s.api.core.v1.ServiceSpec', 'clusterIPs') ?? '', /\. {2}\S/);
});
