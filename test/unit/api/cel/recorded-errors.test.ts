/**
 * Compares which functions are declared, and the errors of expressions that do not compile, with the answers of
 * apiextensions-apiserver 1.36 for the same rules of a definition.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { PATCH_DECLARATIONS } from '../../../../api/cel/admission-variables.ts';
import { CelCompileError, type CelEnvironment, compile } from '../../../../api/cel/cel.ts';
import { DEVICE_ENVIRONMENT } from '../../../../api/cel/device-environment.ts';
import { bool, bytes, type CelType, duration, int, list, map, string, timestamp } from '../../../../api/cel/types.ts';

const FIELDS: Readonly<Record<string, CelType>> = {
  s: string,
  i: int,
  b: bool,
  by: bytes,
  d: duration,
  t: timestamp,
  l: list(string),
  li: list(int),
  m: map(string, string),
};
const self: CelType = { kind: 'object', name: 'Self', field: (name) => FIELDS[name] };

/** Returns the faults as `line:column: message`, without the lines that quote the source. */
function faultsOf(source: string, environment: CelEnvironment = { variables: { self } }): string[] {
  try {
    compile(source, environment);
    return [];
  } catch (error) {
    if (!(error instanceof CelCompileError)) throw error;
    if (error.stage !== 'compilation') return [error.reason];
    return error.message.split('\n').flatMap((line) => line.match(/^ERROR: <input>:(.*)$/)?.[1] ?? []);
  }
}

const undeclared = (at: number, name: string): string => `1:${at}: undeclared reference to '${name}' (in container '')`;
const noOverload = (at: number, name: string, applied: string): string =>
  `1:${at}: found no matching overload for '${name}' applied to '${applied}'`;
const VALUES = "'.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const STARTS = `{'[', '{', '(', ${VALUES}`;

