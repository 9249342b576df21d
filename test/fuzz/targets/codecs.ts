/** Attacks the decoders of bodies. Encoding a decoded body must result in the same value. */
import assert from 'node:assert/strict';
import { duplicateWarnings } from '../../../api/codec/duplicates.ts';
import { encodeJson, JsonSyntaxError, parseJson } from '../../../api/codec/json.ts';
import { MAX_VALUES } from '../../../api/codec/limits.ts';
import { createProtobufCodec } from '../../../api/codec/protobuf.ts';
import { parseYaml, stringifyYaml, YamlSyntaxError } from '../../../api/codec/yaml.ts';
import { StatusError } from '../../../api/meta/status-error.ts';
import { DecodeError, decodeStruct } from '../../../api/schema/decode.ts';
import { loadSchema, groupVersionKindOf } from '../../../api/schema/table.ts';
import type { StructType } from '../../../api/schema/schema.ts';
import { generateObject } from '../../fakes/generated-object.ts';
import type { Random } from '../random.ts';
import { law, outcome, type Target } from '../target.ts';

/** A Pod with fields of many types, from which inputs are made. */
export const POD = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'a', labels: { a: 'b' }, annotations: { 'x/y': 'z' }, creationTimestamp: '2024-01-02T03:04:05Z' },
  spec: {
    containers: [
      {
        name: 'c',
        image: 'i',
        ports: [{ containerPort: 80 }],
        resources: { limits: { cpu: '500m' } },
        args: ['1', '2'],
      },
      { name: 'd', image: 'j', env: [{ name: 'E', value: 'v' }], livenessProbe: { httpGet: { port: 'http' } } },
    ],
    tolerations: [{ key: 'k', operator: 'Exists' }],
    nodeSelector: { a: 'b' },
  },
};

const JSON_SEEDS = [
  JSON.stringify(POD),
  '{"a":1,"a":2,"__proto__":{"x":1},"constructor":null}',
  '[1,-0,1.5e3,9223372036854775807,1e400,"\\ud83d\\ude00\\ud800x\\n"]',
];
/** The tokens that mutations of JSON insert. */
export const JSON_WORDS: readonly string[] = [
  '{',
  '}',
  '[',
  ']',
  ':',
  ',',
  '"a":',
  '"__proto__":',
  '\\u',
  '\\"',
  'null',
  'true',
  'e+',
  '.',
  '"kind":"Pod"',
  '"metadata":{',
];

function nestedJson(random: Random): Buffer {
  const depth = random.pick([10, 1000, 1999, 2000, 10_000, 30_000]);
  switch (random.below(4)) {
    case 0:
      return Buffer.from('['.repeat(depth) + ']'.repeat(depth));
    case 1:
      return Buffer.from('{"a":'.repeat(depth) + '1' + '}'.repeat(depth));
    case 2:
      return Buffer.from(
        `{"labels":{${Array.from({ length: depth }, (_, index) => `"k${index % 9000}":"v"`).join(',')}}}`,
      );
    default:
      return Buffer.from(`[${'9'.repeat(depth)},${'1'.repeat(depth)}e5,0.${'0'.repeat(depth)}1]`);
  }
}

const podStruct = loadSchema().kind('', 'v1', 'Pod');
assert(podStruct !== undefined);
const pod = podStruct;

export const json: Target = {
  seeds: JSON_SEEDS,
  words: JSON_WORDS,
  generate: nestedJson,
  execute(input) {
    return outcome(() => {
      const { value, duplicates } = parseJson(input);
      duplicateWarnings(duplicates);
      const written = encodeJson(value);
      law(encodeJson(parseJson(written).value).equals(written), 'what is written reads otherwise');
      return decodeStruct(pod, value).value;
    }, [JsonSyntaxError, DecodeError]);
  },
};

