/** CEL rules of custom resources: when they fail, their messages, and what they accept. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { JsonObject, KubeObject } from '../../../../../api/meta/object.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { customObjectErrors } from '../../../../../controlplane/registry/custom-resources/object-validation.ts';
import { atOnce } from '../../../../../api/machinery/pausing.ts';
import { compileRules } from '../../../../../controlplane/registry/schemas/rule-compilation.ts';
import { validateRules } from '../../../../../controlplane/registry/schemas/rule-validation.ts';

const validateCustomObject = (...args: Parameters<typeof customObjectErrors>) => atOnce(customObjectErrors(...args));

function schemaOf(spec: JsonSchema): JsonSchema {
  return { type: 'object', properties: { spec } };
}

function check(schema: JsonSchema, object: JsonObject, old?: JsonObject): string[] {
  const { errors, rules } = compileRules(schema, 'root');
  assert.deepEqual(errors.map(String), []);
  return validateRules(rules, object, old).map(String);
}

const rules = (...all: JsonObject[]): Pick<JsonSchema, 'x-kubernetes-validations'> => ({
  'x-kubernetes-validations': all,
});

describe('a rule that fails is reported', () => {
  const number: JsonSchema = { type: 'integer', ...rules({ rule: 'self > 0' }) };
  const of = (value: JsonSchema): JsonSchema => schemaOf({ type: 'object', properties: { n: value } });

  test('with its text and the value', () => {
    assert.deepEqual(check(of(number), { spec: { n: 0 } }), ['spec.n: Invalid value: 0: failed rule: self > 0']);
  });
  test('without the value where that is an object, at the field that it names', () => {
    const schema = schemaOf({
      type: 'object',
      properties: { a: { type: 'string' } },
      ...rules({ rule: 'has(self.a)', message: 'a is needed', fieldPath: '.a', reason: 'FieldValueRequired' }),
    });
    assert.deepEqual(check(schema, { spec: {} }), ['spec.a: Required value: a is needed']);
  });
  test('at <nil> for the whole object', () => {
    const schema: JsonSchema = { type: 'object', ...rules({ rule: "self.metadata.name != 'x'" }) };
    assert.deepEqual(check(schema, { metadata: { name: 'x' } }), [
      "<nil>: Invalid value: failed rule: self.metadata.name != 'x'",
    ]);
  });
  test('with the made message, or the plain one where making it fails', () => {
    const rule = { rule: 'self > 0', message: 'plain' };
    const made = { type: 'integer', ...rules({ ...rule, messageExpression: "'is ' + string(self)" }) };
    const failing = { type: 'integer', ...rules({ ...rule, messageExpression: 'string(1 / self)' }) };
    assert.deepEqual(check(of(made), { spec: { n: 0 } }), ['spec.n: Invalid value: 0: is 0']);
    assert.deepEqual(check(of(failing), { spec: { n: 0 } }), ['spec.n: Invalid value: 0: plain']);
  });
});

describe('a member whose name is a reserved word', () => {
  for (const name of ['namespace', 'package', 'for', 'if', 'as', 'const', 'return']) {
    test(`${name} is read by its name and by its escaped form`, () => {
      const schema = schemaOf({
        type: 'object',
        properties: { [name]: { type: 'string' } },
        ...rules({ rule: `self.${name} == 'a'` }, { rule: `self.__${name}__ == 'a' && has(self.${name})` }),
      });
      assert.deepEqual(check(schema, { spec: { [name]: 'a' } }), []);
      assert.equal(check(schema, { spec: { [name]: 'b' } }).length, 2);
    });
  }
});

describe('the old value', () => {
  const schema = schemaOf({
    type: 'object',
    properties: {
      fixed: { type: 'string', ...rules({ rule: 'self == oldSelf' }) },
      once: { type: 'string', ...rules({ rule: '!oldSelf.hasValue()', optionalOldSelf: true }) },
      wrong: { type: 'integer', ...rules({ rule: 'self > 0' }) },
      list: {
        type: 'array',
        'x-kubernetes-list-type': 'map',
        'x-kubernetes-list-map-keys': ['k'],
        items: {
          type: 'object',
          properties: { k: { type: 'string' }, v: { type: 'integer', ...rules({ rule: 'self >= oldSelf' }) } },
        },
      },
    },
  });

  test('does not run where the field is absent', () => {
    assert.deepEqual(check(schema, { spec: { fixed: 'a', once: 'x' } }), []);
  });
  test('binds what may not change', () => {
    assert.equal(check(schema, { spec: { fixed: 'b' } }, { spec: { fixed: 'a' } }).length, 1);
    assert.equal(check(schema, { spec: { once: 'x' } }, { spec: { once: 'x' } }).length, 1);
  });
  test('excuses what was wrong before and has not changed', () => {
    assert.deepEqual(check(schema, { spec: { wrong: 0 } }, { spec: { wrong: 0 } }), []);
    assert.equal(check(schema, { spec: { wrong: -1 } }, { spec: { wrong: 0 } }).length, 1);
  });
  test('of an item is found by its key', () => {
    const old = {
      spec: {
        list: [
          { k: 'a', v: 1 },
          { k: 'b', v: 5 },
        ],
      },
    };
    const next = {
      spec: {
        list: [
          { k: 'b', v: 4 },
          { k: 'a', v: 2 },
        ],
      },
    };
    assert.deepEqual(check(schema, next, old), ['spec.list[0].v: Invalid value: 4: failed rule: self >= oldSelf']);
  });
});

test('names that CEL cannot write are escaped', () => {
  const schema = schemaOf({
    type: 'object',
    properties: { 'a-b': { type: 'integer' }, namespace: { type: 'string' } },
    ...rules({ rule: "self.a__dash__b > 0 && self.__namespace__ != ''" }),
  });
  assert.deepEqual(check(schema, { spec: { 'a-b': 1, namespace: 'n' } }), []);
  assert.equal(check(schema, { spec: { 'a-b': 0, namespace: 'n' } }).length, 1);
});

test('rules that do not compile are refused with their place', () => {
  const schema = schemaOf({ type: 'string', ...rules({ rule: 'self > 5' }) });
  const [error] = compileRules(schema, 'root').errors;
  assert.equal(error?.field, 'root.properties[spec].x-kubernetes-validations[0].rule');
  assert.match(error.detail, /found no matching overload for '_>_' applied to '\(string, int\)'/);
});

test('all rules of an object share one budget', () => {
  const schema = schemaOf({
    type: 'array',
    items: { type: 'array', items: { type: 'integer' }, ...rules({ rule: 'self.all(a, self.all(b, a + b >= 0))' }) },
  });
  const row = Array.from({ length: 300 }, (_item, index) => index);
  const errors = check(schema, { spec: Array.from({ length: 60 }, () => row) });
  assert.match(errors.at(-1) ?? '', /running out of cost budget/);
});

test('a value that failed before and has not changed is accepted with a warning, also inside of lists without keys', () => {
  const schema = schemaOf({
    type: 'object',
    properties: {
      list: { type: 'array', items: { type: 'integer', ...rules({ rule: 'self > 0' }) } },
      map: { type: 'object', additionalProperties: { type: 'integer', ...rules({ rule: 'self > 0' }) } },
    },
  });
  const { rules: compiled } = compileRules(schema, 'root');
  const warnings: string[] = [];
  const judge = (spec: JsonObject, old: JsonObject): string[] =>
    validateRules(compiled, { spec }, { spec: old }, { warn: (text) => warnings.push(text) }).map(String);
  assert.deepEqual(judge({ list: [0], map: { a: 0 } }, { list: [0], map: { a: 0 } }), []);
  assert.deepEqual(warnings, [
    'spec.list[0]: Invalid value: 0: failed rule: self > 0',
    'spec.map[a]: Invalid value: 0: failed rule: self > 0',
  ]);
  assert.deepEqual(judge({ list: [0, 1], map: { a: 0, b: 0 } }, { list: [0], map: { a: 0 } }), [
    'spec.list[0]: Invalid value: 0: failed rule: self > 0',
    'spec.map[b]: Invalid value: 0: failed rule: self > 0',
  ]);
});

test('an error of a running rule is reported with the type of the value and the text of the rule', () => {
  const schema = schemaOf({
    type: 'object',
    properties: {
      port: { 'x-kubernetes-int-or-string': true, ...rules({ rule: 'self < 5' }) },
      n: { type: 'integer' },
    },
    ...rules({ rule: 'self.n > 0', message: 'n must be there' }),
  });
  assert.deepEqual(check(schema, { spec: { port: 'http' } }), [
    'spec: Invalid value: "object": no such key: n evaluating rule: n must be there',
    'spec.port: Invalid value: "": \'no such overload\': call arguments did not match a supported operator, function or macro signature for rule: self < 5',
  ]);
});

test('nothing passes a rule of a stored definition that does not compile, changed or not', () => {
  const n: JsonSchema = { type: 'integer', ...rules({ rule: "self > 'x'" }, { rule: 'self' }, { rule: 'self > 0' }) };
  const { rules: compiled } = compileRules(schemaOf({ type: 'object', properties: { n } }), 'root');
  const judge = (spec: JsonObject, old?: JsonObject): string[] =>
    validateRules(compiled, { spec }, old && { spec: old }).map(String);
  const [first = '', ...others] = judge({ n: 0 });
  assert.match(first, /^spec\.n: Invalid value: "integer": rule compile error: compilation failed: ERROR: /);
  const noBool = 'spec.n: Invalid value: "integer": rule compile error: cel expression must evaluate to a bool';
  assert.deepEqual(others, [noBool, 'spec.n: Invalid value: 0: failed rule: self > 0']);
  assert.deepEqual(judge({ n: 0 }, { n: 0 }), [first, noBool]);
  assert.deepEqual(judge({}), []);
});

test('alternatives that did not fit before are let through as long as their value has not changed', () => {
  const text: JsonSchema = { type: 'string' };
  const one: JsonSchema = {
    type: 'object',
    properties: { a: text, b: text },
    oneOf: [{ required: ['a'] }, { required: ['b'] }],
  };
  const schema = schemaOf({ type: 'object', properties: { one, other: text } });
  const { rules: compiled } = compileRules(schema, 'root');
  const validator = { schema, rules: compiled, scale: undefined };
  const object = (spec: JsonObject): KubeObject => ({ metadata: { name: 'x' }, spec });
  const judge = (spec: JsonObject, old?: JsonObject): string[] =>
    validateCustomObject(validator, object(spec), old === undefined ? undefined : object(old)).map(String);
  const none = '<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid';
  assert.deepEqual(judge({ one: {} }), [none, 'spec.one.a: Required value']);
  assert.deepEqual(judge({ one: {}, other: 'new' }, { one: {} }), []);
  const both =
    '<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives';
  assert.deepEqual(judge({ one: { a: '1', b: '2' } }, { one: {} }), [both]);
});

test('a status is validated by itself, with paths within it in the texts', () => {
  const rules = [{ rule: 'self.spec.n > 0' }];
  const schema = {
    ...schemaOf({ type: 'object', properties: { n: { type: 'integer', maximum: 1 } } }),
    'x-kubernetes-validations': rules,
  } as JsonSchema;
  const status: JsonSchema = {
    type: 'object',
    properties: { count: { type: 'integer', maximum: 5 }, phase: { type: 'string', enum: ['New', 'Done'] } },
  };
  const whole = { ...schema, properties: { ...schema.properties, status } };
  const validator = { schema: whole, rules: compileRules(whole, 'root').rules, scale: undefined };
  const object = (value: JsonObject): KubeObject => ({ metadata: { name: 'x' }, spec: { n: 9 }, status: value });
  const judge = (value: JsonObject): string[] =>
    validateCustomObject(validator, object(value), object({}), { statusOnly: true }).map(String);
  const blocked =
    '<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation';
  assert.deepEqual(judge({ count: 9, phase: 'Old' }), [
    'status.count: Invalid value: 9: count in body should be less than or equal to 5',
    'status.phase: Unsupported value: "Old": supported values: "New", "Done"',
    blocked,
  ]);
  assert.deepEqual(judge({ count: 1 }), []);
});

test('a number that its format cannot hold is refused without a field', () => {
  const schema = schemaOf({ type: 'object', properties: { small: { type: 'integer', format: 'int32' } } });
  const validator = { schema, rules: compileRules(schema, 'root').rules, scale: undefined };
  const object: KubeObject = { metadata: { name: 'x' }, spec: { small: 3_000_000_000 } };
  assert.deepEqual(validateCustomObject(validator, object, undefined).map(String), [
    '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.small',
  ]);
});

test('a list that had an item twice may keep it', () => {
  const list: JsonSchema = { type: 'array', items: { type: 'string' } };
  const schema = schemaOf({ type: 'object', properties: { l: { ...list, 'x-kubernetes-list-type': 'set' } } });
  const validator = { schema, rules: compileRules(schema, 'root').rules, scale: undefined };
  const object = (l: string[]): KubeObject => ({ metadata: { name: 'x' }, spec: { l } });
  const judge = (l: string[], old: string[]): string[] =>
    validateCustomObject(validator, object(l), object(old)).map(String);
  assert.deepEqual(judge(['a', 'a', 'b'], ['a', 'a']), []);
  assert.deepEqual(judge(['a', 'a'], ['a']), ['spec.l[1]: Duplicate value: "a"']);
});
