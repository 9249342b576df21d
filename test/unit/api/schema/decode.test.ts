import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseJson } from '../../../../api/codec/json.ts';
import { completeStruct } from '../../../../api/schema/complete.ts';
import { DecodeError, decodeStruct, unknownFieldErrors } from '../../../../api/schema/decode.ts';
import { withoutEmpties } from '../../../../api/schema/empty-values.ts';
import type { JsonObject, JsonValue } from '../../../../api/meta/object.ts';
import { applyTableDefaults } from '../../../../api/schema/defaults.ts';
import type { StructType, TypeNode } from '../../../../api/schema/schema.ts';
import { loadSchema } from '../../../../api/schema/table.ts';
import { canonicalMicroTime, canonicalTime } from '../../../../api/schema/time.ts';
import { generateObject } from '../../../fakes/generated-object.ts';

function kind(group: string, version: string, name: string): StructType {
  const struct = loadSchema().kind(group, version, name);
  assert.ok(struct !== undefined);
  return struct;
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null) Object.values(Object.freeze(value)).forEach(deepFreeze);
  return value;
}

const pod = kind('', 'v1', 'Pod');
const configMap = kind('', 'v1', 'ConfigMap');

test('an empty pod has its embedded structs', () => {
  assert.deepEqual(decodeStruct(pod, {}).value, { metadata: {}, spec: { containers: null }, status: {} });
});

test('embedded structs and required zero values are printed, optional ones vanish except for empty lists and maps', () => {
  const { value } = decodeStruct(pod, {
    spec: { containers: [{ name: 'c', args: [], env: null, tty: false }], nodeSelector: {} },
  });
  assert.deepEqual(value.spec, { containers: [{ name: 'c', args: [], resources: {} }], nodeSelector: {} });
  const shown = withoutEmpties(pod, value);
  assert.deepEqual(shown['spec'], { containers: [{ name: 'c', resources: {} }] });
  completeStruct(pod, value);
  assert.deepEqual(value.spec, shown['spec']);
});

test('a value without empty lists is returned as it is, and a copy shares what has none', () => {
  const { value } = decodeStruct(pod, { metadata: { name: 'a' }, spec: { containers: [{ name: 'c', args: [] }] } });
  const shown = withoutEmpties(pod, value);
  assert.equal(shown['metadata'], value['metadata']);
  assert.equal(withoutEmpties(pod, shown), shown);
});

test('an empty overhead of a pod is kept, because admission refuses it', () => {
  const { value } = decodeStruct(pod, { spec: { overhead: {}, nodeSelector: {} } });
  completeStruct(pod, value);
  assert.deepEqual(value.spec, { containers: null, overhead: {} });
});

test('a definition, which is stored as JSON, keeps an empty list that is always serialized', () => {
  const struct = kind('apiextensions.k8s.io', 'v1', 'CustomResourceDefinition');
  const { value } = decodeStruct(struct, { status: { conditions: [], storedVersions: null } });
  completeStruct(struct, value);
  assert.deepEqual(value['status'], { acceptedNames: { kind: '', plural: '' }, conditions: [], storedVersions: null });
});

test('references keep their zero values', () => {
  const deployment = decodeStruct(kind('apps', 'v1', 'Deployment'), {
    spec: { replicas: 0, paused: false, template: {} },
  }).value;
  assert.deepEqual(deployment.spec, {
    replicas: 0,
    selector: null,
    strategy: {},
    template: { metadata: {}, spec: { containers: null } },
  });
});

test('names that a type does not have are reported with their path and dropped', () => {
  const { value, unknown } = decodeStruct(pod, {
    spec: { containers: [{ name: 'c', colour: 1 }], shape: 2 },
    Metadata: {},
  });
  assert.deepEqual(unknown, ['spec.containers[0].colour', 'spec.shape', 'Metadata']);
  assert.deepEqual(unknownFieldErrors(unknown)[1], 'unknown field "spec.shape"');
  assert.deepEqual(value.spec, { containers: [{ name: 'c', resources: {} }] });
});

test('quantities and times get their one form', () => {
  const { value } = decodeStruct(pod, {
    metadata: { creationTimestamp: '2024-01-02T05:04:05.5+02:00' },
    spec: { containers: [{ name: 'c', resources: { limits: { cpu: '1000m', memory: 1024, x: '0.5' } } }] },
  });
  assert.deepEqual(value.metadata, { creationTimestamp: '2024-01-02T03:04:05Z' });
  assert.deepEqual(value.spec, {
    containers: [{ name: 'c', resources: { limits: { cpu: '1', memory: '1024', x: '500m' } } }],
  });
});

