import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  YamlSyntaxError,
  parseYaml,
  parseYamlDocuments,
  stringifyYaml,
  yamlParts,
} from '../../../../api/codec/yaml.ts';
import { assertLinearTime, processorClock } from '../../../fuzz/growth.ts';

const DIALECT: readonly [string, unknown][] = [
  ['yes', true],
  ['On', true],
  ['n', false],
  ['~', null],
  ['014', 12],
  ['0o14', 12],
  ['0x1F', 31],
  ['0b11', 3],
  ['1_000', 1000],
  ['1e3', 1000],
  ['.5', 0.5],
  ['2024-01-01', '2024-01-01'],
  ['1:30', '1:30'],
  ['9223372036854775807', 9223372036854775807n],
  ['"yes"', 'yes'],
  ['!!str 5', '5'],
];

for (const [text, value] of DIALECT) {
  test(`${text} is ${String(value)}`, () => assert.deepEqual(parseYaml(`a: ${text}`).value, { a: value }));
}

test('keys become strings in their plain meaning', () => {
  assert.deepEqual(parseYaml('n: 1\n1e3: 2\n5: 3').value, { false: 1, '1000': 2, '5': 3 });
});

test('duplicate keys are reported with their line, and the last value is used', () => {
  const { value, duplicates } = parseYaml('a: 1\nb:\n- c: 1\n  c: 2\na: 3\n');
  assert.deepEqual(value, { a: 3, b: [{ c: 2 }] });
  assert.deepEqual(duplicates, ['line 4: key "c" already set in map', 'line 5: key "a" already set in map']);
});

for (const [text, value] of [
  ['a: 1\n---\n[', { a: 1 }],
  ['a: 1\r\n...\r\n"', { a: 1 }],
  ['# c\n%YAML 1.1\n---\na: 1\n--- b', { a: 1 }],
  ['--- {a: 1}\n---\n', { a: 1 }],
  ['---\n---\na: 1', null],
  ['...\na: 1', { a: 1 }],
  ['a: |\n  ---\n  x\nb: "--- "', { a: '---\nx\n', b: '--- ' }],
] as const)
  test(`nothing is read behind the first document of ${JSON.stringify(text)}`, () =>
    assert.deepEqual(parseYaml(text).value, value));

test('hundreds of thousands of documents behind the first one cost nothing', () => {
  const text = `a: 1\n${'---\n'.repeat(700_000)}`;
  const from = process.cpuUsage();
  assert.deepEqual(parseYaml(text).value, { a: 1 });
  const { user, system } = process.cpuUsage(from);
  assert.ok(user + system < 150_000, `${user + system} µs`);
});

test('reads every document', () => assert.deepEqual(parseYamlDocuments('a: 1\n---\nb: 2\n'), [{ a: 1 }, { b: 2 }]));

test('merge keys merge', () =>
  assert.deepEqual(parseYaml('p: &x {a: 1}\nq: {<<: *x, b: 2}').value, { p: { a: 1 }, q: { a: 1, b: 2 } }));

test('aliases are copied, and a bomb of them is refused', () => {
  const { value } = parseYaml('a: &a [1]\nb: *a');
  assert.deepEqual(value, { a: [1], b: [1] });
  const bomb = ['a0: &a0 [x,x,x,x,x,x,x,x,x,x]'];
  for (let level = 1; level < 10; level += 1)
    bomb.push(
      `a${level}: &a${level} [${Array(10)
        .fill(`*a${level - 1}`)
        .join(',')}]`,
    );
  assert.throws(() => parseYaml(bomb.join('\n')), YamlSyntaxError);
});

test('refuses a tab with its line', () => {
  assert.throws(
    () => parseYaml('a:\n\tb: 1'),
    new YamlSyntaxError('yaml: line 2: found character that cannot start any token'),
  );
});

test('refuses deep nesting', () => assert.throws(() => parseYaml('['.repeat(10_000)), YamlSyntaxError));

test('writes sorted block style and quotes what would mean something else', () => {
  const text = stringifyYaml({ b: { list: ['x', { k: 'v' }], empty: {} }, a: 'true', t: 'one\ntwo\n', n: null });
  assert.equal(text, 'a: "true"\nb:\n  empty: {}\n  list:\n  - x\n  - k: v\n"n": null\nt: |\n  one\n  two\n');
});

