import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { duplicateErrors, duplicateWarnings } from '../../../../api/codec/duplicates.ts';
import { JsonSyntaxError, encodeJson, parseJson, stringifyJson } from '../../../../api/codec/json.ts';
import { MAX_VALUES } from '../../../../api/codec/limits.ts';

test('reads what JSON.parse reads', () => {
  fc.assert(
    fc.property(fc.json(), (text) => {
      assert.equal(stringifyJson(parseJson(text).value), JSON.stringify(JSON.parse(text)));
    }),
  );
});

test('a short object reads the same whether V8 or our parser reads it', () => {
  const outcome = (text: string): unknown => {
    try {
      return parseJson(text);
    } catch (error) {
      return String(error);
    }
  };
  // The parser of V8 reads only texts that begin with a brace.
  const same = (text: string): void => assert.deepEqual(outcome(text), outcome(` ${text}`), text);
  const texts = [
    '{"n":1e+21}',
    '{"n":1e21}',
    '{"n":1.0}',
    '{"n":1.5}',
    '{"n":1e-7}',
    '{"n":-0}',
    '{"n":9007199254740992}',
    '{"n":[9007199254740993,-9007199254740992]}',
    '{"n":100000000000000000000}',
    '{"n":1e999}',
    '{"s":"\\ud800"}',
    '{"s":"\\u0001\\n\\/"}',
    '{"s":"<\u2028>"}',
    '{"a":1,"a":1}',
    '{"b":1,"2":1,"1":1}',
    '{"__proto__":{"a":1},"constructor":1}',
    '{"a":1}\n',
    '{"a":1}\n\n',
    '{"a":1,}',
    '{"a":tru}',
    `{"a":${'['.repeat(500)}${']'.repeat(500)}}`,
    `{"a":${'['.repeat(2001)}${']'.repeat(2001)}}`,
    '{',
  ];
  for (const text of texts) same(text);
  fc.assert(fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (value) => same(JSON.stringify(value))));
});

test('keeps every 64-bit integer', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (number) => {
      const { value } = parseJson(`{"n":${number}}`);
      assert.equal(encodeJson(value).toString(), `{"n":${number}}`);
    }),
  );
});

test('reports duplicate keys with their path, and uses the last value', () => {
  const { value, duplicates } = parseJson(
    '{"metadata":{"labels":{"a":"1","a":"2"}},"l":[{"x":1,"x":2}],"data":1,"data":2}',
  );
  assert.deepEqual(duplicates, ['metadata.labels.a', 'l[0].x', 'data']);
  assert.deepEqual(value, { metadata: { labels: { a: '2' } }, l: [{ x: 2 }], data: 2 });
});

test('__proto__ is a key like any other', () => {
  const { value } = parseJson('{"__proto__":{"polluted":true}}');
  assert.equal(Object.getPrototypeOf(value), Object.prototype);
  assert.equal(encodeJson(value).toString(), '{"__proto__":{"polluted":true}}');
});

test('bytes that are no UTF-8 become the replacement character', () => {
  assert.equal(parseJson(Buffer.from([0x22, 0x61, 0xff, 0x22])).value, 'a\ufffd');
  assert.equal(parseJson('"\\ud800"').value, '\ufffd');
});

const ERRORS: readonly [string, string][] = [
  ['', 'unexpected end of JSON input'],
  ['{not json}', "invalid character 'n' looking for beginning of object key string"],
  ['[1,]', "invalid character ']' looking for beginning of value"],
  ['{"a" 1}', "invalid character '1' after object key"],
  ['{"a":1 2}', "invalid character '2' after object key:value pair"],
  ['[1 2]', "invalid character '2' after array element"],
  ['nulx', "invalid character 'x' in literal null (expecting 'l')"],
  ['"\\x"', "invalid character 'x' in string escape code"],
  ['{}x', "invalid character 'x' after top-level value"],
  ['1.x', "invalid character 'x' after decimal point in numeric literal"],
];

for (const [text, message] of ERRORS) {
  test(`refuses ${JSON.stringify(text)} in kube-apiserver's words`, () => {
    assert.throws(() => parseJson(text), new JsonSyntaxError(message));
  });
}

test('refuses nesting that would exhaust the stack', () => {
  assert.throws(() => parseJson('['.repeat(10_000)), JsonSyntaxError);
  assert.throws(() => parseJson('{"a":'.repeat(10_000)), JsonSyntaxError);
});

test('duplicates are worded as paths, or as lines of YAML', () => {
  assert.deepEqual(duplicateWarnings(['a.b', 'line 7: key "k" already set in map']), [
    'duplicate field "a.b"',
    'line 7: key "k" already set in map',
  ]);
  assert.deepEqual(duplicateErrors(['line 7: key "k" already set in map']), [
    'yaml: unmarshal errors:\n  line 7: key "k" already set in map',
  ]);
});

test('an integer beyond every float is refused, as one with an exponent is', () => {
  for (const digits of ['9'.repeat(400), `-${'1'.repeat(310)}`, '1e400'])
    assert.throws(() => parseJson(`[${digits}]`), /^JsonSyntaxError: json: cannot unmarshal number/);
});

test('more values than an object can sensibly have are refused, whatever their size', () => {
  const items = (count: number, item: string): string => `[${Array.from({ length: count }, () => item).join(',')}]`;
  assert.equal((parseJson(items(MAX_VALUES - 1, '{}')).value as unknown[]).length, MAX_VALUES - 1);
  for (const item of ['{}', '1', '""']) assert.throws(() => parseJson(items(MAX_VALUES, item)), /exceeded the limit/);
});
