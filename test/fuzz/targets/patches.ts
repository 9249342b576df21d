/** Attacks patches of every type. An input is JSON with an object and a patch. Any other JSON is used as a patch of a Pod. */
import assert from 'node:assert/strict';
import { applyJsonPatch } from '../../../api/codec/json-patch.ts';
import { encodeJson, JsonSyntaxError, parseJson } from '../../../api/codec/json.ts';
import { applyMergePatch } from '../../../api/codec/merge-patch.ts';
import { applyStrategicMergePatch } from '../../../api/codec/strategic-merge-patch.ts';
import type { JsonObject, JsonValue, KubeObject } from '../../../api/meta/object.ts';
import { StatusError } from '../../../api/meta/status-error.ts';
import { DecodeError, decodeStruct } from '../../../api/schema/decode.ts';
import { loadSchema } from '../../../api/schema/table.ts';
import { createFieldManagement } from '../../../controlplane/registry/managed-fields.ts';
import { builtInReader } from '../../../controlplane/registry/object-decoding.ts';
import type { Random } from '../random.ts';
import { outcome, type Target } from '../target.ts';
import { JSON_WORDS, POD } from './codecs.ts';

interface Case {
  readonly document: JsonObject;
  readonly patch: JsonValue;
}

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function readCase(input: Buffer): Case {
  const { value } = parseJson(input);
  if (isObject(value) && isObject(value['document']) && value['patch'] !== undefined)
    return { document: value['document'], patch: value['patch'] };
  return { document: structuredClone(POD) as unknown as JsonObject, patch: value };
}

/** Applies the patch. It must modify neither argument, and the result must be serializable. */
function target(apply: (document: JsonObject, patch: JsonValue) => unknown, rest: Omit<Target, 'execute'>): Target {
  return {
    ...rest,
    execute(input) {
      return outcome(() => {
        const { document, patch } = readCase(input);
        const before = encodeJson(document);
        const result = apply(document, patch);
        assert.deepEqual(encodeJson(document), before, 'the object was changed');
        encodeJson(result);
        return result;
      }, [StatusError, JsonSyntaxError, DecodeError]);
    },
  };
}

function operations(random: Random): Buffer {
  const length = random.pick([1, 5, 9999, 10_000, 10_001]);
  const paths = [
    '/spec/containers/0',
    '/spec/containers/-',
    '/metadata/labels/a~1b',
    '',
    '/a',
    '/__proto__/x',
    '/constructor/prototype/y',
    '/spec/containers/1e0',
    '/spec',
  ];
  const value = random.pick([1, 'x', { a: 1 }, [1]] as const);
  return Buffer.from(
    JSON.stringify(
      Array.from({ length }, () => ({
        op: random.pick(['add', 'add', 'add', 'copy', 'move', 'test', 'replace', 'remove']),
        path: random.pick(paths),
        from: random.pick(paths),
        value,
      })),
    ),
  );
}

/** Generates a JSON patch whose `copy` operations double the document. */
function doubling(random: Random): Buffer {
  const length = 5 + random.below(60);
  const from = random.pick(['', '/spec/containers', '/metadata']);
  const copies = Array.from({ length }, (_, index) => ({
    op: 'copy',
    from,
    path: from === '/spec/containers' ? `${from}/-` : `${from}/k${index}`,
  }));
  return Buffer.from(JSON.stringify(copies));
}

/** The target for JSON patches. */
export const jsonPatch: Target = target((document, patch) => applyJsonPatch(document, patch), {
  seeds: [
    '[{"op":"add","path":"/metadata/labels/x","value":"y"},{"op":"test","path":"/kind","value":"Pod"}]',
    '[{"op":"move","from":"/spec/containers/0","path":"/spec/containers/-"},{"op":"remove","path":"/spec/nodeSelector"}]',
    '{"document":{"a":[1,{"b":2}],"__proto__":{}},"patch":[{"op":"copy","from":"/a","path":"/a/0"},{"op":"replace","path":"","value":{}}]}',
  ],
  words: [...JSON_WORDS, '"op":"copy"', '"path":"/', '"from":"', '~1', '/-', '/0', '/spec/containers'],
  generate: (random) => (random.chance(2) ? operations(random) : doubling(random)),
});

function wideAndDeep(random: Random): Buffer {
  const depth = random.pick([100, 1990]);
  if (random.chance(2)) return Buffer.from('{"a":'.repeat(depth) + 'null' + '}'.repeat(depth));
  const many = Array.from({ length: random.pick([10, 5000, 20_000]) }, (_, index) => ({
    name: `c${index}`,
    image: 'x',
  }));
  return Buffer.from(
    JSON.stringify({ document: { spec: { containers: many } }, patch: { spec: { containers: many } } }),
  );
}

