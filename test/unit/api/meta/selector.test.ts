import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseFieldSelector } from '../../../../api/meta/field-selector.ts';
import { parseSelector } from '../../../../api/meta/selector-parser.ts';
import { fromLabelSelector, validateLabelSelector } from '../../../../api/meta/selector.ts';

test('selectors match objects', () => {
  const labels = { app: 'web', tier: 'front', size: '7' };
  for (const text of [
    '',
    'app=web',
    'app==web,tier!=back',
    'app in (web,db)',
    'app notin (db)',
    'tier',
    '!none',
    'none!=x',
    'size>6',
    'size < 8',
  ]) {
    assert.equal(parseSelector(text).matches(labels), true, text);
  }
  for (const text of ['app=db', 'app notin (web)', '!tier', 'none', 'app=web,app=db', 'size>7', 'none in ()']) {
    assert.equal(parseSelector(text).matches(labels), false, text);
  }
});

test('invalid selectors are rejected with the reason', () => {
  const faults: Record<string, string> = {
    'a=b=c': "found '=', expected: ',' or 'end of string'",
    ',': "found ',', expected: !, identifier, or 'end of string'",
    'a in b': "unable to parse requirement: found 'b' expected: '('",
    'a in (b': "unable to parse requirement: found '', expected: ',' or ')'",
    'bad key': "unable to parse requirement: found 'key', expected: in, notin, =, ==, !=, gt, lt",
    '!': "unable to parse requirement: found '', expected: identifier",
    'a>b':
      "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
  };
  for (const [text, message] of Object.entries(faults))
    assert.throws(() => parseSelector(text), { code: 400, message });
});

test('a selector has at most a thousand requirements, which every object is held against', () => {
  const words = (count: number, prefix: string): string =>
    Array.from({ length: count }, (_, i) => `${prefix}k${i}`).join(',');
  assert.equal(parseSelector(words(1000, '!')).requirements.length, 1000);
  assert.throws(() => parseSelector(words(1001, '!')), { code: 400 });
  assert.throws(() => parseSelector(`a notin (${words(150_000, '')})`), { code: 400 });
  assert.throws(() => parseFieldSelector(words(1001, 'metadata.name!=')), { code: 400 });
  const matchExpressions = Array.from({ length: 1001 }, (_, i) => ({ key: `k${i}`, operator: 'DoesNotExist' }));
  assert.deepEqual(validateLabelSelector({ matchExpressions }, 'spec.selector').map(String), [
    'spec.selector: Too many: 1001: must have at most 1000 items',
  ]);
});

test('an absent selector of an object selects nothing, an empty one everything', () => {
  assert.equal(fromLabelSelector(undefined).matches({}), false);
  assert.equal(fromLabelSelector({}).matches({}), true);
  const selector = fromLabelSelector({
    matchLabels: { a: '1' },
    matchExpressions: [{ key: 'b', operator: 'DoesNotExist' }],
  });
  assert.equal(selector.matches({ a: '1' }), true);
  assert.equal(selector.matches({ a: '1', b: '' }), false);
  assert.deepEqual(
    validateLabelSelector({ matchExpressions: [{ key: 'b', operator: 'In' }] }, 'spec.selector').map(String),
    ["spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
  );
});

const key = fc.constantFrom('a', 'b', 'example.com/c');
const value = fc.constantFrom('', 'x', 'y1');
const requirement = fc.oneof(
  fc.tuple(key, fc.constantFrom('=', '!='), value).map((parts) => parts.join('')),
  fc
    .tuple(key, fc.constantFrom(' in ', ' notin '), fc.uniqueArray(value, { minLength: 1 }))
    .map(([k, op, vs]) => `${k}${op}(${vs.join(',')})`),
  key,
  key.map((name) => `!${name}`),
);

test('the text of a selector parses to the same selector', () => {
  fc.assert(
    fc.property(fc.array(requirement), fc.dictionary(key, value), (requirements, labels) => {
      const selector = parseSelector(requirements.join(','));
      const again = parseSelector(selector.toString());
      assert.equal(again.toString(), selector.toString());
      assert.equal(again.matches(labels), selector.matches(labels));
    }),
  );
});

test('field selectors are parsed with escapes', () => {
  const selector = parseFieldSelector('a=b,c!=d\\,e');
  assert.deepEqual(selector.requirements, [
    { field: 'a', operator: '=', value: 'b' },
    { field: 'c', operator: '!=', value: 'd,e' },
  ]);
  assert.equal(
    selector.matches((field) => (field === 'a' ? 'b' : '')),
    true,
  );
  assert.equal(parseFieldSelector('=').isEmpty, true);
  assert.deepEqual(parseFieldSelector('!=,a=b,==').requirements, [{ field: 'a', operator: '=', value: 'b' }]);
  assert.equal(parseFieldSelector('=b').requirements.length, 1);
  assert.throws(() => parseFieldSelector('metadata.name'), {
    message: "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
  });
});
