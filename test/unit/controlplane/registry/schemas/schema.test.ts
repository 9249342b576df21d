import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JsonObject, JsonValue } from '../../../../../api/meta/object.ts';
import { applyDefaults, dropNulls } from '../../../../../controlplane/registry/schemas/defaulting.ts';
import { fitsFormat, unknownFormats } from '../../../../../controlplane/registry/schemas/formats.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { prune } from '../../../../../controlplane/registry/schemas/pruning.ts';
import { validateSchema } from '../../../../../controlplane/registry/schemas/schema-validation.ts';
import { repeatedItems, validateObject } from '../../../../../controlplane/registry/schemas/value-validation.ts';

const text: JsonSchema = { type: 'string' };
const object = (properties: Record<string, JsonSchema>, more: JsonSchema = {}): JsonSchema => ({
  type: 'object',
  properties,
  ...more,
});
const ofSpec = (spec: JsonSchema): JsonSchema => object({ spec });

function faults(spec: JsonSchema, value: unknown): string[] {
  const members = { spec: value } as JsonObject;
  return [...validateObject(members, ofSpec(spec)), ...repeatedItems(members, ofSpec(spec))].map(String);
}

test('single values are refused in the known words', () => {
  const spec = object({
    s: { type: 'string', minLength: 2, maxLength: 4, pattern: '^[a-z]+$' },
    i: { type: 'integer', minimum: 1, maximum: 10, multipleOf: 2 },
    n: { type: 'number', exclusiveMinimum: true, minimum: 0 },
    e: { type: 'string', enum: ['one', 'two'] },
    d: { type: 'string', format: 'date-time' },
    port: { 'x-kubernetes-int-or-string': true },
  });
  const cases: [object, string[]][] = [
    [{ s: 5 }, ['spec.s: Invalid value: "integer": spec.s in body must be of type string: "integer"']],
    [{ s: 'x' }, ['spec.s: Invalid value: "x": spec.s in body should be at least 2 chars long']],
    [{ s: 'abcde' }, ['spec.s: Too long: may not be more than 4 bytes']],
    [{ s: 'ABCDE' }, ['spec.s: Too long: may not be more than 4 bytes']],
    [{ s: 'AB' }, ['spec.s: Invalid value: "AB": spec.s in body should match \'^[a-z]+$\'']],
    [{ i: 0 }, ['spec.i: Invalid value: 0: spec.i in body should be greater than or equal to 1']],
    [
      { i: 11 },
      [
        'spec.i: Invalid value: 11: spec.i in body should be a multiple of 2',
        'spec.i: Invalid value: 11: spec.i in body should be less than or equal to 10',
      ],
    ],
    [{ n: 0 }, ['spec.n: Invalid value: 0: spec.n in body should be greater than 0']],
    [{ e: 'three' }, ['spec.e: Unsupported value: "three": supported values: "one", "two"']],
    [{ d: 'yesterday' }, ['spec.d: Invalid value: "yesterday": spec.d in body must be of type date-time: "yesterday"']],
    [
      { port: true },
      ['spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"'],
    ],
    [{ s: 'ab', i: 2, n: 0.5, e: 'one', d: '2026-01-01T00:00:00Z', port: 'http' }, []],
  ];
  for (const [value, wanted] of cases) assert.deepEqual(faults(spec, value), wanted);
});

test('a factor that is not positive, and a negative maximum, are named in the error', () => {
  const factor = (multipleOf: number): JsonSchema => object({ n: { type: 'number', multipleOf } });
  const declared = (value: number): string =>
    `spec.n: Invalid value: ${value}: factor MultipleOf declared for spec.n must be positive: ${value}`;
  assert.deepEqual(faults(factor(0), { n: 1.5 }), [declared(0)]);
  assert.deepEqual(faults(factor(-1), { n: 2 }), [declared(-1)]);
  // An integer is divided by an integer.
  assert.deepEqual(faults(factor(0.5), { n: 2 }), [declared(0)]);
  const few = object({}, { maxProperties: -1, 'x-kubernetes-preserve-unknown-fields': true });
  assert.deepEqual(faults(few, { a: 1, b: 1 }), ['spec: Too many: 2: has too many items']);
});

