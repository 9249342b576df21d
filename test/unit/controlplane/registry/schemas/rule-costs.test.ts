/** Compares the estimated cost of rules with that of kube-apiserver for the same rules and schemas. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { compile } from '../../../../../api/cel/cel.ts';
import { list, string } from '../../../../../api/cel/types.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { ruleTypeOf, sizesOf } from '../../../../../controlplane/registry/schemas/rule-types.ts';
import { validateSchema } from '../../../../../controlplane/registry/schemas/schema-validation.ts';

type Limited = (most: number | undefined) => JsonSchema;

const plain = (type: string): JsonSchema => {
  if (type === 'int-or-string') return { 'x-kubernetes-int-or-string': true };
  return ['duration', 'date', 'date-time', 'byte'].includes(type) ? { type: 'string', format: type } : { type };
};
const items = (most: number | undefined): JsonSchema => (most === undefined ? {} : { maxItems: most });
const members = (most: number | undefined): JsonSchema => (most === undefined ? {} : { maxProperties: most });
const length = (most: number | undefined): JsonSchema => (most === undefined ? {} : { maxLength: most });

const listOf =
  (item: JsonSchema): Limited =>
  (most) => ({ type: 'array', items: item, ...items(most) });
const mapOf =
  (item: JsonSchema): Limited =>
  (most) => ({ type: 'object', additionalProperties: item, ...members(most) });
const text: Limited = (most) => ({ type: 'string', ...length(most) });
const pair: JsonSchema = {
  type: 'object',
  properties: { required: { type: 'string' }, optional: { type: 'string' } },
  required: ['required'],
};

function costOf(schema: JsonSchema, rule: string): number {
  const type = ruleTypeOf(schema, { isResource: false });
  assert.ok(type);
  const environment = { variables: { self: type.type, oldSelf: type.type }, sizeAt: sizesOf(type) };
  const { maxCost } = compile(rule, environment);
  assert.ok(maxCost !== undefined);
  return maxCost;
}

const ALL = 'self.all(x, true)';
const HAS = 'has(self.x)';

/**
 * The name, the schema, the rule, the cost without limits, the limit, and the cost with the limit. `null` is any cost that
 * exceeds the budget.
 */
