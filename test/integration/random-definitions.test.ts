/**
 * Creates CustomResourceDefinitions with random schemas and columns, and random objects of them, while watches in every
 * encoding are open. The server refuses what it must, and each watch gets every object that was stored.
 */
import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { after, before, test } from 'node:test';
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import { Random } from '../soak/random.ts';
import { until } from '../until.ts';
import { TestedPlane } from './tested-plane.ts';

const GROUP = 'random.example.com';
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const COUNT = 40;
const OBJECTS = 6;
const DEEPEST = 4;
const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io';
const METADATA = ';as=PartialObjectMetadata;v=v1;g=meta.k8s.io';
const ENCODINGS = [
  'application/json',
  TABLE,
  `application/json${METADATA}`,
  `application/vnd.kubernetes.protobuf${METADATA}`,
];
const NAMES = ['a', 'n', 'list', '__proto__', 'constructor', 'x-y', 'if', 'metadata', 'a.b', '$ref'];
const NUMBERS = ['0', '-1', '9223372036854775807', '123456789012345678901234567890', '1e308', '1.5', '-0'];
const TEXTS = ['', 'x', '2020-01-01T00:00:00Z', 'null', '\u0000', '\ud800', '<&>', 'x'.repeat(2000)];
const PATHS = [
  '.spec',
  '.spec.a',
  '.spec.n',
  '.spec.list[*]',
  '.spec.list[-1:]',
  '..a',
  '.spec.list[?(@.a=="x")].n',
  '.spec["x-y"]',
];
const PATTERNS = ['^a*$', '(a+)+$', '[', String.raw`\d{1,1000}`];
const RULES = ['true', 'self == oldSelf', 'has(self.a)', 'self.size() < 3', 'self.all(x, x > 0)'];

let plane: TestedPlane;
before(async () => {
  plane = await TestedPlane.start();
});
after(() => plane.close());