test('objects in a list lose all members where the schema has no list', () => {
  const spec = (schema: JsonSchema): readonly string[] =>
    prune({ spec: { a: [{ k: 1 }, [{ m: 2 }]] } }, ofSpec(object({ a: schema }))).unknown;
  assert.deepEqual(spec(text), ['spec.a[0].k', 'spec.a[1][0].m']);
  assert.deepEqual(spec({ type: 'object', 'x-kubernetes-preserve-unknown-fields': true }), []);
});

test('each key of a map list that items do not have is an error', () => {
  const list: JsonSchema = {
    type: 'array',
    items: object({}),
    'x-kubernetes-list-type': 'map',
    'x-kubernetes-list-map-keys': ['k', 'v'],
  };
  const errors = validateSchema(ofSpec(list), { schemaPath: 's', hasStatus: false, isKnown: false }).map(String);
  assert.equal(errors.filter((error) => error.endsWith('entries must all be names of item properties')).length, 2);
});

test('lists, objects and maps are refused in the known words', () => {
  const spec = object({
    l: { type: 'array', minItems: 1, maxItems: 2, items: text },
    o: object({ r: text, s: text }, { required: ['r', 's'] }),
    m: { type: 'object', maxProperties: 1, additionalProperties: { type: 'integer' } },
    set: { type: 'array', 'x-kubernetes-list-type': 'set', items: text },
    map: {
      type: 'array',
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['k'],
      items: object({ k: text, v: text }, { required: ['k'] }),
    },
  });
  const cases: [object, string[]][] = [
    [{ l: [] }, ['spec.l: Invalid value: 0: spec.l in body should have at least 1 items']],
    [
      { l: ['a', 'b', 5] },
      [
        'spec.l[2]: Invalid value: "integer": spec.l[2] in body must be of type string: "integer"',
        'spec.l: Too many: 3: must have at most 2 items',
      ],
    ],
    [{ o: {} }, ['spec.o.r: Required value', 'spec.o.s: Required value']],
    [
      { m: { a: 1, b: 'x' } },
      [
        'spec.m: Too many: 2: must have at most 1 item',
        'spec.m.b: Invalid value: "string": spec.m.b in body must be of type integer: "string"',
      ],
    ],
    [{ set: ['a', 'b', 'a'] }, ['spec.set[2]: Duplicate value: "a"']],
    [{ map: [{ k: 'x' }, { k: 'x' }] }, ['spec.map[1]: Duplicate value: {"k":"x"}']],
    [{ map: [{ v: 'x' }] }, ['spec.map[0].k: Required value']],
  ];
  for (const [value, wanted] of cases) assert.deepEqual(faults(spec, value), wanted);
});

test('fields that the schema does not have are dropped and named', () => {
  const free: JsonSchema = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  const schema = ofSpec(
    object({
      known: text,
      free,
      half: { ...free, properties: { n: object({ m: text }) } },
      map: { type: 'object', additionalProperties: object({ x: { type: 'integer' } }) },
    }),
  );
  const given = {
    apiVersion: 'v1',
    extra: 1,
    spec: {
      known: 'k',
      unknown: 'u',
      free: { any: { thing: 1 } },
      half: { other: 1, n: { m: 'x', p: 'y' } },
      map: { a: { x: 1, y: 2 } },
    },
  };
  const { value, unknown } = prune(given, schema);
  assert.deepEqual(unknown, ['extra', 'spec.unknown', 'spec.half.n.p', 'spec.map.a.y']);
  assert.deepEqual(value, {
    apiVersion: 'v1',
    spec: { known: 'k', free: { any: { thing: 1 } }, half: { other: 1, n: { m: 'x' } }, map: { a: { x: 1 } } },
  });
});

test('defaults fill what is absent, and null where null may not be', () => {
  const schema = ofSpec(
    object({
      size: { type: 'integer', default: 3 },
      nested: object({ on: { type: 'boolean', default: true } }, { default: {} }),
      maybe: { type: 'string', nullable: true, default: 'd' },
      none: text,
    }),
  );
  const value: JsonObject = { spec: { size: null, maybe: null, none: null } };
  applyDefaults(value, schema);
  dropNulls(value, schema);
  assert.deepEqual(value, { spec: { size: 3, maybe: null, nested: { on: true } } });
});

