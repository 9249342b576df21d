/**
 * Writes extreme objects while watches in every encoding are open, some of which are slow, gone, or converted by a webhook that
 * answers late, wrong, without an end or never. Every other watch gets every event once and in order.
 */
import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, request, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import type { JsonObject, KubeObject } from '../../api/meta/object.ts';
import { until } from '../until.ts';
import { TestedPlane } from './tested-plane.ts';
import { webhookCertificate } from './webhook-certificate.ts';

const GROUP = 'watched.example.com';
const V1 = `/apis/${GROUP}/v1/namespaces/default/wilds`;
const V2 = `/apis/${GROUP}/v2/namespaces/default/wilds`;
const MAPS = '/api/v1/namespaces/default/configmaps';
const JSON_TYPE = 'application/json';
const PROTOBUF = 'application/vnd.kubernetes.protobuf';
const TABLE = ';as=Table;v=v1;g=meta.k8s.io';
const METADATA = ';as=PartialObjectMetadata;v=v1;g=meta.k8s.io';

let plane: TestedPlane;
let webhook: Server;
/** How the webhook answers. */
let respond: (review: Review, response: ServerResponse) => void;

interface Review {
  readonly request: {
    readonly uid: string;
    readonly desiredAPIVersion: string;
    readonly objects: readonly KubeObject[];
  };
}

/** Sends what a webhook that works sends. */
function convert({ request: { uid, desiredAPIVersion, objects } }: Review, response: ServerResponse): void {
  const convertedObjects = objects.map((object) => ({ ...object, apiVersion: desiredAPIVersion }));
  const body = { uid, result: { status: 'Success' }, convertedObjects };
  response.end(JSON.stringify({ apiVersion: 'apiextensions.k8s.io/v1', kind: 'ConversionReview', response: body }));
}

/** Columns of every type over values of every type. */
const COLUMNS = ['string', 'integer', 'number', 'boolean', 'date'].flatMap((type) =>
  ['.spec', '.spec.n', '.spec.list', '.spec.list[*]', '.spec.text', '.spec.none', '.metadata.creationTimestamp'].map(
    (jsonPath, at) => ({ name: `${type}-${at}`, type, jsonPath }),
  ),
);

function definition(url: string, caBundle: string): JsonObject {
  const spec = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  const schema = { openAPIV3Schema: { type: 'object', properties: { spec } } };
  const version = { served: true, schema, additionalPrinterColumns: COLUMNS };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `wilds.${GROUP}` },
    spec: {
      group: GROUP,
      scope: 'Namespaced',
      names: { plural: 'wilds', kind: 'Wild' },
      conversion: {
        strategy: 'Webhook',
        webhook: { conversionReviewVersions: ['v1'], clientConfig: { url, caBundle } },
      },
      versions: [
        { ...version, name: 'v1', storage: true },
        { ...version, name: 'v2', storage: false },
      ],
    },
  } as unknown as JsonObject;
}

before(async () => {
  const identity = await webhookCertificate();
  webhook = createServer(identity, (message, response) => {
    const chunks: Buffer[] = [];
    message.on('data', (chunk: Buffer) => chunks.push(chunk));
    message.on('end', () => {
      response.setHeader('content-type', JSON_TYPE);
      respond(JSON.parse(Buffer.concat(chunks).toString()) as Review, response);
    });
  });
  await new Promise<void>((resolve) => webhook.listen(0, '127.0.0.1', resolve));
  const url = `https://127.0.0.1:${(webhook.address() as AddressInfo).port}/`;
  plane = await TestedPlane.start();
  await plane.define(definition(url, Buffer.from(identity.cert).toString('base64')), V1);
});

after(async () => {
  await plane.close();
  webhook.closeAllConnections();
  webhook.close();
});

/** A watch of a client. What it reads is searched for names of objects, which appear in every encoding. */
class Watch {
  readonly #message: IncomingMessage;
  #text = '';
  isOver = false;