const ERRORS: readonly [string, StructType, unknown, string][] = [
  [
    'a number for a string',
    configMap,
    { metadata: { name: 1 } },
    'json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string',
  ],
  [
    'a boolean in a map of strings',
    configMap,
    { data: { k: true } },
    'json: cannot unmarshal bool into Go struct field ConfigMap.data of type string',
  ],
  [
    'a list for a map',
    configMap,
    { data: [] },
    'json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string',
  ],
  [
    'a string for a port',
    pod,
    { spec: { containers: [{ ports: [{ containerPort: '80' }] }] } },
    'json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32',
  ],
  [
    'an integer too large',
    kind('scheduling.k8s.io', 'v1', 'PriorityClass'),
    { value: 2147483648 },
    'json: cannot unmarshal number 2147483648 into Go struct field PriorityClass.value of type int32',
  ],
  ['base64 with a blank', configMap, { binaryData: { k: 'YWJ !' } }, 'illegal base64 data at input byte 3'],
  ['base64 cut short', configMap, { binaryData: { k: 'YWJjZ' } }, 'illegal base64 data at input byte 4'],
  [
    'a quantity that is a word',
    pod,
    { spec: { overhead: { cpu: 'much' } } },
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
  ],
  [
    'a long object for a quantity',
    pod,
    { spec: { overhead: { cpu: { much: 'x'.repeat(2000) } } } },
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
  ],
  [
    'a micro time without a fraction',
    kind('coordination.k8s.io', 'v1', 'Lease'),
    { spec: { renewTime: '2024-01-02T03:04:05Z' } },
    'parsing time "2024-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"',
  ],
  [
    'a time that is a word',
    pod,
    { metadata: { deletionTimestamp: 'yesterday' } },
    'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"',
  ],
  [
    'a number for a time, with its field',
    pod,
    { metadata: { creationTimestamp: 5 } },
    'json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string',
  ],
  [
    'a list for a number or a name',
    kind('apps', 'v1', 'Deployment'),
    { spec: { strategy: { rollingUpdate: { maxSurge: [] } } } },
    'json: cannot unmarshal array into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32',
  ],
  [
    'a wrong time before a wrong name, which comes first in the text',
    pod,
    { metadata: { name: [], deletionTimestamp: '' } },
    'parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"',
  ],
  [
    'the first of two wrong names',
    pod,
    { metadata: { namespace: [], name: 1 } },
    'json: cannot unmarshal array into Go struct field ObjectMeta.metadata.namespace of type string',
  ],
  [
    'a value of a named type',
    kind('', 'v1', 'Namespace'),
    { spec: { finalizers: [1] } },
    'json: cannot unmarshal number into Go struct field NamespaceSpec.spec.finalizers of type v1.FinalizerName',
  ],
  [
    'a list for a named map',
    kind('', 'v1', 'LimitRange'),
    { spec: { limits: [{ max: [] }] } },
    'json: cannot unmarshal array into Go struct field LimitRangeItem.spec.limits.max of type v1.ResourceList',
  ],
  [
    'a value in embedded structs',
    kind('admissionregistration.k8s.io', 'v1', 'ValidatingAdmissionPolicy'),
    { spec: { matchConstraints: { resourceRules: [{ scope: true }] } } },
    'json: cannot unmarshal bool into Go struct field NamedRuleWithOperations.spec.matchConstraints.resourceRules.RuleWithOperations.Rule.scope of type v1.ScopeType',
  ],
  [
    'a number beyond a byte in a list of bytes',
    configMap,
    { binaryData: { k: [1, 256] } },
    'json: cannot unmarshal number 256 into Go struct field ConfigMap.binaryData of type uint8',
  ],
  [
    'a wrong value in a schema within a schema',
    kind('apiextensions.k8s.io', 'v1', 'CustomResourceDefinition'),
    { spec: { group: 1, versions: [{ schema: { openAPIV3Schema: { items: { externalDocs: { url: [] } } } } }] } },
    'json: cannot unmarshal array into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.externalDocs.url of type string',
  ],
  [
    'a number for a schema or a boolean',
    kind('apiextensions.k8s.io', 'v1', 'CustomResourceDefinition'),
    { spec: { versions: [{ schema: { openAPIV3Schema: { additionalProperties: 5 } } }] } },
    'boolean or JSON schema expected',
  ],
  ['a list for an object', pod, [], 'json: cannot unmarshal array into Go value of type v1.Pod'],
];

for (const [name, struct, value, message] of ERRORS) {
  test(`refuses ${name}`, () => assert.throws(() => decodeStruct(struct, value), new DecodeError(message)));
}

test('a list of numbers is read as bytes', () => {
  assert.deepEqual(decodeStruct(configMap, { binaryData: { k: [104, null, 105] } }).value['binaryData'], { k: 'aABp' });
});

