/**
 * The cost of a function covers the size of its arguments, so that the time of an expression is limited by its cost. The tests
 * compare counts and no times, so that a busy machine does not matter.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compile } from '../../../../api/cel/cel.ts';
import { collectionFunctions } from '../../../../api/cel/collections.ts';
import type { FunctionRow } from '../../../../api/cel/functions.ts';
import { kubernetesFunctions } from '../../../../api/cel/kubernetes.ts';
import { operators } from '../../../../api/cel/operators.ts';
import { stringFunctions } from '../../../../api/cel/strings.ts';
import { timeFunctions } from '../../../../api/cel/time.ts';
import { type CelType, dyn, showType } from '../../../../api/cel/types.ts';
import {
  CelError,
  type CelValue,
  CostExceeded,
  Double,
  Duration,
  Optional,
  Timestamp,
  Uint,
} from '../../../../api/cel/values.ts';

const LARGE = 20_000;
/** The minimum cost of a comparison: one unit covers a hundred characters. */
const MIN_COST = LARGE / 100;

/** Functions that take the same time for arguments of any size, because they do not read these arguments. */
const CONSTANT = new Set([
  'size(list(_))',
  'size(bytes)',
  'first(list(_))',
  'last(list(_))',
  'dyn(_)',
  'type(_)',
  'optional.of(_)',
  'optional.ofNonZeroValue(_)',
  'or(optional(_), optional(_))',
  'orValue(optional(_), _)',
  'hasValue(optional(_))',
  'value(optional(_))',
  // A search text that is longer than the text is not read.
  'replace(string, string, string) 1',
  'replace(string, string, string, int) 1',
  'split(string, string) 1',
  'split(string, string, int) 1',
  'startsWith(string, string) 0',
  'endsWith(string, string) 0',
]);

const rows = [...operators, ...timeFunctions, ...stringFunctions, ...collectionFunctions, ...kubernetesFunctions];

function sample(type: CelType, size: number): CelValue | undefined {
  const repeated = (item: CelValue): CelValue[] => Array.from({ length: size }, () => item);
  switch (type.kind) {
    case 'string':
      return 'a'.repeat(size);
    case 'bytes':
      return Buffer.alloc(size, 'a');
    case 'list':
      return repeated(sample(type.item, 1) ?? 1n);
    case 'map':
      return Object.fromEntries(Array.from({ length: size }, (_value, at) => [`k${at}`, 1]));
    case 'dyn':
    case 'param':
      return size === 1 ? 1n : repeated(1n);
    case 'optional':
      return new Optional(sample(type.of, size));
    case 'int':
      return 1n;
    case 'uint':
      return new Uint(1n);
    case 'double':
      return new Double(1);
    case 'bool':
      return true;
    case 'duration':
      return new Duration(1n);
    case 'timestamp':
      return new Timestamp(1n);
    default:
      return undefined;
  }
}

const isSized = ({ kind }: CelType): boolean =>
  ['string', 'bytes', 'list', 'map', 'dyn', 'param', 'optional'].includes(kind);

function costOf({ overload }: FunctionRow, args: readonly CelValue[]): number {
  let spent = 0;
  const spending = {
    spend(cost: number): void {
      spent += cost;
      if (spent > 10_000_000) throw new CostExceeded();
    },
  };
  try {
    overload.run(args, spending);
  } catch (error) {
    if (!(error instanceof CelError) && !(error instanceof CostExceeded)) throw error;
  }
  return spent;
}

describe('a function', () => {
  for (const row of rows) {
    const { args } = row.overload;
    const shown = `${row.name}(${args.map((type) => (type.kind === 'param' ? '_' : showType(type))).join(', ')})`;
    for (const [at, type] of args.entries()) {
      const name = shown.replaceAll(/list\(\w\)/g, 'list(_)').replaceAll(/(optional\w*)\(\w\)/g, 'optional(_)');
      if (!isSized(type) || CONSTANT.has(name) || CONSTANT.has(`${name} ${at}`)) continue;
      const values = args.map((one, index) => sample(one, index === at ? LARGE : 1));
      if (!values.every((value) => value !== undefined)) continue;
      it(`${name} costs what it reads of argument ${at}`, () => {
        assert.ok(costOf(row, values) >= MIN_COST, `${costOf(row, values)}`);
      });
    }
  }
});

