/** Tests expressions against the values that the CEL definition specifies. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { authorizerType, authorizerValue } from '../../../../api/cel/authorizer.ts';
import { CelCompileError, compile, runWaiting } from '../../../../api/cel/cel.ts';
import { type CelType, dyn, int, list, string } from '../../../../api/cel/types.ts';
import { toJson } from '../../../../api/cel/json-value.ts';
import { CelError, CostExceeded } from '../../../../api/cel/values.ts';

const OBJECT = {
  metadata: { name: 'web', labels: { app: 'web', 'a.b/c': 'x' } },
  spec: { replicas: 3, ratio: 1.5, items: [{ n: 1 }, { n: 2 }, { n: 3 }], names: ['b', 'a'], empty: {} },
};
const environment = { variables: { object: dyn, authorizer: authorizerType } };
const run = (source: string): unknown => toJson(compile(source, environment).run(() => OBJECT));

const VALUES: readonly (readonly [string, unknown])[] = [
  ['1 + 2 * 3', 7],
  ['-7 / 2', -3],
  ['7 % -3', 1],
  ['1.5 + 2.0', 3.5],
  ['1 < 1.5 && 2u > 1', true],
  ['dyn(1) == 1.0', true],
  ["'a' + 'b' == 'ab' && b'a' + b'b' == b'ab'", true],
  ['[1, 2] + [3] == [1, 2, 3]', true],
  ["{'a': 1}.a", 1],
  ['true ? 1 : 2', 1],
  ['object.spec.replicas > 2', true],
  ['object.spec.ratio * 2.0', 3],
  ["object.metadata.labels['a.b/c']", 'x'],
  ["'app' in object.metadata.labels && !('b' in object.metadata.labels)", true],
  ['has(object.spec.replicas) && !has(object.spec.none)', true],
  ['object.spec.items.all(i, i.n > 0)', true],
  ['object.spec.items.exists(i, i.n == 2)', true],
  ['object.spec.items.exists_one(i, i.n > 1)', false],
  ['object.spec.items.map(i, i.n * 2)', [2, 4, 6]],
  ['object.spec.items.map(i, i.n > 1, i.n)', [2, 3]],
  ['object.spec.items.filter(i, i.n > 1).size()', 2],
  ["object.metadata.labels.all(k, k.startsWith('a'))", true],
  ['[10, 20].all(i, v, v == (i + 1) * 10)', true],
  ["{'a': 1}.transformMap(k, v, v + 1)", { a: 2 }],
  ['[1, 2].transformList(i, v, v > 1, v * 10)', [20]],
  ["{'a': 'b'}.transformMapEntry(k, v, {v: k})", { b: 'a' }],
  ['object.spec.none == 1 || true', true],
  ['has(dyn(null).x) || has(dyn(1).x)', false],
  ["dyn(null).?x.orValue('none')", 'none'],
  ['false && object.spec.none == 1', false],
  ['object.?spec.?none.orValue(5)', 5],
  ['object.spec[?"replicas"].value()', 3],
  ['optional.of(1).optMap(x, x + 1).value()', 2],
  ['[?optional.none(), 1]', [1]],
  ['[optional.of(1), optional.none()].unwrapOpt() + optional.unwrap([optional.of(2)])', [1, 2]],
  ["sign(quantity('-1k')) + sign(quantity('0'))", -1],
  ["{?'a': optional.none(), 'b': 1}", { b: 1 }],
  ["'%s is %d, %.2f, %x'.format([dyn('a'), 1, 1.5, 255])", 'a is 1, 1.50, ff'],
  ["'%s has %d of %s'.format([object.metadata.name, object.spec.replicas, [1, 'a']])", 'web has 3 of [1, "a"]'],
  [
    "'%s %s'.format([{'b': 2.5, 'a': b'x'}, [null, duration('1h')]])",
    '{"a":b"x", "b":2.500000} [null, duration("3600s")]',
  ],
  [
    "'%.1f %e %.12e %f'.format([1234567.25, 0.00001234, 1.0, -1.0 / 0.0])",
    '1,234,567.2 1.234000×10⁻⁰⁵ 1.000000×10⁰⁰ -∞',
  ],
  ['string(1000000.0) + string(123456.5) + string(-0.0)', '1e+06123456.5-0'],
  ["string(quantity('1.5k').isInteger()) + string(quantity('1.0').isInteger())", 'truefalse'],
  ["string('abc'.indexOf('c', 9)) + string([?optional.none(), 1].size())", '-11'],
  ["'%s: %d%%'.format(['a', 50])", 'a: 50%'],
  ['object.spec.items.sortBy(i, -i.n).map(i, i.n)', [3, 2, 1]],
  ["['bb', 'a', 'cc'].sortBy(x, size(x))", ['a', 'bb', 'cc']],
  ["'a,b,c'.split(',', 2)", ['a', 'b,c']],
  ["'hello'.substring(1, 3) + 'x'.upperAscii()", 'elX'],
  ["'tacocat'.indexOf('c') + 'tacocat'.lastIndexOf('c')", 6],
  ["['x', 'y'].join('-')", 'x-y'],
  ["'abc'.matches('^a.c$') && 'a1b2'.findAll('[0-9]') == ['1', '2']", true],
  ['object.spec.names.isSorted()', false],
  ['[3, 1, 2].max() + [3, 1, 2].min() + [1, 2].sum()', 7],
  ['sets.contains([1, 2, 3], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])', true],
  ["quantity('1Gi').isGreaterThan(quantity('1000Mi')) && quantity('50k').add(1000).asInteger() == 51000", true],
  ["ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3') && !isIP('1.2.3')", true],
  ["url('https://a.b:80/c?d=e').getHost() + url('https://a.b:80/c?d=e').getQuery()['d'][0]", 'a.b:80e'],
  ["semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('v1.2', true)", true],
  ["!format.dns1123Label().validate('a-b').hasValue()", true],
  ["format.uri().validate('a b').value()[0]", 'parse "a b": invalid URI for request'],
  ["format.byte().validate('').hasValue() && !format.datetime().validate('2026-01-01t00:00:00z').hasValue()", true],
  ["isURL('mailto:a@b') && !isURL('http://a:b') && url('HTTPS://A.b:443/x y').getEscapedPath() == '/x%20y'", true],
  ["duration('1h30m') > duration('60s') && timestamp('2024-01-02T03:04:05Z').getFullYear() == 2024", true],
  ["timestamp('2024-01-02T03:04:05Z') + duration('1s') == timestamp('2024-01-02T03:04:06Z')", true],
  ["semver('1.0.0-9007199254740992').isLessThan(semver('1.0.0-9007199254740993'))", true],
  ["int(timestamp('1969-12-31T23:59:59.5Z'))", -1],
  ["timestamp('1969-12-31T23:59:59.9999Z').getFullYear()", 1969],
  ["timestamp('1969-12-31T23:59:59.9999Z').getMilliseconds('+00:00')", 999],
  ["timestamp('0050-01-01T00:00:00Z').getFullYear('UTC')", 50],
  ["string(duration('90s')) + string(1) + string(true) + string(2.5)", '90s1true2.5'],
  ["int('42') + int(2.9)", 44],
  ['type(1) == int && type("a") == string', true],
  ["r'a\\b' == 'a\\\\b' && \"\\u0041\" == 'A'", true],
];

describe('an expression has the value that the CEL definition specifies', () => {
  for (const [source, expected] of VALUES) test(source, () => assert.deepEqual(run(source), expected));
});

const FAILURES: readonly (readonly [string, string])[] = [
  ["object.data['x']", 'no such key: data'],
  ['1 / 0', 'division by zero'],
  ['int(object.metadata.name)', "type conversion error from 'string' to 'int'"],
  ['[1][3]', 'index out of bounds: 3'],
  ['9223372036854775807 + 1', 'integer overflow'],
  ['(-9223372036854775807 - 1) % -1', 'integer overflow'],
  ['object.metadata.name + 1', 'no such overload'],
  ['object.spec.items.all(i, i.m > 0)', 'no such key: m'],
];

describe('an evaluation error has a short text', () => {
  for (const [source, expected] of FAILURES) {
    test(source, () =>
      assert.throws(
        () => run(source),
        (error) => error instanceof CelError && error.message === expected,
      ),
    );
  }
});

const person: CelType = {
  kind: 'object',
  name: 'Person',
  field: (name) => ({ name: string, age: int, tags: list(string) })[name],
};
const REFUSED: readonly (readonly [string, string])[] = [
  [
    'self.name > 5',
    "ERROR: <input>:1:11: found no matching overload for '_>_' applied to '(string, int)'\n | self.name > 5\n | ..........^",
  ],
  ['self.nothing', "ERROR: <input>:1:5: undefined field 'nothing'\n | self.nothing\n | ....^"],
  ['other', "ERROR: <input>:1:1: undeclared reference to 'other' (in container '')\n | other\n | ^"],
  [
    'self.tags.all(t, t == 1)',
    "ERROR: <input>:1:20: found no matching overload for '_==_' applied to '(string, int)'\n | self.tags.all(t, t == 1)\n | ...................^",
  ],
  [
    'self.nothing(',
    "ERROR: <input>:1:14: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | self.nothing(\n | .............^",
  ],
  ["[1, 'a'] == [1]", "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a'] == [1]\n | ....^"],
  [
    "{'a': 1, 'b': true}.size() > 1",
    "ERROR: <input>:1:15: expected type 'int' but found 'bool'\n | {'a': 1, 'b': true}.size() > 1\n | ..............^",
  ],
  [
    "duration('soon') > duration('1s')",
    "ERROR: <input>:1:10: invalid duration argument\n | duration('soon') > duration('1s')\n | .........^",
  ],
  [
    "'%d'.format(['x'])",
    "ERROR: <input>:1:14: error during formatting: decimal clause can only be used on integers, was given string\n | '%d'.format(['x'])\n | .............^",
  ],
  [
    "'%z'.format([1])",
    'ERROR: <input>:1:12: could not parse formatting clause: unrecognized formatting clause "z"\n | \'%z\'.format([1])\n | ...........^',
  ],
  ["'%s'.format([])", "ERROR: <input>:1:12: index 0 out of range\n | '%s'.format([])\n | ...........^"],
  [
    "'%s'.format([1, 2])",
    "ERROR: <input>:1:12: too many arguments supplied to string.format (expected 1, got 2)\n | '%s'.format([1, 2])\n | ...........^",
  ],
  [
    "self.name.matches('[')",
    "ERROR: <input>:1:19: invalid matches argument\n | self.name.matches('[')\n | ..................^",
  ],
];

describe('an invalid expression is rejected with its position', () => {
  for (const [source, expected] of REFUSED) {
    test(source, () => {
      assert.throws(
        () => compile(source, { variables: { self: person } }),
        (error) => error instanceof CelCompileError && error.message === expected,
      );
    });
  }
});

test('null and scalars have no members, as the object of a deletion', () => {
  const missing = (source: string): void =>
    assert.throws(
      () => run(source),
      (error) => error instanceof CelError && error.message === 'no such key: x',
    );
  for (const source of ['dyn(null).x', 'dyn(1).x == 1', "dyn('a').x", "dyn(null)['x']"]) missing(source);
  assert.throws(() => run('dyn([1]).x'), /unsupported index type 'string' in list/);
});

test('the index of a list is a whole number, also where types are only known at run time', () => {
  for (const index of ['1', '1u', '1.0']) assert.equal(run(`dyn([1, 2])[dyn(${index})] == 2`), true, index);
  for (const [index, type] of [
    ['true', 'bool'],
    ['null', 'null_type'],
    ["b'1'", 'bytes'],
    ['[1]', 'list'],
    ["'1'", 'string'],
  ] as const)
    assert.throws(() => run(`dyn([1, 2])[dyn(${index})]`), {
      message: `unsupported index type '${type}' in list`,
    });
  assert.throws(() => run('dyn([1, 2])[dyn(0.5)]'), { message: 'unsupported index value 0.5 in list' });
});

test('an expression that would run forever exceeds its budget', () => {
  const nested = 'object.l.all(a, object.l.all(b, object.l.all(c, object.l.all(d, a + b + c + d >= 0))))';
  const items = Array.from({ length: 200 }, (_item, index) => index);
  assert.throws(() => compile(nested, environment).run(() => ({ l: items })), CostExceeded);
});

test('a pattern that needs exponential time in other engines is matched in linear time', () => {
  const program = compile("object.t.matches('^(a+)+$')", environment);
  assert.equal(
    program.run(() => ({ t: `${'a'.repeat(50)}!` })),
    false,
  );
});

test('an expression waits for an asynchronous authorization check, which runs once', async () => {
  let asked = 0;
  const value = authorizerValue(({ verb, resource }) => {
    asked += 1;
    return Promise.resolve({ allowed: verb === 'get' && resource === 'pods', reason: 'because' });
  });
  const source =
    "authorizer.group('').resource('pods').check('get').allowed() && authorizer.group('').resource('pods').check('get').reason() == 'because'";
  assert.equal(
    await runWaiting(compile(source, environment), (name) => (name === 'authorizer' ? value : OBJECT)),
    true,
  );
  assert.equal(asked, 1);
});

test('an expression may make two authorization checks, which are charged once although they are waited for', async () => {
  const value = authorizerValue(({ verb }) => Promise.resolve({ allowed: true, reason: verb }));
  const checks = (verbs: readonly string[]): string =>
    verbs.map((verb) => `authorizer.group('').resource('pods').check('${verb}').allowed()`).join(' && ');
  const evaluate = (verbs: readonly string[], budget: { left: number }) =>
    runWaiting(compile(checks(verbs), environment), (name) => (name === 'authorizer' ? value : OBJECT), budget);
  const budget = { left: 10_000_000 };
  assert.equal(await evaluate(['get', 'list'], budget), true);
  assert.equal(Math.round((10_000_000 - budget.left) / 1000), 700);
  await assert.rejects(evaluate(['get', 'list', 'watch'], { left: 10_000_000 }), CostExceeded);
});

test('the rest of a shared budget is the limit, and only then the error mentions the budget', () => {
  const program = compile('[1, 2, 3, 4, 5, 6, 7, 8, 9].all(i, i > 0)', environment);
  const ofBudget = (left: number) => (error: unknown) =>
    error instanceof CostExceeded && error.ofBudget === left < 1000;
  assert.throws(() => program.run(() => undefined, { left: 5 }), ofBudget(5));
  const costly = compile(`'aaaaaaaaaa'${".split('').join('aaaaaaaaaa')".repeat(12)}`, environment);
  assert.throws(() => costly.run(() => undefined, { left: 10_000_000 }), ofBudget(10_000_000));
});

test('pairs of negations are none, so that any number of them compiles', () => {
  assert.equal(run(`${'!'.repeat(300)}true`), true);
  assert.equal(run(`${'!'.repeat(301)}true`), false);
});

test('an expression that builds ever longer strings exceeds its budget', () => {
  const grown = `'aaaaaaaaaa'${".replace('a', 'aaaaaaaaaa')".repeat(11)}`;
  assert.throws(() => run(grown), CostExceeded);
  assert.throws(() => run(`'aaaaaaaaaa'${".split('').join('aaaaaaaaaa')".repeat(12)}`), CostExceeded);
});

test('replace inserts a string between all characters, as often as requested', () => {
  assert.equal(run("'ab'.replace('', 'x')"), 'xaxbx');
  assert.equal(run("'ab'.replace('', 'x', 2)"), 'xaxb');
  assert.equal(run("'a💩'.replace('', '-')"), '-a-💩-');
  assert.equal(run("'aaa'.replace('a', 'b', 2)"), 'bba');
  assert.equal(run("'aaa'.replace('a', 'b', 0)"), 'aaa');
});

test('a chain of thousands of operators does not compile', () => {
  assert.throws(() => compile(`1${'[0]'.repeat(20_000)}`, environment), CelCompileError);
});

test('a hundred of thousands of errors are reported; an expression of megabytes is rejected', () => {
  const faulty = `[${Array.from({ length: 5000 }, () => 'none').join(',')}]`;
  assert.throws(
    () => compile(faulty, environment),
    (error: Error) => error.message.endsWith('4900 more errors were truncated') && error.message.length < 10_000_000,
  );
  assert.throws(() => compile(' '.repeat(200_000), environment), /code point size exceeds limit/);
});

test('the limit of the size of an expression counts code points', () => {
  const quoted = (characters: number): string => `'${'😀'.repeat(characters)}' != ''`;
  assert.equal(
    compile(quoted(60_000), environment).run(() => ({})),
    true,
  );
  assert.throws(() => compile(quoted(100_000), environment), /exceeds limit: size: 100008, limit 100000$/);
});

const ADDRESS_ERRORS: readonly (readonly [string, string])[] = [
  ["ip('x')", 'IP Address "x" parse error during conversion from string: ParseAddr("x"): unable to parse IP'],
  [
    "ip('1.2.3.256')",
    'IP Address "1.2.3.256" parse error during conversion from string: ParseAddr("1.2.3.256"): IPv4 field has value >255',
  ],
  [
    "ip('1.2.03.4')",
    'IP Address "1.2.03.4" parse error during conversion from string: ParseAddr("1.2.03.4"): IPv4 field has octet with leading zero',
  ],
  [
    "ip('1.2.3')",
    'IP Address "1.2.3" parse error during conversion from string: ParseAddr("1.2.3"): IPv4 address too short',
  ],
  ["ip('fe80::1%eth0')", 'IP address "fe80::1%eth0" with zone value is not allowed'],
  ["ip('::ffff:1.2.3.4')", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'],
  [
    "cidr('10.0.0.0')",
    `network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("10.0.0.0"): no '/'`,
  ],
  [
    "cidr('10.0.0.0/33')",
    'network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("10.0.0.0/33"): prefix length out of range',
  ],
];

for (const [source, wanted] of ADDRESS_ERRORS)
  test(`${source} fails with the text of Go`, () => {
    assert.throws(() => run(source), { message: wanted });
  });

const AUTHORIZER_ERRORS: readonly (readonly [string, string])[] = [
  ["authorizer.path(' ').check('get').allowed()", 'path must not be empty'],
  ["authorizer.group('').resource('').check('get').allowed()", 'resource must not be empty'],
  ["authorizer.serviceAccount('ns', 'a/b').path('/x').check('get').allowed()", 'Invalid service account name'],
  ["authorizer.serviceAccount('a/b', 'x').path('/x').check('get').allowed()", 'Invalid service account namespace'],
];

for (const [source, wanted] of AUTHORIZER_ERRORS)
  test(`the authorizer refuses an argument: ${wanted}`, () => {
    const value = authorizerValue(() => ({ allowed: true, reason: '' }));
    assert.throws(() => compile(source, environment).run(() => value), { message: wanted });
  });