test('decoding twice changes nothing', () => {
  const value = { metadata: { name: 'e' }, involvedObject: {}, firstTimestamp: '2024-01-02T03:04:05+01:00', count: 3 };
  const once = decodeStruct(kind('', 'v1', 'Event'), value).value;
  assert.deepEqual(decodeStruct(kind('', 'v1', 'Event'), once).value, once);
  assert.equal(once.eventTime, null);
  assert.equal(once.reportingComponent, '');
});

test('a decoded value that lost parts gets back what is always printed', () => {
  const { value } = decodeStruct(pod, {
    spec: { containers: [{ name: 'c' }], nodeName: 'n' },
    status: { phase: 'Running' },
  });
  const { value: whole } = decodeStruct(pod, { spec: { containers: [{ name: 'c' }], nodeName: 'n' } });
  delete value.status;
  completeStruct(pod, value);
  assert.deepEqual(value, whole);
});

test('completing an object drops what became empty, prints what the type always has, and leaves unknown members', () => {
  const value = {
    metadata: {},
    unknown: [],
    spec: { containers: [{ name: 'c', env: [], tty: false }], volumes: null },
  };
  completeStruct(pod, value);
  assert.deepEqual(value, {
    metadata: {},
    unknown: [],
    spec: { containers: [{ name: 'c', resources: {} }] },
    status: {},
  });
});

test('completing a decoded object changes nothing, for every type', () => {
  const schema = loadSchema();
  for (const name of schema.structNames()) {
    const struct = schema.struct(name);
    if (struct === undefined) continue;
    for (let seed = 1; seed <= 3; seed += 1) {
      const { value } = decodeStruct(struct, generateObject(struct, seed));
      const before = structuredClone(value);
      completeStruct(struct, deepFreeze(value));
      assert.deepEqual(value, before, `${name}, seed ${seed}`);
      assert.deepEqual(decodeStruct(struct, value).value, before, `${name}, seed ${seed}`);
    }
  }
});

test('decoding without nulls leaves out the fields that completing restores, for every type', () => {
  const schema = loadSchema();
  for (const name of schema.structNames()) {
    const struct = schema.struct(name);
    if (struct === undefined) continue;
    for (let seed = 1; seed <= 3; seed += 1) {
      const object = generateObject(struct, seed);
      const { value } = decodeStruct(struct, object, { omitsNulls: true });
      const { value: printed } = decodeStruct(struct, object);
      dropNulls(struct, printed);
      assert.deepEqual(value, printed, `${name}, seed ${seed}`);
      completeStruct(struct, value);
      assert.deepEqual(value, decodeStruct(struct, object).value, `${name}, seed ${seed}`);
    }
  }
});

test('decoding without nulls leaves them out of null items and members as well', () => {
  const decode = (omitsNulls: boolean): unknown =>
    decodeStruct(pod, { spec: { containers: [null], volumes: null } }, { omitsNulls }).value['spec'];
  assert.deepEqual(decode(true), { containers: [{ name: '', resources: {} }] });
  const replicaSet = kind('apps', 'v1', 'ReplicaSet');
  const template = { spec: { template: { spec: null, metadata: null } } };
  assert.deepEqual(decodeStruct(replicaSet, template, { omitsNulls: true }).value['spec'], {
    template: { metadata: {}, spec: {} },
  });
});

/** Removes the null fields of a decoded value. */
function dropNulls(struct: StructType, value: JsonObject): void {
  for (const [name, member] of Object.entries(value)) {
    if (member === null) delete value[name];
    else dropNullsWithin(struct.fields.get(name)?.type, member);
  }
}

function dropNullsWithin(type: TypeNode | undefined, value: JsonValue | undefined): void {
  if (typeof value !== 'object' || value === null || type === undefined) return;
  if (type.kind === 'struct') dropNulls(type.struct, value as JsonObject);
  else if (type.kind === 'list') for (const item of value as JsonValue[]) dropNullsWithin(type.items, item);
  else if (type.kind === 'map') for (const item of Object.values(value)) dropNullsWithin(type.values, item);
}

test('the schema sets what it has defaults for', () => {
  const value = { spec: { containers: [{ name: 'c', ports: [{ containerPort: 80 }] }] } };
  applyTableDefaults(pod, value);
  assert.deepEqual(value, { spec: { containers: [{ name: 'c', ports: [{ containerPort: 80, protocol: 'TCP' }] }] } });
});