/** Generates values and schemas. Numbers are texts, because JavaScript cannot hold all of them. */
class Generator {
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = new Random(seed);
  }

  pick<T>(values: readonly T[]): T {
    return this.#random.pick(values);
  }

  chance(share: number): boolean {
    return this.#random.next() < share;
  }

  some<T>(most: number, make: () => T): T[] {
    return Array.from({ length: Math.floor(this.#random.next() * (most + 1)) }, make);
  }

  /** Returns a value as JSON. */
  value(depth = 0): string {
    switch (this.pick(depth < DEEPEST ? [0, 1, 2, 3, 4, 5] : [0, 1, 2])) {
      case 0:
        return this.pick(['null', 'true', 'false', '[]', '{}']);
      case 1:
        return this.pick(NUMBERS);
      case 2:
        return JSON.stringify(this.pick(TEXTS));
      case 3:
        return `[${this.some(3, () => this.value(depth + 1)).join()}]`;
      default: {
        const names = new Set(this.some(3, () => this.pick(NAMES)));
        return `{${[...names].map((name) => `${JSON.stringify(name)}:${this.value(depth + 1)}`).join()}}`;
      }
    }
  }

  /** Returns a value as JSON that mostly fits the schema. */
  fitting({ type, items, properties, additionalProperties }: JsonObject): string {
    if (this.chance(0.05)) return this.value();
    const members = (of: readonly (readonly [string, JsonValue | undefined])[]): string =>
      `{${of.map(([name, schema]) => `${JSON.stringify(name)}:${this.fitting(schema as JsonObject)}`).join()}}`;
    switch (type) {
      case 'string':
        return JSON.stringify(this.pick(TEXTS));
      case 'integer':
        return this.pick(['0', '-7', '9223372036854775807']);
      case 'number':
        return this.pick(NUMBERS);
      case 'boolean':
        return 'true';
      case 'array':
        return `[${this.some(3, () => this.fitting(items as JsonObject)).join()}]`;
      default:
        if (properties !== undefined) return members(Object.entries(properties as JsonObject));
        if (additionalProperties !== undefined) return members([[this.pick(NAMES), additionalProperties]]);
        return `{${JSON.stringify(this.pick(NAMES))}:${this.value()}}`;
    }
  }

  schema(depth = 0): JsonObject {
    const rule = this.chance(0.1) ? { 'x-kubernetes-validations': [{ rule: this.pick(RULES) }] } : {};
    const more = { ...(this.chance(0.2) ? { nullable: true } : {}), ...rule };
    switch (this.pick(depth < DEEPEST ? [0, 1, 2, 3, 4, 5] : [0, 1, 2])) {
      case 0:
        return { type: 'string', ...(this.chance(0.3) ? { pattern: this.pick(PATTERNS) } : {}), ...more };
      case 1:
        return { type: this.pick(['integer', 'number', 'boolean']), ...more };
      case 2:
        return { type: 'object', 'x-kubernetes-preserve-unknown-fields': true, ...more };
      case 3:
        return { type: 'array', items: this.schema(depth + 1), ...more };
      case 4:
        return { type: 'object', additionalProperties: this.schema(depth + 1), ...more };
      default: {
        const names = new Set(this.some(4, () => this.pick(NAMES.filter((name) => name !== '__proto__'))));
        return {
          type: 'object',
          properties: Object.fromEntries([...names].map((name) => [name, this.schema(depth + 1)])),
          ...more,
        };
      }
    }
  }

  definition(plural: string, spec: JsonObject): JsonObject {
    const columns = this.some(5, (): JsonValue => {
      const name = `c${this.#random.next()}`;
      return { name, type: this.pick(['string', 'integer', 'number', 'boolean', 'date']), jsonPath: this.pick(PATHS) };
    });
    const openAPIV3Schema = { type: 'object', properties: { spec, status: this.schema() } };
    const version = { name: 'v1', served: true, storage: true, schema: { openAPIV3Schema } };
    return {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: `${plural}.${GROUP}` },
      spec: {
        group: GROUP,
        scope: 'Namespaced',
        names: { plural, kind: 'Random' + plural },
        versions: [{ ...version, additionalPrinterColumns: columns }],
      },
    };
  }
}

/** Resolves to the text that a watch has received so far, and to its end. */
function watch(path: string, accept: string): Promise<{ text(): string; close(): void }> {
  const headers = { accept, authorization: `Bearer ${plane.connection.token}` };
  return new Promise((resolve, reject) => {
    const answered = (message: IncomingMessage): void => {
      let text = '';
      message.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
      message.on('error', () => undefined);
      resolve({ text: () => text, close: () => message.destroy() });
    };
    const url = `${plane.connection.origin}${path}?watch=1`;
    request(url, { agent: false, rejectUnauthorized: false, headers }, answered).on('error', reject).end();
  });
}

/** Whether kube-apiserver answers 500 as well, as it does to an apply whose fields are not those of the schema. */
const isKnown = (text: string): boolean => text.includes('failed to create typed patch object');

const seed = Number(process.env['ORCHLET_TEST_SEED'] ?? Math.floor(Math.random() * 2 ** 31));

test(
  `random definitions and objects of them are served or refused, ORCHLET_TEST_SEED=${seed}`,
  { timeout: 240_000 },
  async () => {
    const make = new Generator(seed);
    let stored = 0;
    for (let at = 0; at < COUNT; at += 1) {
      const plural = `r${at}`;
      const schema = make.schema();
      const definition = make.definition(plural, schema);
      const created = await plane.call({ method: 'POST', path: DEFINITIONS, body: definition });
      assert.ok(created.status < 500, created.text);
      if (created.status !== 201) continue;
      const path = `/apis/${GROUP}/v1/namespaces/default/${plural}`;
      await until('the resource', async () => (await plane.call({ path })).status === 200);
      const watches = await Promise.all(ENCODINGS.map((accept) => watch(path, accept)));
      for (let object = 0; object < OBJECTS; object += 1) {
        const name = `object-${object}`;
        const whole = (): string =>
          `{"apiVersion":"${GROUP}/v1","kind":"Random${plural}","metadata":{"name":"${name}"},"spec":${make.fitting(schema)}}`;
        const { status, text } = await plane.call({ method: 'POST', path, body: whole() });
        assert.ok(status < 500, text);
        if (status !== 201) continue;
        stored += 1;
        for (const [type, body] of [
          ['application/merge-patch+json', `{"spec":${make.fitting(schema)}}`],
          ['application/json-patch+json', `[{"op":"add","path":"/spec","value":${make.value()}}]`],
          ['application/apply-patch+yaml', whole()],
        ] as const) {
          const force = type.includes('apply') ? '&force=true' : '';
          const patched = await plane.call({
            method: 'PATCH',
            path: `${path}/${name}?fieldManager=m${force}`,
            body,
            type,
          });
          assert.ok(patched.status < 500 || isKnown(patched.text), patched.text);
        }
        for (const [index, one] of watches.entries())
          await until(`${name} of ${JSON.stringify(definition)} as ${ENCODINGS[index]}`, () =>
            one.text().includes(name),
          );
      }
      for (const one of watches) {
        assert.doesNotMatch(one.text(), /"type":"ERROR"/);
        one.close();
      }
      await plane.call({ method: 'DELETE', path: `${DEFINITIONS}/${plural}.${GROUP}` });
    }
    assert.ok(stored > 10, `${stored} objects were stored`);
  },
);