test('reading what was written gives the value back', () => {
  const leaf = fc.oneof(
    fc.string({ unit: 'grapheme' }),
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
    fc.stringMatching(/^[ \n:#'"\-a-z0-9?!&*|>%@`]{0,12}$/),
  );
  const { tree } = fc.letrec((tie) => ({
    tree: fc.oneof(
      { depthSize: 'small' },
      leaf,
      fc.array(tie('tree'), { maxLength: 3 }),
      fc.dictionary(fc.string(), tie('tree'), { maxKeys: 3, noNullPrototype: true }),
    ),
  }));
  fc.assert(
    fc.property(tree, (value) => {
      assert.deepEqual(parseYaml(stringifyYaml(value)).value, value);
    }),
  );
});

test('more values than an object can sensibly have are refused before anything is made of them', () => {
  assert.throws(() => parseYaml('a: b\n'.repeat(400_000)), /exceeded the limit of \d+ values/);
  assert.throws(() => parseYaml(`[${'a,'.repeat(400_000)}]`), /exceeded the limit of \d+ values/);
  const wide = Array.from({ length: 50_000 }, (_, at) => `k${at}: v`).join('\n');
  assert.equal(Object.keys(parseYaml(wide).value as object).length, 50_000);
});

test('the values of an anchor count at each of its aliases', () => {
  const many = `a: &a [${'x,'.repeat(1000)}]\nb: [${'*a,'.repeat(1000)}]`;
  assert.throws(() => parseYaml(many), /excessive aliasing/);
});

test('lines inside brackets and quotes need no indentation', () => {
  const texts: readonly [string, unknown][] = [
    ['m:\n  finalizers: [\n    "a.b/c"\n  ]\n  x: 1\n', { m: { finalizers: ['a.b/c'], x: 1 } }],
    ['a: {\n"b": [1,\n2\n],\n"c": {\n}\n}\nd: 2\n', { a: { b: [1, 2], c: {} }, d: 2 }],
    ['- - k: [\n1\n]\n', [[{ k: [1] }]]],
    ['a: [\n\tx,\n\tz\n]\n', { a: ['x', 'z'] }],
    ['m:\n  a: "one\ntwo"\n  b: \'one\n\n two\'\n', { m: { a: 'one two', b: 'one\ntwo' } }],
    ['m:\n  a: [\n  # a comment: [\n  ]\n  b: |\n    ]\n     [x\n', { m: { a: [], b: ']\n [x\n' } }],
  ];
  for (const [text, value] of texts) assert.deepEqual(parseYaml(text).value, value, text);
});

test('the line of a key that stands twice is that of the text as it was sent', () => {
  assert.deepEqual(parseYaml('m:\n  a: [\n  ]\n  a: 1\n').duplicates, ['line 4: key "a" already set in map']);
});

test('a text whose brackets are never closed is refused in time that grows with its size', async () => {
  await assertLinearTime(
    (size) => assert.throws(() => parseYaml(`m:\n  a: [\n${'x,\n'.repeat(size / 3)}`), YamlSyntaxError),
    { minBytes: 4_000, maxBytes: 60_000 },
  );
});

test('a short text whose brackets are never closed is not refused later than a longer one', async () => {
  const refuse = (text: string) => (): void => assert.throws(() => parseYaml(text), YamlSyntaxError);
  const [short, long] = [refuse('m:\n  a: [\nx,\n'), refuse(`m:\n  a: [\n${'x,\n'.repeat(300)}`)];
  long();
  const [shortMs, longMs] = [await processorClock(short), await processorClock(long)];
  assert.ok(shortMs < longMs, `${shortMs} ms, ${longMs} ms`);
});

test('keys of several lines and long keys are written so that they can be read', () => {
  for (const key of ['a\nb', 'a\n', 'x: y\n- z\n\n', '\ttab\nb', 'k'.repeat(129), 'k'.repeat(2000)]) {
    for (const member of [null, 'text', 'two\nlines', [1, [2]], { b: { c: [] } }, [], {}]) {
      const value = { before: 1, deep: [{ [key]: member, z: 1 }], [key]: member };
      assert.deepEqual(parseYaml(stringifyYaml(value)).value, value, stringifyYaml(value));
    }
  }
  assert.equal(stringifyYaml({ 'a\nb': { c: 1, d: 2 }, e: 1 }), '? |-\n  a\n  b\n: c: 1\n  d: 2\ne: 1\n');
  assert.equal(stringifyYaml({ [`${'k'.repeat(129)}`]: [1, 2] }), `? ${'k'.repeat(129)}\n: - 1\n  - 2\n`);
});

test('a block scalar at the end of a text without a last line end has none', () => {
  for (const [text, value] of [
    ['a: |\n  x\n  y', 'x\ny'],
    ['a: |+\n  x', 'x'],
    ['a: >\n  x\n  y  ', 'x y  '],
    ['a: |\n  x\n  ', 'x\n'],
    ['a: |\n  x\n', 'x\n'],
    ['a: |-\n  x', 'x'],
  ] as const) {
    assert.deepEqual(parseYaml(text).value, { a: value }, JSON.stringify(text));
  }
  assert.deepEqual(parseYaml('a: |\n  x\nb: c').value, { a: 'x\n', b: 'c' });
});

test('a value is written line by line, as far as its text is read', () => {
  let read = 0;
  const item = (): object =>
    Object.defineProperty({}, 'a', {
      enumerable: true,
      get() {
        read += 1;
        return ['x', { y: 'z' }];
      },
    });
  const value = { items: Array.from({ length: 1000 }, item) };
  const parts = yamlParts(value);
  for (let at = 0; at < 10; at += 1) parts.next();
  assert.ok(read < 50, String(read));
  assert.equal([...yamlParts(value)].join(''), stringifyYaml(value));
  assert.deepEqual(parseYaml(stringifyYaml(value)).value, {
    items: Array(1000).fill({ a: ['x', { y: 'z' }] }) as unknown[],
  });
});

test('a line is broken at the first single space after column 80, as go-yaml breaks it', () => {
  const words = 'only the following media types are accepted: application/json;stream=watch, application/yaml';
  assert.equal(
    stringifyYaml({ message: words, list: [words] }),
    [
      'list:',
      "- 'only the following media types are accepted: application/json;stream=watch, application/yaml'",
      "message: 'only the following media types are accepted: application/json;stream=watch,",
      "  application/yaml'",
      '',
    ].join('\n'),
  );
});

test('a broken text is read as the same text', () => {
  const word = fc.constantFrom(
    'a',
    ' ',
    '  ',
    'word',
    "it's",
    '"',
    ': ',
    '#',
    '\u00fc',
    '\u{1f600}',
    '\\',
    '-',
    '\u0001',
  );
  fc.assert(
    fc.property(fc.array(word, { minLength: 30, maxLength: 120 }), fc.nat(60), (parts, width) => {
      const value = { ['k'.repeat(width + 1)]: parts.join(''), list: [{ a: parts.join(' ') }, parts.join('')] };
      assert.deepEqual(parseYaml(stringifyYaml(value)).value, value);
    }),
  );
});

test('a long text is broken in linear time', () =>
  assertLinearTime((size) => void stringifyYaml({ a: `"${'a  b '.repeat(size / 5)}` }), {
    minBytes: 10_000,
    maxBytes: 160_000,
  }));

test('a number that no double holds is a text', () => {
  assert.deepEqual(parseYaml('a: 1e400').value, { a: '1e400' });
});

test('the errors of an open list and of a leading tab are those of the parser in kube-apiserver', () => {
  assert.throws(() => parseYaml('a: ['), /^YamlSyntaxError: yaml: line 1: did not find expected node content$/);
  assert.throws(() => parseYaml('\tx: y'), /^YamlSyntaxError: yaml: found character that cannot start any token$/);
});

test('errors have the words and the lines of the parser of kube-apiserver', () => {
  const cases: Readonly<Record<string, string>> = {
    'a: b: c': 'mapping values are not allowed in this context',
    '\u0000x': 'control characters are not allowed',
    'a: "\u0001"': 'control characters are not allowed',
    'x: 1\na: b: c': 'line 2: mapping values are not allowed in this context',
    'x:\n- a\n b: c': 'line 3: mapping values are not allowed in this context',
    'x: 1\n\ty: 2': 'line 2: found a tab character that violates indentation',
    '\tx': 'found character that cannot start any token',
    'x: 1\na: @x': 'line 2: found character that cannot start any token',
    'x: 1\na: ]': 'line 1: did not find expected node content',
    'a: "x': 'found unexpected end of stream',
    'a: "\\z"': 'found unknown escape character',
    'x: 1\na: [\n': 'line 2: did not find expected node content',
    'a: ["b",\n': 'line 1: did not find expected node content',
    'a: [1': "line 1: did not find expected ',' or ']'",
    'a: {b': "line 1: did not find expected ',' or '}'",
    'a: [{b: "]", c: \'}\'': "line 1: did not find expected ',' or '}'",
    "a: [don't, {b: c}": "line 1: did not find expected ',' or ']'",
    'a: b\nkey': "line 3: could not find expected ':'",
    'a: b\n- c': 'line 1: did not find expected key',
    'a:\n  - b\n c: d': 'line 2: did not find expected key',
    'a: "b" c': 'did not find expected key',
    '- a\nb: c': "line 1: did not find expected '-' indicator",
    '- - a\n - b': "line 1: did not find expected '-' indicator",
    'a: -\n': 'block sequence entries are not allowed in this context',
    'a: >x\n b': 'did not find expected comment or line break',
    '<<: 1': 'map merge requires map or sequence of maps as the value',
  };
  for (const [text, message] of Object.entries(cases))
    assert.throws(() => parseYaml(text), new YamlSyntaxError(`yaml: ${message}`), JSON.stringify(text));
});

test('infinities and NaN are refused, also with a tag', () => {
  for (const value of ['.nan', '.inf', '-.inf', '!!float .nan', '!!float .inf', '!!int .inf'])
    assert.throws(() => parseYaml(`a: ${value}`), /json: unsupported value/, value);
});

test('text after a document in brackets is not read', () => {
  assert.deepEqual(parseYaml('{a: b}}').value, { a: 'b' });
  assert.deepEqual(parseYaml('[a]\nb').value, ['a']);
});