describe('an expression', () => {
  const cost = (source: string, values: Readonly<Record<string, unknown>>): number => {
    const variables = Object.fromEntries(Object.keys(values).map((name) => [name, dyn]));
    const budget = { left: 10_000_000 };
    try {
      compile(source, { variables }).run((name) => values[name], budget);
    } catch (error) {
      if (!(error instanceof CostExceeded)) throw error;
    }
    return 10_000_000 - budget.left;
  };
  const members = Object.fromEntries(Array.from({ length: LARGE / 10 }, (_value, at) => [`key-${at}`, [at, at]]));

  for (const [source, values, least] of [
    ['a == b', { a: members, b: structuredClone(members) }, LARGE / 10],
    ['a == b', { a: [[members]], b: [[structuredClone(members)]] }, LARGE / 10],
    ['a in b', { a: members, b: [structuredClone(members), 1, 2] }, LARGE / 10],
    ['a.size() > 0', { a: members }, LARGE / 10],
    ['a.exists(k, true)', { a: members }, LARGE / 20],
  ] as const)
    it(`${source} costs at least ${least} for values of that size`, () => {
      assert.ok(cost(source, values) >= least, String(cost(source, values)));
    });

  it('that finds many matches costs more for each than for the text', () => {
    assert.ok(cost('a.findAll("x").size() > 0', { a: 'x'.repeat(LARGE) }) >= 10 * LARGE);
    assert.ok(cost('a.findAll("y").size() > 0', { a: 'x'.repeat(LARGE) }) < LARGE);
  });

  for (const source of ['a == b', '"%s".format([a]) != ""', 'a.all(k, true)', 'a.size() > 0', 'a in [b]'])
    it(`${source} costs more for the entries of a map than for as many elements`, () => {
      const entries = Object.fromEntries(Array.from({ length: 1000 }, (_entry, at) => [`k${at}`, at]));
      assert.ok(cost(source, { a: entries, b: structuredClone(entries) }) >= 2000);
    });

  for (const [source, value] of [
    ['a.substring(1, 3)', 'b😀'],
    ['a.substring(2, 3) + a.charAt(1)', '😀b'],
    ['a.charAt(5)', ''],
    ['string(a.indexOf("c"))', '3'],
    ['string(a.indexOf("a", 1))', '4'],
    ['string(a.lastIndexOf("a"))', '4'],
    ['string(a.lastIndexOf("a", 3))', '0'],
    ['string(a.lastIndexOf(""))', '5'],
    ['string(a.indexOf("", 5))', '5'],
    ['string(a.indexOf("a", 6))', '-1'],
    ['a.substring(3, 2)', /start: 3, end: 2/],
    ['a.charAt(6)', /index out of range: 6/],
    ['a.substring(-1)', /index out of range: -1/],
  ] as const)
    it(`${source} counts characters, not code units`, () => {
      const evaluate = (): CelValue => compile(source, { variables: { a: dyn } }).run(() => 'ab😀ca');
      if (typeof value === 'string') assert.equal(evaluate(), value);
      else assert.throws(evaluate, value);
    });

  it('reads the member that it names and enumerates no others', () => {
    let enumerations = 0;
    const ownKeys = (target: object): (string | symbol)[] => {
      enumerations += 1;
      return Reflect.ownKeys(target);
    };
    const a = new Proxy({ x: 1, y: { z: 2 } }, { ownKeys });
    for (const source of ['a.x == 1', 'has(a.x)', 'a["x"] == 1', '"x" in a', 'a.y.z == 2', 'a.?x.hasValue()'])
      cost(source, { a });
    assert.equal(enumerations, 0);
  });

  it('with counted repetitions costs the size of its program', () => {
    const text = 'x'.repeat(LARGE);
    assert.ok(cost('a.matches("(x{1,900})y")', { a: text }) > (50 * cost('a.matches("(x{1,9})y")', { a: text })) / 9);
  });

  for (const source of ['sets.contains(a, b)', 'a.distinct().size() > 0'])
    it(`${source} counts each comparison of two items once`, () => {
      const a = Array.from({ length: 1000 }, (_item, at) => at);
      const found = cost(source, { a, b: a });
      assert.ok(found >= 1_000_000 && found < 1_010_000, String(found));
    });

  it('that reads a number of too many digits fails at once', () => {
    assert.throws(() => cost('int(a) > 0', { a: '1'.repeat(LARGE) }), /type conversion error/);
  });
});
