import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  addQuantities,
  canonicalQuantity,
  storedQuantity,
  compareQuantities,
  formatQuantity,
  milliUnits,
  parseQuantity,
  QuantityError,
  isWhole,
  roundedToMilli,
  subtractQuantities,
  wholeUnits,
} from '../../../../api/meta/quantity.ts';

const canonical: readonly (readonly [string, string])[] = [
  ['0', '0'],
  ['0.5', '500m'],
  ['.1', '100m'],
  ['1.5Gi', '1536Mi'],
  ['1024Mi', '1Gi'],
  ['7Ei', '7Ei'],
  ['8Ei', '9223372036854775807'],
  ['999Ei', '9223372036854775807'],
  ['1e3', '1e3'],
  ['1200e0', '1200'],
  ['100M', '100M'],
  ['1000k', '1M'],
  ['0.1', '100m'],
  ['1n', '1n'],
  ['0.0001', '100u'],
  ['1234567890Ki', '1234567890Ki'],
  ['+1', '1'],
  ['001', '1'],
  ['1000m', '1'],
  ['0.1Ki', '102400m'],
  ['-1', '-1'],
  ['-1500m', '-1500m'],
  ['0.0000000001', '1n'],
  ['512', '512'],
  ['1000', '1k'],
  ['1024', '1024'],
  ['10Gi', '10Gi'],
];

test('the canonical text has no fraction and the largest exact suffix', () => {
  for (const [given, wanted] of canonical) assert.equal(canonicalQuantity(given), wanted, `of ${given}`);
});

test('a text that kube-apiserver considers canonical is stored unchanged', () => {
  for (const kept of ['+1', '+2', '001', '012Mi', '5.', '1E3', '1e3', '1.500', '1500m', '1025Ki', '+2Gi', '1200'])
    assert.equal(storedQuantity(kept), kept);
  const changed: readonly (readonly [string | number, string])[] = [
    [1, '1'],
    ['8Ei', '9223372036854775807'],
    [1048576, '1048576'],
    [1000, '1k'],
    ['1 ', '1'],
    ['1.0', '1'],
    ['0.5', '500m'],
    ['.25', '250m'],
    ['1000m', '1'],
    ['+0', '0'],
    ['1024Mi', '1Gi'],
    ['1.5Gi', '1536Mi'],
    ['1e4', '10e3'],
    ['+1234567890123456789', '1234567890123456789'],
    ['0000000000000000001.5', '1500m'],
  ];
  for (const [given, wanted] of changed) assert.equal(storedQuantity(given), wanted, `of ${given}`);
  assert.throws(() => storedQuantity(''), /must match the regular expression/);
});

test('an invalid quantity is rejected with the reason', () => {
  for (const text of ['lots', '1e3m', '1 2', '1.2.3', '1Mi ', ' 1']) {
    assert.throws(
      () => parseQuantity(text),
      { name: 'QuantityError', message: /must match the regular expression/ },
      text,
    );
  }
  for (const text of ['1i', '1mi', '1MM', '1e', '1m5']) {
    assert.throws(() => parseQuantity(text), { message: "unable to parse quantity's suffix" }, text);
  }
});

test('a hostile exponent is cheap', () => {
  assert.throws(() => parseQuantity('1e1000000000'), QuantityError);
  assert.equal(canonicalQuantity('1e-1000000000'), '1e-9');
});

test('values round away from zero', () => {
  assert.equal(wholeUnits(parseQuantity('1m')), 1n);
  assert.equal(wholeUnits(parseQuantity('-1m')), -1n);
  assert.equal(milliUnits(parseQuantity('1n')), 1n);
  assert.equal(milliUnits(parseQuantity('2.5')), 2500n);
});

const quantityText = fc
  .tuple(
    fc.integer({ min: -100000, max: 100000 }),
    fc.constantFrom('', 'n', 'u', 'm', 'k', 'M', 'G', 'Ki', 'Mi', 'Gi', 'e3', 'E2'),
  )
  .map(([number, suffix]) => `${number}${suffix}`);

test('the canonical text has the same value and is canonical itself', () => {
  fc.assert(
    fc.property(quantityText, (text) => {
      const parsed = parseQuantity(text);
      const shown = formatQuantity(parsed);
      assert.equal(compareQuantities(parseQuantity(shown), parsed), 0);
      assert.equal(canonicalQuantity(shown), shown);
    }),
  );
});

test('adding and subtracting a quantity changes nothing', () => {
  fc.assert(
    fc.property(quantityText, quantityText, (a, b) => {
      const sum = addQuantities(parseQuantity(a), parseQuantity(b));
      assert.equal(compareQuantities(subtractQuantities(sum, parseQuantity(b)), parseQuantity(a)), 0);
    }),
  );
});

test('a number with too many digits is rejected', () => {
  assert.throws(() => parseQuantity(`1${'0'.repeat(100_000)}`), QuantityError);
  assert.throws(() => parseQuantity(`${'1'.repeat(100_000)}x`), QuantityError);
});

test('quantities are rounded up to thousandths, and others keep their text', () => {
  assert.equal(roundedToMilli('1n'), '1m');
  assert.equal(roundedToMilli('1500u'), '2m');
  assert.equal(roundedToMilli('+1'), '+1');
  assert.equal(roundedToMilli('001'), '001');
  assert.equal(roundedToMilli('10Ei'), '9223372036854775807');
});

test('a quantity with more thousandths than 64 bits have is not whole', () => {
  assert.equal(isWhole(parseQuantity('10')), true);
  assert.equal(isWhole(parseQuantity('1m')), false);
  assert.equal(isWhole(parseQuantity('1Ei')), false);
});
