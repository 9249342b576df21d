/**
 * Reads, lists and watches custom resources. The answers were compared with those of apiextensions-apiserver 1.36: pages,
 * resource versions, negotiation, discovery, and what a watch sends first and last.
 */
import assert from 'node:assert/strict';
import { request } from 'node:https';
import { after, before, describe, test } from 'node:test';
import type { JsonObject } from '../../api/meta/object.ts';
import type { Answer } from '../hostile/send.ts';
import { type Call, TestedPlane } from './tested-plane.ts';

const GROUP = '/apis/reads.example.com';
const THINGS = `${GROUP}/v1/namespaces/default/things`;
const MERGE = 'application/merge-patch+json';
const ALL_TYPES = 'application/json, application/yaml, application/vnd.kubernetes.protobuf';

let tested: TestedPlane;
const call = (request: Call): Promise<Answer> => tested.call(request);

interface List {
  readonly metadata: {
    readonly continue: string;
    readonly resourceVersion: string;
    readonly remainingItemCount?: number;
  };
  readonly items: readonly { readonly metadata: { readonly name: string } }[];
}

const list = async (query: string): Promise<List> => {
  const { status, text } = await call({ path: `${THINGS}?${query}` });
  assert.equal(status, 200, text);
  return JSON.parse(text) as List;
};
const named = ({ items }: List): string[] => items.map(({ metadata }) => metadata.name);

const thing = (name: string, a: number, l: string): JsonObject => ({
  apiVersion: 'reads.example.com/v1',
  kind: 'Thing',
  metadata: { name, labels: { l } },
  spec: { a },
});

before(async () => {
  tested = await TestedPlane.start();
  const schema = {
    type: 'object',
    properties: { spec: { type: 'object', properties: { a: { type: 'integer' } } }, status: { type: 'object' } },
  };
  const definition = {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'things.reads.example.com' },
    spec: {
      group: 'reads.example.com',
      scope: 'Namespaced',
      names: { plural: 'things', kind: 'Thing' },
      versions: [
        {
          name: 'v1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: schema },
          subresources: { status: {} },
          selectableFields: [{ jsonPath: '.spec.a' }],
        },
      ],
    },
  };
  await tested.define(definition, THINGS);
  for (let a = 0; a < 7; a += 1) {
    const body = thing(`n${a}`, a, a % 2 === 1 ? 'odd' : 'even');
    assert.equal((await call({ method: 'POST', path: THINGS, body })).status, 201);
  }
});

after(() => tested.close());

describe('pages', () => {
  test('a full page has a token as long as objects follow, whether they are selected or not', async () => {
    const odd = await list('limit=3&labelSelector=l%3Dodd');
    assert.deepEqual([named(odd), odd.metadata.continue !== ''], [['n1', 'n3', 'n5'], true]);
    assert.equal(odd.metadata.remainingItemCount, undefined);
    const next = await list(`limit=3&labelSelector=l%3Dodd&continue=${odd.metadata.continue}`);
    assert.deepEqual([named(next), next.metadata.continue], [[], '']);
    const field = await list('limit=1&fieldSelector=spec.a%3D1');
    assert.deepEqual([named(field), field.metadata.continue !== ''], [['n1'], true]);
  });

  test('a page that ends with the last object has no token', async () => {
    for (const query of ['limit=7', 'limit=4&labelSelector=l%3Deven', 'limit=1&fieldSelector=metadata.name%3Dn1'])
      assert.equal((await list(query)).metadata.continue, '', query);
  });

  test('a page of any version contains all that is left', async () => {
    const first = await list('limit=2');
    const next = await list(`limit=2&resourceVersion=0&continue=${first.metadata.continue}`);
    assert.deepEqual([named(next), next.metadata.continue], [['n2', 'n3', 'n4', 'n5', 'n6'], '']);
  });
});

interface Case extends Call {
  readonly name: string;
  readonly status: number;
  readonly contains?: string;
}

function holds(cases: readonly Case[]): void {
  for (const { name, status, contains = '', ...one } of cases) {
    test(name, async () => {
      const answer = await call(one);
      assert.equal(answer.status, status, answer.text.slice(0, 500));
      const message = answer.text.startsWith('{"kind":"Status"')
        ? (JSON.parse(answer.text) as { message: string }).message
        : answer.text;
      assert.ok(message.includes(contains), message.slice(0, 500));
    });
  }
}

const token = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
const TOO_BIG = '18446744073709551616';
const OUT_OF_RANGE = `resourceVersion: Invalid value: "${TOO_BIG}": strconv.ParseUint: parsing "${TOO_BIG}": value out of range`;

describe('resource versions and tokens that are none', () => {
  const next = (value: unknown): string => `${THINGS}?limit=2&continue=${token(value)}`;
  holds([
    {
      name: 'a list',
      path: `${THINGS}?resourceVersion=${TOO_BIG}`,
      status: 400,
      contains: `invalid resource version: ${OUT_OF_RANGE}`,
    },
    { name: 'a watch', path: `${THINGS}?watch=1&resourceVersion=${TOO_BIG}`, status: 500, contains: OUT_OF_RANGE },
    {
      name: 'a token with a text for a version',
      path: next({ v: 'meta.k8s.io/v1', rv: 'x', start: 'n2\u0000' }),
      status: 400,
      contains: 'json: cannot unmarshal string into Go struct field continueToken.rv of type int64',
    },
    {
      name: 'a token that is a list',
      path: next([]),
      status: 400,
      contains: 'json: cannot unmarshal array into Go value of type storage.continueToken',
    },
  ]);
});