test('schemas that cannot be served are refused', () => {
  const at = 'spec.validation.openAPIV3Schema';
  const place = { schemaPath: at, hasStatus: false, isKnown: false };
  const a = `${at}.properties[spec].properties[a]`;
  // On the wire, the type of a list is any text.
  const odd: object = { 'x-kubernetes-list-type': 'bag' };
  const cases: [JsonSchema, string][] = [
    [
      { properties: { a: text } },
      `${at}.properties[spec].type: Required value: must not be empty for specified object fields`,
    ],
    [
      object({ a: { type: 'text' } }),
      `${a}.type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string"`,
    ],
    [object({ a: { type: 'array' } }), `${a}.items: Required value: must be specified`],
    [
      object({ a: { type: 'string', default: 5 } }),
      `${a}.default: Invalid value: "integer":  in body must be of type string: "integer"`,
    ],
    [
      object({ a: { type: 'integer', minimum: 5, default: 1 } }),
      `${a}.default: Invalid value: 1:  in body should be greater than or equal to 5`,
    ],
    [
      object({ a: { type: 'array', 'x-kubernetes-list-type': 'map', items: object({ k: text }) } }),
      `${a}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map`,
    ],
    [object({ a: { $ref: '#/definitions/x' } }), `${a}.$ref: Forbidden: $ref is not supported`],
    [
      object({ a: object({ b: text }, { default: { b: 'x', c: 1 } }) }),
      `${a}.default: Invalid value: {"b":"x","c":1}: must not have unknown fields`,
    ],
    [
      object({ a: { ...text, default: 'no', 'x-kubernetes-validations': [{ rule: "self == 'yes'" }] } }),
      `${a}.default: Invalid value: "no": failed rule: self == 'yes'`,
    ],
    [
      object({ a: { ...text, 'x-kubernetes-map-type': 'atomic' } }),
      `${a}.type: Invalid value: "string": must be object if x-kubernetes-map-type is specified`,
    ],
    [
      object({ a: { type: 'array', 'x-kubernetes-list-type': 'set', items: object({ b: text }) } }),
      `${a}.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set`,
    ],
    [
      object({ a: { type: 'array', 'x-kubernetes-list-type': 'set', items: { ...text, nullable: true } } }),
      `${a}.items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set`,
    ],
    [
      object({ a: { type: 'object', 'x-kubernetes-embedded-resource': true } }),
      `${a}.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields`,
    ],
    [
      object({ a: { 'x-kubernetes-int-or-string': true, 'x-kubernetes-preserve-unknown-fields': true } }),
      `${a}.x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true`,
    ],
    [
      object({ a: { ...text, oneOf: [{ type: 'string' }] } }),
      `${a}.oneOf[0].type: Forbidden: must be empty to be structural`,
    ],
    [
      object({ a: { ...text, allOf: [{ nullable: true }] } }),
      `${a}.allOf[0].nullable: Forbidden: must be false to be structural`,
    ],
    [
      object({
        a: {
          type: 'array',
          items: { ...text, 'x-kubernetes-validations': [{ rule: 'self == oldSelf' }], maxLength: 9 },
        },
      }),
      `${a}.items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within ${a}`,
    ],
    [
      object({ a: { ...text, 'x-kubernetes-validations': [{ rule: 'true', optionalOldSelf: true }] } }),
      `${a}.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule`,
    ],
    [
      object({ a: { ...text, 'x-kubernetes-validations': [{ rule: 'true', fieldPath: '.b' }] } }),
      `${a}.x-kubernetes-validations[0].fieldPath: Invalid value: ".b": must be a valid path`,
    ],
    [
      object({ a: { ...text, 'x-kubernetes-validations': [{ rule: 'true', message: 'two\nlines' }] } }),
      `${a}.x-kubernetes-validations[0].message: Invalid value: "two\\nlines": must not contain line breaks`,
    ],
    [
      object({ a: { type: 'array', items: text, ...odd } }),
      `${a}.x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map"`,
    ],
  ];
  for (const [spec, wanted] of cases) assert.deepEqual(validateSchema(ofSpec(spec), place).map(String), [wanted]);
  const [pattern] = validateSchema(ofSpec(object({ a: { type: 'string', pattern: '[' } })), place);
  assert.match(String(pattern), /must be a valid regular expression, but isn't: error parsing regexp/);
  assert.deepEqual(validateSchema(ofSpec(object({ a: text })), place), []);
  // Fields in junctions below the root need no declaration outside of them; the branches of an int-or-string may have types.
  const loose = object(
    { a: { 'x-kubernetes-int-or-string': true, anyOf: [{ type: 'integer' }, { type: 'string' }] } },
    { oneOf: [{ properties: { b: { minLength: 1 } } }] },
  );
  assert.deepEqual(validateSchema(ofSpec(loose), place), []);
  const complete = validateSchema({ ...ofSpec(object({})), allOf: [{ properties: { b: { minLength: 1 } } }] }, place);
  assert.deepEqual(complete.map(String), [
    `${at}.properties[b]: Required value: because it is defined in ${at}.allOf[0].properties[b]`,
  ]);
  const [atRoot] = validateSchema({ ...ofSpec(object({})), minProperties: 1 }, { ...place, hasStatus: true });
  assert.match(
    String(atRoot),
    /only \[Description Type .* XValidations\] fields are allowed at the root of the schema/,
  );
});

test('the error of alternatives that do not fit names what the closest one lacks', () => {
  const alternatives: JsonSchema[] = [
    { required: ['a'] },
    { required: ['b', 'c'], properties: { b: { minLength: 2 } } },
  ];
  const spec = (junction: JsonSchema): JsonSchema => object({ a: text, b: text, c: text }, junction);
  const none = '"spec" must validate one and only one schema (oneOf). Found none valid';
  assert.deepEqual(faults(spec({ oneOf: alternatives }), {}), [
    `<nil>: Invalid value: "": ${none}`,
    'spec.a: Required value',
  ]);
  assert.deepEqual(faults(spec({ oneOf: alternatives }), { b: 'x' }), [
    `<nil>: Invalid value: "": ${none}`,
    'spec.b: Invalid value: "x": spec.b in body should be at least 2 chars long',
    'spec.c: Required value',
  ]);
  assert.deepEqual(faults(spec({ oneOf: alternatives }), { a: 'x', b: 'xx', c: 'x' }), [
    '<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives',
  ]);
  assert.deepEqual(faults(spec({ anyOf: alternatives }), { c: 'x' }), [
    '<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)',
    'spec.a: Required value',
  ]);
  assert.deepEqual(faults(spec({ allOf: alternatives }), {}), [
    'spec.a: Required value',
    'spec.b: Required value',
    'spec.c: Required value',
    '<nil>: Invalid value: "": "spec" must validate all the schemas (allOf). None validated',
  ]);
  assert.deepEqual(faults(spec({ not: { required: ['a'] } }), { a: 'x' }), [
    '<nil>: Invalid value: "": "spec" must not validate the schema (not)',
  ]);
});

test('formats take what has their form', () => {
  const cases: readonly (readonly [string, readonly string[], readonly string[]])[] = [
    ['date', ['2024-02-29'], ['2023-02-29', '2024']],
    [
      'date-time',
      ['2024-02-29T01:02:03Z', '2024-02-29T01:02:03.5+01:00', '2024-02-29t23:59:59z'],
      ['2024-02-29', 'yesterday', '2024-02-29 01:02:03Z', '2024-02-29T24:00:00Z', '2024-02-29T01:02:60Z'],
    ],
    ['duration', ['1h30m', '0', '2 days', '1.5s'], ['1', 'soon', '3 moons']],
    ['ipv4', ['10.0.0.1', '::ffff:10.0.0.1'], ['10.0.0', '::1']],
    ['ipv6', ['::1'], ['10.0.0.1']],
    ['cidr', ['10.0.0.0/8', '::/0'], ['10.0.0.0']],
    ['mac', ['00:1b:63:84:45:e6', '001b.6384.45e6'], ['00:1b:63:84:45']],
    ['uuid4', ['123e4567-e89b-42d3-a456-426614174000'], ['123e4567-e89b-42d3-c456-426614174000']],
    ['hostname', ['a', 'a-b', 'db1.example.com', 'xn--a.de'], ['ab-c', 'a.b', 'a.b1', 'a_b.com', 'a.com.', '']],
    ['email', ['a@b', 'Joe <joe@example.com>', '"a b"@c'], ['a', 'a@', 'a@b@c', '@b', 'a b@c']],
    [
      'uri',
      ['http://a', '/a', 'mailto:a@b', 'http:', '*', 'http://a:/x'],
      ['a', '', '?a', 'http://a b', 'http://a/%zz', 'http://a:b'],
    ],
    ['uuid', ['123e4567-e89b-12d3-a456-426614174000'], ['123e4567']],
    ['hexcolor', ['#fff', 'a0B1c2'], ['#ffff']],
    ['rgbcolor', ['rgb(1, 2,255)'], ['rgb(1,2,256)']],
    ['isbn', ['0-306-40615-2', '978-3-16-148410-0'], ['0-306-40615-3']],
    ['creditcard', ['4111 1111 1111 1111'], ['4111 1111 1111 1112']],
    ['ssn', ['111-22-3333'], ['11-22-3333']],
    ['byte', ['aGk=', 'aGkh'], ['aGk', '']],
    ['k8s-short-name', ['a-b'], ['A', 'a.b']],
    ['k8s-long-name', ['a.b'], ['A']],
    ['unknown', ['anything'], []],
  ];
  for (const [format, right, wrong] of cases) {
    for (const value of right) assert.ok(fitsFormat(format, value), `${format}: ${value}`);
    for (const value of wrong) assert.ok(!fitsFormat(format, value), `${format}: not ${value}`);
  }
});

test('formats that a type does not have are found anywhere in a schema', () => {
  const schema: JsonSchema = {
    type: 'object',
    properties: {
      a: { type: 'string', format: 'int64' },
      b: { type: 'array', format: 'cidr', items: { type: 'string', format: 'bogus' } },
      c: { type: 'string', format: 'cidr' },
      d: { type: 'integer', format: 'int32' },
      e: { type: 'object', additionalProperties: { type: 'string', format: 'date-time' } },
    },
  };
  assert.deepEqual(unknownFormats(schema).sort(), ['bogus', 'cidr', 'int64']);
});

test('an integer fits the range of its format', () => {
  const of = (format: string): JsonSchema => ({
    type: 'object',
    properties: { n: { type: 'integer', format } },
  });
  assert.deepEqual(faults(of('int32'), { n: 2147483647 }), []);
  assert.equal(faults(of('int32'), { n: 3_000_000_000 }).length, 1);
  assert.equal(faults(of('int32'), { n: -2147483649 }).length, 1);
  assert.deepEqual(faults(of('int64'), { n: 9223372036854775807n }), []);
  assert.equal(faults(of('int64'), { n: 1e19 }).length, 2);
});

const ofNumber = (n: JsonSchema): JsonSchema => ({ type: 'object', properties: { n } });

test('a number with the format float fits into 32 bits', () => {
  const schema = ofNumber({ type: 'number', format: 'float' });
  assert.deepEqual(faults(schema, { n: 1.5 }), []);
  assert.deepEqual(faults(schema, { n: 1e39 }), [
    '<nil>: Invalid value: "": Checked value must be of type number with format float in spec.n',
  ]);
});

test('bounds of integers are integers, and multiples of fractions are found in spite of rounding', () => {
  assert.deepEqual(faults(ofNumber({ type: 'number', maximum: 4.5, minimum: 3.5 }), { n: 5 }), [
    'spec.n: Invalid value: 5: spec.n in body should be less than or equal to 4',
  ]);
  assert.deepEqual(faults(ofNumber({ type: 'number', minimum: 3.5 }), { n: 3 }), []);
  assert.deepEqual(faults(ofNumber({ type: 'integer', maximum: 4.5 }), { n: 4 }), [
    '<nil>: Invalid value: "": Maximum boundary value must be of type integer (default format) in spec.n',
  ]);
  assert.deepEqual(faults(ofNumber({ type: 'number', multipleOf: 0.1 }), { n: 0.3 }), []);
  // A bound beyond 2^53 is exact in the definition.
  const exact = 9_223_372_036_854_774_807n as unknown as number;
  assert.deepEqual(faults(ofNumber({ type: 'integer', maximum: exact }), { n: 12 }), []);
  assert.deepEqual(faults(ofNumber({ type: 'number', maximum: 1e6 }), { n: 2000000.5 }), [
    'spec.n: Invalid value: 2.0000005e+06: spec.n in body should be less than or equal to 1e+06',
  ]);
});

test('a value of the wrong type is named after the format, and other keywords are checked as well', () => {
  assert.deepEqual(faults(ofNumber({ type: 'string', enum: ['a', 'b'] }), { n: 5 }), [
    'spec.n: Invalid value: "integer": spec.n in body must be of type string: "integer"',
    'spec.n: Unsupported value: 5: supported values: "a", "b"',
  ]);
  assert.deepEqual(faults(ofNumber({ type: 'string', enum: ['a'] }), { n: null }), [
    'spec.n: Invalid value: "null": spec.n in body must be of type string: "null"',
    'spec.n: Unsupported value: null: supported values: "a"',
  ]);
  assert.deepEqual(faults(ofNumber({ type: 'string', format: 'date' }), { n: 5 }), [
    'spec.n: Invalid value: "int64": spec.n in body must be of type date: "int64"',
  ]);
  assert.deepEqual(faults(ofNumber({ type: 'integer', format: 'int32' }), { n: true }), [
    'spec.n: Invalid value: "": spec.n in body must be of type int32: ""',
  ]);
  assert.deepEqual(faults(ofNumber({ type: 'integer', format: 'int32' }), { n: 'x' }), [
    'spec.n: Invalid value: "string": spec.n in body must be of type integer: "string"',
  ]);
});

test('required members are missed after the others were checked', () => {
  const schema: JsonSchema = { type: 'object', required: ['a'], properties: { a: text, b: text } };
  assert.deepEqual(faults(schema, { b: 1 }), [
    'spec.b: Invalid value: "integer": spec.b in body must be of type string: "integer"',
    'spec.a: Required value',
  ]);
});

test('a repeated item is reported once, null has no keys, and an item of a keyed list is an object', () => {
  const keyed = (items: JsonSchema): JsonSchema => ({
    type: 'array',
    'x-kubernetes-list-type': 'map',
    'x-kubernetes-list-map-keys': ['k'],
    items,
  });
  const set: JsonSchema = { type: 'array', 'x-kubernetes-list-type': 'set', items: text };
  const repeated = (schema: JsonSchema, l: JsonValue): string[] =>
    repeatedItems({ l }, { type: 'object', properties: { l: schema } }).map(String);
  assert.deepEqual(repeated(set, ['a', 'a', 'a', 'b']), ['l[1]: Duplicate value: "a"']);
  const items = object({ k: text });
  assert.deepEqual(repeated(keyed(items), [null, {}]), ['l[1]: Duplicate value: {}']);
  assert.deepEqual(repeated(keyed(items), [{ k: 'a' }, 'x', { k: 'a' }]), [
    'l[1]: Invalid value: "x": must be an object for an array of list-type map',
  ]);
  assert.deepEqual(repeated({ type: 'object', additionalProperties: set }, { m: ['a', 'a'] }), [
    'l[m][1]: Duplicate value: "a"',
  ]);
});

test('a bound is rounded as a float64 is, and a refused text is quoted', () => {
  const most = 9_223_372_036_854_775_000n as unknown as number;
  assert.deepEqual(faults(object({ n: { type: 'integer', maximum: most } }), { n: most }), [
    'spec.n: Invalid value: 9223372036854775000: spec.n in body should be less than or equal to 9223372036854774784',
  ]);
  assert.deepEqual(faults(object({ d: { type: 'string', format: 'cidr' } }), { d: 'a\nb' }), [
    'spec.d: Invalid value: "a\\nb": spec.d in body must be of type cidr: "a\\nb"',
  ]);
});
