/** Tests literals, numbers, strings, times and names against the CEL definition, as kube-apiserver configures it. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { compile } from '../../../../api/cel/cel.ts';
import { dyn } from '../../../../api/cel/types.ts';

const object = { spec: { namespace: 'a', if: 1 } };
const run = (source: string): unknown => compile(source, { variables: { object: dyn } }).run(() => object);

/** Expressions that are true. */
const TRUE: Readonly<Record<string, readonly string[]>> = {
  'raw literals': [
    String.raw`r"""^a.*$""" == '^a.*$'`,
    String.raw`R'''\d+''' == "\\d+"`,
    String.raw`r'\' == '\\'`,
    String.raw`r"""a"b""c""" == 'a"b""c'`,
    'r"""one\ntwo""" == "one\\ntwo"',
    String.raw`br'''\x41''' == b'\\x41'`,
    String.raw`rb"\n" == b"\\n"`,
    String.raw`'abc'.matches(r"""^a.c$""")`,
  ],
  'literals in three quotes': [
    String.raw`"""ends in a backslash\\""" == 'ends in a backslash\\'`,
    String.raw`'''it's''' == "it's"`,
    '"""\n""" == "\\n"',
    '"""a\r\nb""" == "a\\nb"',
    String.raw`"""a\"""b""" == 'a"""b'`,
    `"""""" == ''`,
  ],
  escapes: [
    String.raw`'\x41\X42\103\u0044\U00000045' == 'ABCDE'`,
    String.raw`size('\a\b\f\n\r\t\v\\\?\"\'') == 11`,
    String.raw`b'\xff\377' == bytes(b'\xff\xff')`,
    "size(b'ÿ') == 2",
    String.raw`'\U0001F600'.size() == 1`,
  ],
  'comparison of integers and doubles': [
    '!(dyn(9223372036854775807) < 9223372036854775808.0)',
    'dyn(9223372036854775807) >= 9223372036854775808.0',
    'dyn(9223372036854775807) == 9223372036854775808.0',
    '9007199254740993 > 9007199254740992',
    'dyn(0.0 / 0.0) != 1',
    '18446744073709551615u > 9223372036854775807',
    'int(-9223372036854774784.0) == -9223372036854774784',
  ],
  texts: [
    String.raw`'\u0085 \u2003x\ufeff\t'.trim() == 'x\ufeff'`,
    String.raw`strings.quote("\a\v\"\\") == r'"\a\v\"\\"'`,
    "'%.0f %.0f %.0f'.format([0.5, 1.5, 2.5]) == '0 2 2'",
    "'%.1f %.2f'.format([0.25, 1.005]) == '0.2 1.00'",
    "'%.1f'.format([1e21]) == '1,000,000,000,000,000,000,000.0'",
  ],
  times: [
    "timestamp('2024-02-29T12:00:00Z').getDate() == 29",
    "timestamp('2023-01-01T01:00:00+01:00') == timestamp('2023-01-01T00:00:00Z')",
    "timestamp('9999-12-31T23:59:59.999999999Z') > timestamp('0001-01-01T00:00:00Z')",
    "duration('9223372036s') + duration('854775807ns') > duration('1h')",
  ],
  'reserved words as names of members': [
    "object.spec.namespace == 'a'",
    'object.spec.if == 1',
    "{'return': 1}.return == 1",
  ],
  addresses: ["!ip('255.255.255.255').isGlobalUnicast()", "ip('203.0.113.1').isGlobalUnicast()"],
};

/** Expressions that are rejected at compile time or run time. */
const REFUSED: Readonly<Record<string, readonly string[]>> = {
  'literals that are not closed': ['"a', '"""a""', `r"a\nb"`, "'a\nb'", String.raw`"a\"`],
  escapes: [
    String.raw`'\q'`,
    String.raw`'\ud800'`,
    String.raw`'\U00110000'`,
    String.raw`b'\u0041'`,
    String.raw`'\400'`,
  ],
  'numbers without an order': ['dyn(0.0 / 0.0) < 1', '0.0 / 0.0 >= 1.0'],
  'integers out of range': ['int(-9223372036854775808.0)', 'int(1e19)', 'uint(-1)', 'uint(-0.5)'],
  'days that the calendar does not have': [
    "timestamp('2023-02-30T00:00:00Z')",
    "timestamp('2023-02-29T00:00:00Z')",
    "timestamp('2023-04-31T00:00:00Z')",
    "timestamp('2023-13-01T00:00:00Z')",
    "timestamp('2023-01-01T24:00:00Z')",
    "timestamp('2023-01-01 00:00:00Z')",
  ],
  'times out of range': [
    "timestamp('0000-01-01T00:00:00Z')",
    'timestamp(253402300800)',
    "timestamp('9999-12-31T23:59:59Z') + duration('1s')",
    "timestamp('0001-01-01T00:00:00Z') - duration('1ns')",
    "duration('320000000000s')",
    "duration('9223372036854775807ns') + duration('1ns')",
  ],
  'names that the grammar does not have': ['object.`plain`', 'object.in', 'object.true', 'namespace == 1', 'if'],
  'macros with more arguments than they have': [
    '[1].transformList(i, v, true, v, v) == [1]',
    'optional.of(1).optMap(x, x, x).value() == 1',
    'optional.of(1).optFlatMap(x, optional.of(x), x).value() == 1',
  ],
  'conditions of loops that are not booleans': ['[1, true].exists_one(x, dyn(x))', '[1].exists_one(x, dyn(x))'],
  'precision that no number has': ["'%.1001f'.format([1.0])"],
};

describe('expressions that are true', () => {
  for (const [name, sources] of Object.entries(TRUE)) {
    test(name, () => {
      for (const source of sources) assert.equal(run(source), true, source);
    });
  }
});

describe('expressions that are rejected', () => {
  for (const [name, sources] of Object.entries(REFUSED)) {
    test(name, () => {
      for (const source of sources) assert.throws(() => run(source), { name: 'Error' }, source);
    });
  }
});