test('a whole number with a fraction or an exponent is no integer', () => {
  const deployment = loadSchema().kind('apps', 'v1', 'Deployment');
  assert(deployment !== undefined);
  const decode = (text: string): unknown => {
    const { value, decimals } = parseJson(text);
    return decodeStruct(deployment, value, { decimals });
  };
  for (const literal of ['1.0', '1e0', '6E2'])
    assert.throws(() => decode(`{"spec":{"replicas":${literal}}}`), {
      message: `json: cannot unmarshal number ${literal} into Go struct field DeploymentSpec.spec.replicas of type int32`,
    });
  assert.doesNotThrow(() => decode('{"spec":{"replicas":1}}'));
});

test('null bytes in a map become empty text', () => {
  const secret = loadSchema().kind('', 'v1', 'Secret');
  assert(secret !== undefined);
  assert.deepEqual(decodeStruct(secret, { data: { a: null } }).value['data'], { a: '' });
});

describe('what a strategic merge or an apply made', () => {
  const deployment = loadSchema().kind('apps', 'v1', 'Deployment');
  const convert = (spec: JsonObject): JsonValue => {
    assert(deployment !== undefined);
    const { value } = decodeStruct(deployment, { spec }, { isConversion: true });
    return (value['spec'] as JsonObject)['replicas'] ?? null;
  };

  test('reads bytes from numbers alone', () => {
    const secret = loadSchema().kind('', 'v1', 'Secret');
    assert(secret !== undefined);
    const bytesOf = (item: JsonValue): unknown =>
      (decodeStruct(secret, { data: { k: [item] } }, { isConversion: true }).value['data'] as JsonObject)['k'];
    assert.equal(bytesOf(65), 'QQ==');
    assert.equal(bytesOf(256 + 65), 'QQ==');
    assert.throws(() => bytesOf('A'), { message: 'unrecognized type: uint8' });
    assert.throws(() => bytesOf(1.5), { message: 'cannot convert float64 to uint8' });
  });

  test('names unknown fields without the keys of maps', () => {
    const slice = loadSchema().kind('resource.k8s.io', 'v1', 'ResourceSlice');
    assert(slice !== undefined);
    const value = { spec: { devices: [{ name: 'd', attributes: { a: { colour: 1 } } }] } };
    assert.deepEqual(decodeStruct(slice, value).unknown, ['spec.devices[0].attributes.a.colour']);
    assert.deepEqual(decodeStruct(slice, value, { isConversion: true }).unknown, ['spec.devices[0].attributes.colour']);
  });

  test('has integers that are cut to 32 bits', () => {
    assert.deepEqual(
      [2147483648, -2147483649, 4294967297, 9223372036854775807n, 1e20].map((replicas) => convert({ replicas })),
      [-2147483648, 2147483647, 1, -1, 0],
    );
  });

  test('is refused in the words of the conversion of maps', () => {
    const refused: readonly (readonly [JsonObject, string])[] = [
      [{ replicas: '3' }, 'unrecognized type: int32'],
      [{ replicas: true }, 'unrecognized type: int32'],
      [{ replicas: 1.5 }, 'cannot convert float64 to int32'],
      [{ paused: 1 }, 'unrecognized type: bool'],
      [{ template: 'x' }, 'cannot restore struct from: string'],
      [{ template: { metadata: { labels: 7 } } }, 'cannot restore map from int64'],
      [{ template: { metadata: { labels: { a: 7 } } } }, 'cannot convert int64 to string'],
      [{ template: { metadata: { labels: { a: 1.5 } } } }, 'unrecognized type: string'],
      [{ template: { metadata: { finalizers: {} } } }, 'cannot restore slice from map'],
    ];
    for (const [spec, message] of refused) assert.throws(() => convert(spec), { message });
  });
});

test('times have hours to 23, and zones to 24 hours', () => {
  assert.throws(() => canonicalTime('2020-01-01T24:00:00Z'), { message: /hour out of range$/ });
  assert.throws(() => canonicalTime('2020-01-01T00:00:00+25:00'), { message: /time zone offset hour out of range$/ });
  assert.throws(() => canonicalTime('2020-01-01T00:00:00+01:61'), { message: /time zone offset minute out of range$/ });
  assert.equal(canonicalTime('2020-01-02T00:00:00+24:00'), '2020-01-01T00:00:00Z');
});

test('times whose year in UTC has no four digits are refused', () => {
  for (const text of ['9999-12-31T23:59:59-01:00', '0000-01-01T00:00:00+00:01'])
    assert.throws(() => canonicalTime(text), { name: 'TimeError', message: /: year out of range$/ });
  assert.throws(() => canonicalMicroTime('9999-12-31T23:00:00.000000-01:00'), { message: /: year out of range$/ });
  assert.equal(canonicalTime('9999-12-31T23:59:59+00:00'), '9999-12-31T23:59:59Z');
  assert.equal(canonicalTime('0000-01-01T01:00:00+01:00'), '0000-01-01T00:00:00Z');
});