  private constructor(message: IncomingMessage) {
    this.#message = message;
    message.on('data', (chunk: Buffer) => (this.#text += chunk.toString('latin1')));
    for (const end of ['end', 'error', 'close']) message.on(end, () => (this.isOver = true));
  }

  /** Opens a watch of what comes after the newest objects. */
  static async open(path: string, accept = JSON_TYPE): Promise<Watch> {
    const { text } = await plane.call({
      path: path.split('?')[0]?.replace('/v2/', '/v1/') ?? '',
      accept: JSON_TYPE + METADATA.replace('Metadata', 'MetadataList'),
    });
    const { resourceVersion } = (JSON.parse(text) as { metadata: { resourceVersion: string } }).metadata;
    const url = `${plane.connection.origin}${path}${path.includes('?') ? '&' : '?'}watch=1&resourceVersion=${resourceVersion}`;
    const headers = { accept, authorization: `Bearer ${plane.connection.token}` };
    return new Promise((resolve, reject) => {
      const sent = request(url, { agent: false, rejectUnauthorized: false, headers }, (message) => {
        if (message.statusCode === 200) resolve(new Watch(message));
        else reject(new Error(`${message.statusCode} for ${accept}`));
      });
      sent.on('error', reject);
      sent.end();
    });
  }

  /** Reads nothing more, but stays open. */
  stall(): void {
    this.#message.pause();
  }

  close(): void {
    this.#message.destroy();
  }

  has(name: string): boolean {
    return this.#text.includes(name);
  }

  /** Returns the text of an error event, if the watch has one. */
  get error(): string | undefined {
    return /\{"type":"ERROR".*/.exec(this.#text)?.[0];
  }

  /** Returns the names in the order of the events. */
  get names(): string[] {
    return [...this.#text.matchAll(/"name":"((?:wild|map)-\d+)"/g)].map(([, name = '']) => name);
  }
}

const EXTREMES: Readonly<Record<string, string>> = {
  'the least and the largest integer': '{"n":9223372036854775807,"list":[-9223372036854775808]}',
  'an integer of thirty digits': '{"n":123456789012345678901234567890}',
  'the largest double': '{"n":1.7976931348623157e308,"list":[5e-324]}',
  'a deep object': `{"list":${'['.repeat(1900)}${']'.repeat(1900)}}`,
  'a text of a mebibyte': `{"text":${JSON.stringify('x'.repeat(1 << 20))}}`,
  'control characters': String.raw`{"text":"\u0000\u001b[2J\ud800\u2028\\\"","n":"\u0007"}`,
  'tens of thousands of values': `{"list":[${Array.from({ length: 50_000 }, () => 1).join()}]}`,
  'names that every object of JavaScript has':
    '{"__proto__":{"n":1},"constructor":[],"toString":1,"n":{"__proto__":null}}',
  'other types': '{"n":[],"list":{"a":true},"text":{"b":[null]}}',
};

let count = 0;

/** Creates an object with this spec. Resolves to its name. */
async function write(spec: string): Promise<string> {
  const name = `wild-${(count += 1)}`;
  const body = `{"apiVersion":"${GROUP}/v1","kind":"Wild","metadata":{"name":"${name}"},"spec":${spec}}`;
  const { status, text } = await plane.call({ method: 'POST', path: V1, body });
  assert.equal(status, 201, text.slice(0, 500));
  return name;
}

/** Creates a config map. Resolves to its name. */
async function writeMap(data: JsonObject): Promise<string> {
  const name = `map-${(count += 1)}`;
  const { status, text } = await plane.call({ method: 'POST', path: MAPS, body: { metadata: { name }, data } });
  assert.equal(status, 201, text.slice(0, 500));
  return name;
}

describe('extreme objects under open watches', () => {
  test('come in every encoding, also of another version, while others are slow or gone', async () => {
    respond = convert;
    const encodings = [JSON_TYPE, JSON_TYPE + TABLE, JSON_TYPE + METADATA, PROTOBUF + METADATA];
    const opened = encodings.flatMap((accept) => [V1, V2].map((path) => [path, accept] as const));
    opened.push([`${V1}?includeObject=Object`, JSON_TYPE + TABLE], [`${V1}?includeObject=None`, JSON_TYPE + TABLE]);
    const watches = await Promise.all(opened.map(([path, accept]) => Watch.open(path, accept)));
    const slow = await Promise.all(encodings.map((accept) => Watch.open(V1, accept)));
    for (const watch of slow) watch.stall();
    const names: string[] = [];
    for (const [at, spec] of Object.values(EXTREMES).entries()) {
      const gone = await Watch.open(at % 2 === 0 ? V1 : V2, encodings[at % encodings.length]);
      names.push(await write(spec));
      gone.close();
    }
    for (const [at, [path, accept]] of opened.entries()) {
      const isTableWithoutObjects = path.endsWith('None');
      for (const [index, name] of names.entries())
        await until(`${Object.keys(EXTREMES)[index]} in a watch of ${path} as ${accept}`, () => {
          const watch = watches[at];
          if (watch?.isOver === true && !watch.has(name)) return assert.fail(`the watch of ${path} as ${accept} ended`);
          return watch?.has(name) === true || isTableWithoutObjects;
        });
    }
    assert.deepEqual(watches[0]?.names, names);
    for (const watch of [...watches, ...slow]) watch.close();
  });

  test('of a built-in kind come in every encoding', async () => {
    const encodings = [JSON_TYPE, PROTOBUF, JSON_TYPE + TABLE, PROTOBUF + METADATA];
    const watches = await Promise.all(encodings.map((accept) => Watch.open(MAPS, accept)));
    const data = { text: 'x'.repeat(1_000_000), __proto__: 'a', 'a.b': '\u0000\u001b' };
    const names = [await writeMap(data), await writeMap({})];
    for (const [at, watch] of watches.entries())
      for (const name of names) await until(`${name} as ${encodings[at]}`, () => watch.has(name));
    for (const watch of watches) watch.close();
  });

  test('that are nested deeper than a body may be are refused, and the watches go on', async () => {
    const watch = await Watch.open(V1);
    const body = `{"apiVersion":"${GROUP}/v1","kind":"Wild","metadata":{"name":"deep"},"spec":{"list":${'['.repeat(10_000)}${']'.repeat(10_000)}}}`;
    assert.equal((await plane.call({ method: 'POST', path: V1, body })).status, 400);
    const name = await write('{}');
    await until('the next object', () => watch.has(name));
    watch.close();
  });
});

describe('a webhook that converts the events of a watch', () => {
  const waiting: ServerResponse[] = [];
  for (const [how, answer, isEndOfWatch] of [
    ['never answers', (_review, response) => void waiting.push(response), false],
    [
      'answers with another object',
      ({ request: of }, response) =>
        convert({ request: { ...of, objects: [{ metadata: { name: 'other' } }] } }, response),
      true,
    ],
    ['answers with something else than JSON', (_review, response) => void response.end('<html>'), true],
    ['answers with an error', (_review, response) => void response.writeHead(500).end(), true],
    ['closes the connection', (_review, response) => void response.destroy(), true],
    [
      'answers with more than may be read',
      (_review, response) => {
        const more = (): void => {
          while (!response.destroyed && response.write(Buffer.alloc(1 << 16, ' ')));
        };
        response.on('drain', more);
        more();
      },
      true,
    ],
  ] as readonly (readonly [string, typeof respond, boolean])[])
    test(`and ${how} holds up no other watch`, async () => {
      // A watch of the converted version begins with a list.
      respond = convert;
      const [stored, maps, converted, table] = await Promise.all([
        Watch.open(V1),
        Watch.open(MAPS),
        Watch.open(V2),
        Watch.open(V2, JSON_TYPE + TABLE),
      ]);
      respond = answer;
      const names: string[] = [];
      for (let at = 0; at < 20; at += 1) names.push(await write('{"n":1}'));
      const map = await writeMap({ a: 'b' });
      await until('the events of the stored version', () => stored.has(names.at(-1) ?? ''));
      await until('the event of another kind', () => maps.has(map));
      assert.deepEqual(stored.names, names);
      if (isEndOfWatch) {
        for (const watch of [converted, table]) {
          await until('the end of the converted watch', () => watch.isOver);
          assert.ok(watch.error !== undefined, 'the watch ends with an error');
        }
      } else assert.deepEqual([converted.names, converted.isOver], [[], false]);
      for (const watch of [stored, maps, converted, table]) watch.close();
      for (const response of waiting.splice(0)) response.destroy();
      respond = convert;
      const again = await Watch.open(V2);
      const name = await write('{"n":2}');
      await until('an event of a watch that was opened again', () => again.has(name));
      again.close();
      assert.equal((await plane.call({ path: '/readyz' })).status, 200);
    });

  test('and answers late holds up its own watch alone, which then gets every event in order', async () => {
    respond = convert;
    const [stored, converted] = await Promise.all([Watch.open(V1), Watch.open(V2)]);
    const late: (() => void)[] = [];
    respond = (review, response) => void late.push(() => convert(review, response));
    const names: string[] = [];
    for (let at = 0; at < 20; at += 1) names.push(await write('{"n":1}'));
    await until('the events of the stored version', () => stored.has(names.at(-1) ?? ''));
    assert.deepEqual(converted.names, []);
    respond = convert;
    for (const release of late.splice(0)) release();
    await until('the events of the other version', () => converted.has(names.at(-1) ?? ''));
    assert.deepEqual(converted.names, names);
    for (const watch of [stored, converted]) watch.close();
  });
});
