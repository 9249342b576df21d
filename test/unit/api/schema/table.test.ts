import assert from 'node:assert/strict';
import { test } from 'node:test';
import { builtinResources } from '../../../../api/schema/resources.ts';
import { groupVersionKindOf, loadSchema, typeNameOf } from '../../../../api/schema/table.ts';

const schema = loadSchema();

test('every served kind has a struct with metadata, or is a review or an option', () => {
  for (const row of builtinResources()) {
    for (const { group, version, kind } of [row, ...row.subresources]) {
      const struct = schema.kind(group, version, kind);
      assert.ok(struct !== undefined, `${group}/${version} ${kind}`);
      assert.ok(struct.fields.has('metadata') || kind.endsWith('Options'), `${group}/${version} ${kind}`);
    }
  }
});

test('every type can be built, and no two fields of one share a protobuf number', () => {
  for (const name of schema.structNames()) {
    const numbers = new Set<string>();
    for (const field of schema.struct(name)?.fields.values() ?? []) {
      if (field.protobufNumber === undefined) continue;
      const path = [...(field.protobufInline ?? []), field.protobufNumber].join('/');
      assert.ok(!numbers.has(path), `${name}.${field.name}`);
      numbers.add(path);
    }
  }
});

test('types may refer to themselves', () => {
  const name = 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps';
  const not = schema.struct(name)?.fields.get('not');
  assert.ok(not?.type.kind === 'struct');
  assert.equal(not.type.struct, schema.struct(name));
});

test('lists have their merge strategy', () => {
  const ports = schema.struct('io.k8s.api.core.v1.Container')?.fields.get('ports');
  assert.equal(ports?.listType, 'map');
  assert.deepEqual(ports.listMapKeys, ['containerPort', 'protocol']);
  assert.equal(ports.patchMergeKey, 'containerPort');
});

test('a group of custom resources has none of the built-in types', () => {
  assert.equal(schema.kind('apps.example.com', 'v1', 'Deployment'), undefined);
  assert.equal(schema.kind('apps.k8s.io', 'v1', 'Deployment'), undefined);
  assert.equal(typeNameOf('apps.example.com', 'v1', 'Deployment'), 'com.example.apps.v1.Deployment');
  assert.ok(schema.kind('admission.k8s.io', 'v1', 'AdmissionReview') !== undefined);
});

test('options are kinds of every group', () => {
  assert.equal(schema.kind('apps', 'v1', 'DeleteOptions'), schema.kind('', 'v1', 'DeleteOptions'));
  assert.equal(schema.kind('apps', 'v1', 'Nothing'), undefined);
});

test('types know their group, version and kind', () => {
  assert.deepEqual(groupVersionKindOf('io.k8s.api.rbac.v1.Role'), {
    group: 'rbac.authorization.k8s.io',
    version: 'v1',
    kind: 'Role',
  });
});

test('types and fields have texts', () => {
  assert.match(schema.description('io.k8s.api.core.v1.Pod') ?? '', /^Pod is a collection/);
  assert.match(schema.description('io.k8s.api.core.v1.ContainerPort', 'hostIP') ?? '', /host IP/);
  assert.equal(schema.description('io.k8s.api.core.v1.Nothing'), undefined);
});