/** The target for JSON merge patches. */
export const mergePatch: Target = target((document, patch) => applyMergePatch(document, patch), {
  seeds: ['{"metadata":{"labels":{"a":null,"b":{"c":null}}},"__proto__":{"x":1}}', '{"document":{"a":1},"patch":[]}'],
  words: JSON_WORDS,
  generate: wideAndDeep,
});

const struct = (kind: string) => {
  const found = loadSchema().kind('', 'v1', kind);
  assert(found !== undefined);
  return found;
};

/** Returns the target for strategic merge patches. */
export function strategicMerge(): Target {
  const pod = struct('Pod');
  return target((document, patch) => applyStrategicMergePatch(document, patch, pod), {
    seeds: [
      '{"spec":{"containers":[{"name":"c","$patch":"delete"},{"name":"e","image":"k"}],"$setElementOrder/containers":[{"name":"e"},{"name":"d"}]}}',
      '{"spec":{"$retainKeys":["containers"],"containers":[{"$patch":"replace"},{"name":"z"}]},"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"finalizers":["b"]}}',
      '{"$patch":"replace","metadata":{"name":"b"}}',
    ],
    words: [
      ...JSON_WORDS,
      '"$patch":"delete"',
      '"$patch":"merge"',
      '"$setElementOrder/containers":',
      '"$deleteFromPrimitiveList/finalizers":',
      '"$retainKeys":["a"]',
      '"name":"c"',
      '"containers":[{',
    ],
    generate: wideAndDeep,
  });
}

const clock = {
  nowMs: 1_700_000_000_000,
  now: () => clock.nowMs,
  monotonic: () => clock.nowMs,
  after: () => ({ cancel: () => undefined }),
  sleep: () => Promise.resolve(),
};

/** Returns the target for server-side apply. */
export function structuredMerge(): Target {
  const pod = struct('Pod');
  const expected = {
    group: '',
    version: 'v1',
    kind: 'Pod',
    struct: pod,
    reader: builtInReader,
    applyDefaults: undefined,
  };
  const management = createFieldManagement(clock, expected);
  const write = (manager: string) => ({ manager, apiVersion: 'v1', subresource: '', resetFields: [] });
  const apply = (live: KubeObject | undefined, manager: string, body: unknown): KubeObject =>
    management.apply(
      live,
      { type: 'apply', body: body as JsonObject, duplicates: [], force: true },
      { ...write(manager), target: { namespace: 'n', name: 'a' }, validation: 'Warn', warn: () => undefined },
    );
  return target(
    (document, patch) => {
      const first = decodeStruct(pod, document).value as unknown as KubeObject;
      const live = management.update(undefined, { ...first, metadata: { ...first.metadata } }, write('u'));
      const stored = { ...live, metadata: { ...live.metadata, uid: 'u1' } };
      const applied = apply(stored, 'a', patch);
      const again = apply({ ...applied, metadata: { ...applied.metadata, uid: 'u1' } }, 'a', patch);
      const size = (object: KubeObject): number => encodeJson(object.metadata.managedFields ?? null).length;
      assert.equal(size(again), size(applied), 'applying again changes who owns what');
      return apply(undefined, 'b', patch);
    },
    {
      seeds: [
        JSON.stringify({
          ...POD,
          spec: { containers: [{ name: 'c', image: 'z', ports: [{ containerPort: 81, protocol: 'UDP' }] }] },
        }),
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","finalizers":["x","x"]},"spec":{"containers":[{"name":"c"},{"name":"c"}]}}',
        '{"document":{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:containers":{"k:{\\"name\\":\\"c\\"}":{".":{}}}}}}]}},"patch":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}}',
      ],
      words: [
        ...JSON_WORDS,
        '"k:{\\"name\\":\\"c\\"}":{}',
        '"v:1":{}',
        '"i:0":{}',
        '"f:spec":{',
        '".":{}',
        '"apiVersion":"v1","kind":"Pod",',
        '"containers":[{"name":"c"',
        '"fieldsV1":{',
        '"managedFields":[{',
      ],
      generate: (random) => {
        const length = random.pick([3, 300, 3000]);
        const containers = Array.from({ length }, (_, index) => ({
          name: `c${random.below(3) === 0 ? 0 : index}`,
          image: 'x',
        }));
        return Buffer.from(
          JSON.stringify({ apiVersion: 'v1', kind: 'Pod', metadata: { name: 'a' }, spec: { containers } }),
        );
      },
    },
  );
}