const CASES: readonly (readonly [string, Limited, string, number | null, number, number])[] = [
  ['numbers with all', listOf(plain('number')), ALL, 4718591, 10, 32],
  ['strings with all', listOf(plain('string')), ALL, 3145727, 20, 62],
  ['booleans with all', listOf(plain('boolean')), ALL, 1887437, 5, 17],
  ['lists of numbers with all', listOf({ type: 'array', items: plain('number') }), ALL, 3145727, 100, 302],
  ['objects with all', listOf(pair), ALL, 555128, 50, 152],
  ['a map of numbers with all', mapOf(plain('number')), ALL, 1348169, 10, 32],
  ['a map with has', mapOf(plain('number')), HAS, 1, 100, 1],
  ['a map of strings with all', mapOf(plain('string')), ALL, 1179647, 3, 11],
  ['a map of booleans with all', mapOf(plain('boolean')), ALL, 943718, 100, 302],
  ['contains', text, "self.contains('test')", 314574, 10, 5],
  ['startsWith', text, "self.startsWith('test')", 2, 15, 2],
  ['endsWith', text, "self.endsWith('test')", 2, 30, 2],
  ['concatenation', text, 'size(self + "hello") > size("hello")', 314578, 4, 7],
  ['an index of numbers', listOf(plain('number')), 'self[1] == 0.0', 2, 5000, 2],
  ['an index of strings', listOf(plain('string')), 'self[1] == self[1]', 314577, 8, 314577],
  ['two loops', listOf(plain('number')), 'self.all(x, self.all(y, true))', null, 10, 352],
  ['three loops', listOf(plain('number')), 'self.all(x, self.all(y, self.all(z, true)))', null, 10, 3552],
  ['matches', text, 'self.matches("x")', 314574, 50, 22],
  ['matches of nothing', text, '"".matches("(((((((((())))))))))[0-9]")', 7, 10, 7],
  ['matches with an empty pattern', text, 'self.matches("")', 1, 100, 1],
  [
    'keys and values of a map',
    (most) => ({ type: 'object', additionalProperties: text(most), ...members(most) }),
    'self.all(x, x.contains(self[x]))',
    2752507,
    10,
    72,
  ],
  ['a list of no items', listOf(plain('number')), 'self[3] == 0.0', 2, 0, 2],
  ['a map of no members', mapOf(plain('number')), 'self["x"] == 0.0', 2, 0, 2],
  ['a text of no characters', text, 'self == "x"', 2, 0, 1],
  ['bytes of no length', (most) => ({ ...plain('byte'), ...length(most) }), 'self == b"x"', 2, 0, 1],
  ['a limit beyond what fits', listOf(plain('number')), 'self.all(x, x == 0.0)', 6291454, 3 * 1024 * 2048, 25165826],
  [
    'nested types with limits everywhere',
    (most) => ({
      type: 'array',
      items: { type: 'object', additionalProperties: pair, ...members(most) },
      ...items(most),
    }),
    'self.all(x, x["y"].required == "z")',
    7340027,
    10,
    72,
  ],
  [
    'nested types with a limit inside',
    (most) => ({ type: 'array', items: { type: 'object', additionalProperties: pair, ...members(most) } }),
    'self.all(x, x["y"].required == "z")',
    7340027,
    10,
    7340027,
  ],
  ['ints or strings with all', listOf(plain('int-or-string')), ALL, 4718591, 10, 32],
  ['an index of ints or strings', listOf(plain('int-or-string')), 'self[0] == 5', 3, 10, 3],
  ['an index of booleans', listOf(plain('boolean')), 'self[0] == false', 2, 25, 2],
  ['an index of objects', listOf(pair), 'self[0] == null', 2, 422, 2],
  ['an index of an index', listOf({ type: 'array', items: plain('number') }), 'self[0][0] == -1.0', 3, 51, 3],
  ['maps with all', listOf(mapOf(plain('number'))(undefined)), 'self.all(x, x.y == 25.2)', 6291452, 12, 74],
  ['a member of an item', listOf(mapOf(plain('number'))(undefined)), 'self[0].x > 2.0', 4, 3000, 4],
  ['durations with all', listOf(plain('duration')), ALL, 2359295, 5, 17],
  ['an index of durations', listOf(plain('duration')), 'self[0].getHours() == 2', 4, 525, 4],
  ['dates with all', listOf(plain('date')), ALL, 725936, 15, 47],
  ['an index of dates', listOf(plain('date')), 'self[2].getDayOfMonth() == 13', 4, 42, 4],
  ['times with all', listOf(plain('date-time')), ALL, 428963, 25, 77],
  ['a map of ints or strings', mapOf(plain('int-or-string')), ALL, 1348169, 15, 47],
  ['a map of objects', mapOf(pair), ALL, 428963, 20, 62],
  ['a map of maps', mapOf(mapOf(plain('number'))(undefined)), ALL, 1179647, 10, 32],
  ['a map of lists', mapOf({ type: 'array', items: plain('number') }), ALL, 1179647, 25, 77],
  ['a map of durations', mapOf(plain('duration')), ALL, 1048577, 5, 17],
  ['a map of dates', mapOf(plain('date')), ALL, 524288, 10, 32],
  ['a map of times', mapOf(plain('date-time')), ALL, 349526, 25, 77],
  ['find', text, "self.find('[0-9]+') == ''", 629147, 10, 11],
  [
    'join',
    (most) => ({ type: 'array', items: text(most), ...items(most) }),
    "self.join(' ') == 'aa bb'",
    329853068905,
    10,
    43,
  ],
  [
    'isSorted',
    (most) => ({ type: 'array', items: text(most), ...items(most) }),
    'self.isSorted() == true',
    329854432052,
    10,
    52,
  ],
  [
    'replace',
    (most) => ({ type: 'object', properties: { str: text(most), before: text(2), after: text(4) } }),
    "self.str.replace(self.before, self.after) == 'does not matter'",
    629154,
    4,
    12,
  ],
  [
    'split',
    (most) => ({ type: 'object', properties: { str: text(most), separator: text(most) } }),
    'self.str.split(self.separator) == []',
    629160,
    10,
    22,
  ],
  ['lowerAscii', text, "self.lowerAscii() == 'lower!'", 314575, 10, 6],
  ['a quantity', text, 'quantity(self).isInteger()', 314575, 10, 6],
  ['an IP address in a range', text, "cidr('10.0.0.0/8').containsIP(self)", 314579, 10, 10],
  ['the format of a name', text, 'format.dns1123Label().validate(self).hasValue()', 10066339, 10, 131],
  ['sizes', mapOf(plain('integer')), 'oldSelf.size() == self.size()', 5, 10, 5],
  ['times of a map', mapOf(plain('date-time')), 'self["a"] == self["b"]', 8, 7, 8],
  ['durations of a map', mapOf(plain('duration')), 'self["c"] == self["d"]', 8, 42, 8],
  [
    'values that are printed',
    (most) => ({ type: 'string', enum: ['A', 'B', 'C', 'LongValue'], ...length(most) }),
    "self.contains('A')",
    2,
    1000,
    401,
  ],
];