function yamlBomb(random: Random): Buffer {
  const most = random.chance(10) ? 12 : 4;
  const levels = 1 + random.below(most);
  const wide = 1 + random.below(most);
  const map = random.chance(2);
  const lines = [map ? 'a0: &a0 {x: 1}' : 'a0: &a0 [x]'];
  for (let level = 1; level <= levels; level += 1) {
    const names = Array.from({ length: wide }, (_, index) => (map ? `k${index}: *a${level - 1}` : `*a${level - 1}`));
    const merge = map && random.chance(3) ? `<<: [${names.map((name) => name.split(' ')[1]).join(', ')}], ` : '';
    lines.push(`a${level}: &a${level} ${map ? `{${merge}${names.join(', ')}}` : `[${names.join(', ')}]`}`);
  }
  if (random.chance(3)) {
    const depth = random.pick([999, 1001, 10_000, 30_000]);
    return Buffer.from(
      random.pick([`${'['.repeat(depth)}`, '- '.repeat(depth), '{a: '.repeat(depth), '? '.repeat(depth)]),
    );
  }
  return Buffer.from(lines.join('\n'));
}

export const yaml: Target = {
  seeds: [
    'apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels: &l {a: b, "c": yes}\nspec:\n- 014\n- 1_000\n- |+\n  text\n\n- *l\n',
    'a: &x\n  <<: *x\n',
    'base: &b {a: 1}\nd:\n  <<: [*b, {c: 2}]\n  a: 2\n--- \n"k": !!binary aGk=\n? [1, 2]\n: 2024-01-02\n',
    '%YAML 1.1\n---\n!!set {a, b}\n...\n%TAG ! tag:x,2000:\n--- !a >-\n  x\n  y\n',
    stringifyYaml(POD),
  ],
  words: [
    '&a ',
    '*a',
    '<<: ',
    '!!int ',
    '!!float ',
    '!!bool ',
    '!!null ',
    '!!binary ',
    '!!omap ',
    '!!pairs ',
    '!!set ',
    '!!str ',
    '!!timestamp ',
    '---\n',
    '...\n',
    '|2-\n',
    '>+\n',
    '? ',
    ': ',
    '- ',
    '{',
    '}',
    '[',
    ']',
    ', ',
    '# ',
    '"',
    "'",
    '\\x',
    '\\U0010FFFF',
    '%TAG ',
    '\n  ',
    '\t',
    '~',
    '.inf',
    '.nan',
    '0x',
    '0b',
    '0o7',
    '_',
    '1:30',
  ],
  generate: yamlBomb,
  execute(input) {
    return outcome(() => {
      const { value, duplicates } = parseYaml(input);
      duplicateWarnings(duplicates);
      const text = stringifyYaml(value);
      if (text.length < 100_000)
        law(stringifyYaml(parseYaml(text).value) === text, `what is written reads otherwise: ${text.slice(0, 500)}`);
      return [value];
    }, [YamlSyntaxError]);
  },
};

/** Returns the target for the codec of protobuf. */
export function protobuf(): Target {
  const schema = loadSchema();
  const codec = createProtobufCodec(schema);
  const kinds: (StructType & object)[] = [];
  for (const name of schema.structNames()) {
    const gvk = groupVersionKindOf(name);
    const struct = schema.struct(name);
    if (gvk !== undefined && struct !== undefined && codec.has(gvk.group, gvk.version, gvk.kind)) kinds.push(struct);
  }
  const encoded = (random: Random): Buffer => {
    const struct = random.pick(kinds) ?? pod;
    const gvk = groupVersionKindOf(struct.name) ?? { group: '', version: 'v1', kind: 'Pod' };
    const apiVersion = gvk.group === '' ? gvk.version : `${gvk.group}/${gvk.version}`;
    const object = generateObject(struct, random.below(1 << 30));
    const bytes = Buffer.from(codec.encodeEnveloped({ ...object, apiVersion, kind: gvk.kind }));
    for (let changes = random.below(6); changes > 0; changes -= 1)
      bytes[random.below(bytes.length)] = random.below(256);
    return bytes.subarray(0, random.chance(4) ? random.below(bytes.length) : bytes.length);
  };
  return {
    seeds: [Buffer.from(codec.encodeEnveloped(POD))],
    words: [
      'k8s\0',
      '\n\x02v1',
      '\x12\x03Pod',
      '\x0a\x80\x80\x80\x80\x08',
      '\x7a\x00',
      '\x0b',
      '\x0c',
      '\x0d',
      '\x09',
      '\xff\xff\xff\xff\x0f',
    ],
    generate: encoded,
    execute(input) {
      return outcome(() => {
        const value = codec.decode(input, MAX_VALUES);
        const again = codec.decode(codec.encodeEnveloped(value));
        return { kind: again['kind'] };
      }, [StatusError]);
    },
  };
}