describe('negotiation', () => {
  holds([
    {
      name: 'a watch takes the form that the client likes best, and refuses it if it is none of a stream',
      path: `${THINGS}?watch=1`,
      accept: 'application/yaml;q=0.9, application/json;q=0.5',
      status: 406,
      contains: 'application/json;stream=watch,\n  application/vnd.kubernetes.protobuf;stream=watch',
    },
    {
      name: 'a group asks for another form',
      path: `${THINGS}/n1`,
      accept: 'application/json;g=meta.k8s.io',
      status: 406,
      contains: ALL_TYPES,
    },
    {
      name: 'what is not there has no forms',
      path: '/apis/none.example.com',
      accept: 'application/json;as=Table;v=v1;g=meta.k8s.io',
      status: 404,
      contains: '404 page not found',
    },
  ]);

  test('a refusal of the discovery of a definition has no details', async () => {
    const { status, text } = await call({ path: `${GROUP}/v1`, accept: 'text/html' });
    assert.deepEqual([status, Object.hasOwn(JSON.parse(text) as object, 'details')], [406, false]);
  });
});

describe('methods and paths', () => {
  const spec = { spec: { a: 1 } };
  holds([
    { name: 'HEAD of a watch', method: 'HEAD', path: `${THINGS}?watch=1&timeoutSeconds=1`, status: 200 },
    {
      name: 'PATCH of a collection',
      method: 'PATCH',
      path: THINGS,
      body: spec,
      type: MERGE,
      status: 400,
      contains: 'name must be provided',
    },
    { name: 'PATCH of a collection with JSON', method: 'PATCH', path: THINGS, body: spec, status: 415 },
    {
      name: 'POST to an object that exists',
      method: 'POST',
      path: `${THINGS}/n1`,
      body: thing('n1', 1, 'odd'),
      status: 409,
    },
    {
      name: 'POST to a path with another name',
      method: 'POST',
      path: `${THINGS}/n1?dryRun=All`,
      body: thing('other', 1, 'odd'),
      status: 201,
    },
    {
      name: 'what follows a subresource has no meaning',
      path: `${THINGS}/n1/status/x/y`,
      status: 200,
      contains: '"name":"n1"',
    },
    { name: 'DELETE below a subresource', method: 'DELETE', path: `${THINGS}/n1/status/x`, status: 405 },
    {
      name: 'any method of a group of definitions is answered alike',
      method: 'POST',
      path: GROUP,
      status: 200,
      contains: '"kind":"APIGroup"',
    },
    {
      name: 'and of its versions',
      method: 'DELETE',
      path: `${GROUP}/v1`,
      status: 200,
      contains: '"kind":"APIResourceList"',
    },
    {
      name: 'a number that no double holds',
      method: 'POST',
      path: THINGS,
      body: '{"apiVersion":"reads.example.com/v1","kind":"Thing","metadata":{"name":"big"},"spec":{"a":1e400}}',
      status: 400,
      contains:
        'Thing in version "v1" cannot be handled as a Thing: json: cannot unmarshal number 1e400 into Go value of type float64',
    },
  ]);

  test('the version states which release it emulates', async () => {
    const version = JSON.parse((await call({ path: '/version' })).text) as Record<string, string>;
    assert.deepEqual([version['emulationMinor'], version['minCompatibilityMinor']], ['36', '35']);
  });
});

interface WatchEvent {
  readonly type: string;
  readonly object: {
    readonly code?: number;
    readonly metadata: { readonly name?: string; readonly annotations?: object };
  };
}

/** Returns the events of a watch up to the first of a type, or up to its end. */
function watch(query: string, last?: string): Promise<WatchEvent[]> {
  return new Promise((resolve, reject) => {
    const { origin, agent, token } = tested.connection;
    const sent = request(`${origin}${THINGS}?watch=1&${query}`, {
      agent,
      headers: { authorization: `Bearer ${token}` },
    });
    sent.on('response', (response) => {
      let text = '';
      const events = (): WatchEvent[] =>
        text
          .split('\n')
          .slice(0, -1)
          .map((line) => JSON.parse(line) as WatchEvent);
      response.on('data', (chunk: Buffer) => {
        text += chunk.toString();
        if (last === undefined || !events().some(({ type }) => type === last)) return;
        resolve(events());
        sent.destroy();
      });
      response.on('end', () => resolve(events()));
      response.on('error', () => undefined);
    });
    sent.on('error', reject);
    sent.end();
  });
}

describe('watches', () => {
  test('with bookmarks, a watch that may begin anywhere gets a bookmark after the last existing object', async () => {
    for (const query of ['', 'resourceVersion=', 'resourceVersion=0']) {
      const events = await watch(`allowWatchBookmarks=true&${query}`, 'BOOKMARK');
      assert.equal(events.filter(({ type }) => type === 'ADDED').length, 7, query);
      assert.deepEqual(events.at(-1)?.object.metadata.annotations, { 'k8s.io/initial-events-end': 'true' }, query);
    }
  });

  test('a version that has not come is an event of a watch that asks for the objects', async () => {
    const query = 'sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true';
    const events = await watch(`${query}&resourceVersion=99999999`);
    assert.deepEqual(
      events.map(({ type, object }) => [type, object.code]),
      [['ERROR', 504]],
    );
  });

  test('a watch whose time is over ends without events', async () => {
    assert.deepEqual(await watch('timeoutSeconds=-1&resourceVersion=0'), []);
  });
});