describe('the cost of a rule is estimated as kube-apiserver does', () => {
  for (const [name, schema, rule, unlimited, most, limited] of CASES) {
    test(name, () => {
      const open = costOf(schema(undefined), rule);
      if (unlimited === null) assert.ok(open > 10_000_000, String(open));
      else assert.equal(open, unlimited);
      assert.equal(costOf(schema(most), rule), limited);
    });
  }
});

test('a loop over what the expression makes itself costs by what it made', () => {
  const environment = { variables: { self: list(string) }, libraries: { bindings: true }, sizeAt: (): number => 10 };
  const cost = (rule: string): number | undefined => compile(rule, environment).maxCost;
  // A list of 1 and the sum with it, ten times: 10 + 1 + 10 × (12 + 1) + 1.
  assert.equal(cost('self.map(x, x).size() >= 0'), 1 + 10 + 10 * 13 + 1 + 1 + 1);
  assert.equal(cost('self.exists_one(x, true)'), 1 + 10 * 2 + 2);
  assert.equal(cost('cel.bind(x, self, x.size() > 0)'), 10 + 1 + 1 + 1 + 1);
});

describe('a definition whose rules may cost too much is refused', () => {
  const at = 'spec.validation.openAPIV3Schema';
  const place = { schemaPath: at, hasStatus: false, isKnown: false };
  const spec = (tags: JsonSchema): JsonSchema => ({
    type: 'object',
    properties: { spec: { type: 'object', properties: { tags } } },
  });
  const rule = { 'x-kubernetes-validations': [{ rule: "self.all(x, x.contains('gpu'))" }] };
  const hint =
    '(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)';
  const where = `${at}.properties[spec].properties[tags].x-kubernetes-validations[0].rule`;

  test('with the rule, what it adds to the whole, and the whole', () => {
    const found = validateSchema(spec({ type: 'array', items: { type: 'string' }, ...rule }), place).map(String);
    assert.deepEqual(found, [
      `${where}: Forbidden: estimated rule cost exceeds budget by factor of more than 100x ${hint}`,
      `${where}: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema`,
      `${at}: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x ${hint}`,
    ]);
  });

  /** The maximum length of a list that is accepted, by the length of its texts. */
  const LARGEST: readonly (readonly [number, number])[] = [
    [16, 909_090],
    [63, 333_333],
    [253, 94_339],
    [1024, 24_154],
  ];
  for (const [maxLength, maxItems] of LARGEST) {
    test(`at ${maxLength} characters beyond ${maxItems} items`, () => {
      const tags = (most: number): JsonSchema => ({
        type: 'array',
        maxItems: most,
        items: { type: 'string', maxLength },
        ...rule,
      });
      assert.deepEqual(validateSchema(spec(tags(maxItems)), place), []);
      const [error] = validateSchema(spec(tags(maxItems + 1)), place).map(String);
      assert.match(error ?? '', /estimated rule cost exceeds budget by factor of 1\.0000\d\dx/);
      assert.deepEqual(
        validateSchema(spec(tags(maxItems + 1)), { ...place, isKnown: true }),
        [],
        'unless it was there',
      );
    });
  }

  test('as often as its value may stand in the object', () => {
    const inner: JsonSchema = {
      type: 'string',
      maxLength: 100,
      'x-kubernetes-validations': [{ rule: "self.contains('gpu')" }],
    };
    const many = (maxItems?: number): JsonSchema =>
      spec({ type: 'array', items: inner, ...(maxItems === undefined ? {} : { maxItems }) });
    assert.deepEqual(validateSchema(many(1000), place), []);
    const [error] = validateSchema(many(), place).map(String);
    // (3 MiB / (2 + 1)) × 41
    assert.match(error ?? '', /items\.x-kubernetes-validations\[0\]\.rule: Forbidden: .* by factor of 4\.3x/);
  });

  test('for its message too', () => {
    const tags: JsonSchema = {
      type: 'integer',
      'x-kubernetes-validations': [{ rule: 'self > 0', messageExpression: "'is ' + string(self)" }],
    };
    const [error] = validateSchema(spec(tags), place).map(String);
    assert.match(
      error ?? '',
      /messageExpression: Forbidden: estimated messageExpression cost exceeds budget by factor of more than 100x/,
    );
  });
});