const RECORDED: readonly (readonly [string, ...string[]])[] = [
  ['math.greatest(1, 2) == 2', undeclared(1, 'math'), undeclared(14, 'greatest')],
  ['math.bitAnd(1, 2) == 0', undeclared(1, 'math'), undeclared(12, 'bitAnd')],
  ['cel.bind(x, 1, x == 1)', undeclared(1, 'cel'), undeclared(9, 'bind'), undeclared(10, 'x'), undeclared(16, 'x')],
  ["base64.encode(b'a') == 'YQ=='", undeclared(1, 'base64'), undeclared(14, 'encode')],
  ["self.s.reverse() == 'a'", noOverload(15, 'reverse', 'string.()')],
  ["self.l.reverse() == ['a']"],
  ["jsonpatch.escapeKey('a/b') == 'a~1b'", undeclared(1, 'jsonpatch'), undeclared(20, 'escapeKey')],
  ["quantity('1k').sign() == 1", noOverload(20, 'sign', 'kubernetes.Quantity.()')],
  ["sign(quantity('1k')) == 1"],
  ["self.l.existsOne(v, v == 'a')", undeclared(17, 'existsOne'), undeclared(18, 'v'), undeclared(21, 'v')],
  ["self.l.existsOne(i, v, v == 'a')"],
  ['optional.unwrap([optional.of(1)]) == [1]'],
  ['[optional.of(1)].unwrapOpt() == [1]'],
  [
    "regex.replace('a', 'a', 'b') == 'b'",
    undeclared(1, 'regex'),
    noOverload(14, 'replace', '!error!.(string, string, string)'),
  ],
  ['self.ip.isIP()', "1:5: undefined field 'ip'", noOverload(13, 'isIP', '!error!.()')],
  ['self.l.sortBy(e)', undeclared(14, 'sortBy'), undeclared(15, 'e')],
  ['type(self.t) == google.protobuf.Timestamp && type(optional.none()) == optional_type'],
  ["type(ip('1.1.1.1')) == net.IP"],
  ["int('a') == 1", "program instantiation failed: type conversion error from 'string' to 'int'"],
  ['uint(-1) == 1u', 'program instantiation failed: unsigned integer overflow'],
  ["self.s.find('[') == ''", 'program instantiation failed: error parsing regexp: missing closing ]: `[`'],
  ['timestamp(99999999999999) == self.t', '1:11: invalid timestamp argument'],
  ['has(self.s.a)', "1:4: type 'string' does not support field selection"],
  ['has(self.z)', "1:4: undefined field 'z'"],
  ['has(self)', '1:5: invalid argument to has() macro'],
  ['has(self.l[0]) && self.z', '1:11: invalid argument to has() macro'],
  ['has(self.?o)', '1:9: invalid argument to has() macro'],
  ['self.l.all(1, true)', '1:12: argument must be a simple name'],
  ['self.m.transformList(k, k, true) == []', '1:25: duplicate variable name: k'],
  ['self.l.all(__result__, true)', '1:12: iteration variable overwrites accumulator variable'],
  [
    'self.i.all(x, true)',
    "1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
  ],
  ["self.l.filter(x, x) == ['a']", noOverload(14, '_?_:_', '(string, list(string), list(string))')],
  ['self.li.map(x, x, x * 2) == [2]', noOverload(12, '_?_:_', '(int, list(int), list(int))')],
  ['[[1]].sort() == []', noOverload(11, 'sort', 'list(list(int)).()')],
  ['self.l.flatten() == []', noOverload(15, 'flatten', 'list(string).()')],
  ['18446744073709551616u == 1u', '1:1: invalid uint literal'],
  ['1e999 == 1.0', '1:1: invalid double literal'],
  ['1 2', "1:3: Syntax error: extraneous input '2' expecting <EOF>"],
  ['1 2 3', "1:3: Syntax error: mismatched input '2' expecting <EOF>"],
  ["1 'a' 2", "1:3: Syntax error: mismatched input ''a'' expecting <EOF>"],
  ['(1', "1:3: Syntax error: missing ')' at '<EOF>'"],
  ['(1 2)', "1:4: Syntax error: extraneous input '2' expecting ')'"],
  ['(1]', "1:3: Syntax error: mismatched input ']' expecting ')'"],
  ['((1', "1:4: Syntax error: mismatched input '<EOF>' expecting ')'"],
  ['[(1', "1:4: Syntax error: mismatched input '<EOF>' expecting ')'"],
  ['[(1]', "1:4: Syntax error: missing ')' at ']'"],
  ['{(1', "1:4: Syntax error: mismatched input '<EOF>' expecting ')'"],
  ["{'a': (1", "1:9: Syntax error: mismatched input '<EOF>' expecting ')'"],
  ['[self.l[1', "1:10: Syntax error: mismatched input '<EOF>' expecting ']'"],
  ['true ? (1', "1:10: Syntax error: mismatched input '<EOF>' expecting ')'"],
  ['true ? 1 : (2', "1:14: Syntax error: missing ')' at '<EOF>'"],
  ['[1', "1:3: Syntax error: mismatched input '<EOF>' expecting {']', ','}"],
  ['{1: 2]', "1:6: Syntax error: mismatched input ']' expecting {'}', ','}"],
  ['{1 2}', "1:4: Syntax error: missing ':' at '2'"],
  ['1 ? 2', "1:6: Syntax error: mismatched input '<EOF>' expecting ':'"],
  ['self[', `1:6: Syntax error: mismatched input '<EOF>' expecting ${STARTS.replace("'!', ", "'!', '?', ")}`],
  ['self.s(', `1:8: Syntax error: mismatched input '<EOF>' expecting ${STARTS.replace("'.'", "')', '.'")}`],
  ['1 + + 2', `1:5: Syntax error: extraneous input '+' expecting ${STARTS}`],
  ['self..s', "1:6: Syntax error: no viable alternative at input '..'"],
  ['self.true', "1:6: Syntax error: mismatched input 'true' expecting IDENTIFIER"],
  [
    "self.s = 'a'",
    "1:8: Syntax error: token recognition error at: '= '",
    "1:10: Syntax error: extraneous input ''a'' expecting <EOF>",
  ],
  [
    '"a',
    `1:1: Syntax error: token recognition error at: '"a'`,
    `1:3: Syntax error: mismatched input '<EOF>' expecting ${STARTS}`,
  ],
  [
    'self.s; self.s',
    "1:7: Syntax error: token recognition error at: ';'",
    "1:9: Syntax error: mismatched input 'self' expecting <EOF>",
  ],
];

describe('a rule has the errors that apiextensions-apiserver reports', () => {
  for (const [source, ...faults] of RECORDED) test(source, () => assert.deepEqual(faultsOf(source), faults));
});

test('the line below the source is as wide as the source', () => {
  assert.throws(() => compile("self.s == 'ü' + 1", { variables: { self } }), {
    message: `ERROR: <input>:1:15: ${noOverload(0, '_+_', '(string, int)').slice(5)}\n | self.s == 'ü' + 1\n | ...........．..^`,
  });
});

test('cel.bind is declared for the selectors of devices alone', () => {
  const source = "cel.bind(x, device.driver, x == 'a')";
  assert.deepEqual(faultsOf(source, DEVICE_ENVIRONMENT), []);
  assert.notDeepEqual(faultsOf(source, { ...DEVICE_ENVIRONMENT, libraries: {} }), []);
});

test('jsonpatch and the types of patches are declared for mutations alone', () => {
  const mutation: CelEnvironment = { variables: {}, ...PATCH_DECLARATIONS };
  assert.equal(
    compile("jsonpatch.escapeKey('a/b~c')", mutation).run(() => null),
    'a~1b~0c',
  );
  assert.deepEqual(faultsOf('Object{}', { variables: {} }), [undeclared(7, 'Object')]);
});
