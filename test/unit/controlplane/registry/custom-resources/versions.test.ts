/** Tests names, paths and conversions of custom resources. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { acceptNames, takenBy } from '../../../../../controlplane/registry/custom-resources/accepted-names.ts';
import { findAll, parseJsonPath } from '../../../../../controlplane/registry/schemas/json-path.ts';
import {
  asServed,
  renamingConversion,
  type VersionSchema,
} from '../../../../../controlplane/registry/custom-resources/version-conversion.ts';
import {
  type CallConversion,
  webhookConversion,
} from '../../../../../controlplane/registry/custom-resources/webhook-conversion.ts';

describe('a JSONPath finds', () => {
  const value = {
    a: {
      'b.c': 1,
      l: [
        { t: 'x', v: 1 },
        { t: 'y', v: 2 },
      ],
    },
  };
  const cases: readonly (readonly [string, unknown[]])[] = [
    ['.a.l[0].v', [1]],
    ['.a.l[*].v', [1, 2]],
    ['.a.l[-1:].v', [2]],
    ['.a.b\\.c', [1]],
    [".a['b.c']", [1]],
    ['.a.l[?(@.t=="y")].v', [2]],
    ['..v', [1, 2]],
    ['.none.at.all', []],
  ];
  for (const [path, found] of cases) {
    test(path, () => assert.deepEqual(findAll(value, parseJsonPath(path) ?? []), found));
  }
});

test('a name that another definition of the group has is not given', () => {
  const taken = takenBy([{ plural: 'things', kind: 'Thing', shortNames: ['tg'] }]);
  const wanted = { plural: 'others', kind: 'Other', singular: 'other', listKind: 'OtherList', shortNames: ['tg'] };
  const { accepted, conflict } = acceptNames(wanted, undefined, taken);
  assert.deepEqual(conflict, { reason: 'ShortNamesConflict', message: '"tg" is already in use' });
  assert.equal(accepted.plural, 'others');
  assert.equal(accepted.shortNames, undefined);
});

const version = (name: string, ...members: string[]): VersionSchema => ({
  name,
  schema: {
    type: 'object',
    properties: {
      spec: { type: 'object', properties: Object.fromEntries(members.map((one) => [one, { type: 'string' }])) },
    },
  },
});

describe('versions without a webhook', () => {
  const stored: KubeObject = { apiVersion: 'g.io/v1', kind: 'T', metadata: { name: 'a' }, spec: { a: '1', old: 'o' } };

  test('show what their schema has', () => {
    const conversion = renamingConversion('g.io', version('v1', 'a', 'old'), version('v2', 'a'));
    const served = asServed(conversion, stored);
    assert.equal(served.apiVersion, 'g.io/v2');
    assert.deepEqual(served['spec'], { a: '1' });
  });
  test('give a stored object as it is where nothing is to be made of it', () => {
    const conversion = renamingConversion('g.io', version('v1', 'a', 'old'), version('v1', 'a', 'old'));
    assert.equal(asServed(conversion, stored), stored);
  });
  test('fill in a default that came later', () => {
    const late = { name: 'v1', schema: { type: 'object', properties: { b: { type: 'string', default: 'x' } } } };
    const object: KubeObject = { apiVersion: 'g.io/v1', kind: 'T', metadata: { name: 'a' } };
    assert.equal(asServed(renamingConversion('g.io', late, late), object)['b'], 'x');
  });
});

describe('versions with a webhook', () => {
  const [stored, served] = [version('v1', 'a'), version('v2', 'b')];
  const object: KubeObject = { apiVersion: 'g.io/v1', kind: 'T', metadata: { name: 'x', uid: 'u' }, spec: { a: '1' } };
  const conversionWith = (call: CallConversion) =>
    webhookConversion(
      { group: 'g.io', kind: 'T', config: {}, reviewVersions: ['v1'], call },
      { stored, served, all: [stored, served] },
    );
  const answering =
    (change: (object: KubeObject) => object, result: object = { status: 'Success' }): CallConversion =>
    (_config, body) => {
      const { apiVersion, kind, request } = JSON.parse(body) as ConversionReview;
      return Promise.resolve({
        apiVersion,
        kind,
        response: { uid: request.uid, result, convertedObjects: request.objects.map(change) },
      });
    };

  interface ConversionReview {
    readonly apiVersion: string;
    readonly kind: string;
    readonly request: { readonly uid: string; readonly objects: KubeObject[] };
  }

  test('take labels of metadata from the answer, and nothing else', async () => {
    const call = answering((one) => ({
      ...one,
      apiVersion: 'g.io/v2',
      spec: { b: '2', more: 'dropped' },
      metadata: { ...one.metadata, labels: { l: 'x' }, finalizers: ['f'] },
    }));
    const [served] = (await conversionWith(call).convertAll?.([object], 'served')) ?? [];
    assert.deepEqual(served, {
      apiVersion: 'g.io/v2',
      kind: 'T',
      metadata: { name: 'x', uid: 'u', labels: { l: 'x' } },
      spec: { b: '2' },
    });
  });
  test('get the answers of the webhook by their places in the list, without a search for each', async () => {
    let count = 0;
    const call = answering((one) => ({ ...one, apiVersion: 'g.io/v2', spec: { b: String((count += 1)) } }));
    const known = { ...object, apiVersion: 'g.io/v2' };
    const served = await conversionWith(call).convertAll?.([object, known, object, object], 'served');
    assert.deepEqual(
      served?.map(({ spec }) => spec),
      [{ b: '1' }, {}, { b: '2' }, { b: '3' }],
    );
  });
  test('send integers beyond 2^53 as they are', async () => {
    let sent = '';
    const call: CallConversion = (config, body) => {
      sent = body;
      return answering((one) => ({ ...one, apiVersion: 'g.io/v2' }))(config, body);
    };
    const large = { ...object, spec: { a: 9_007_199_254_740_993n } };
    await conversionWith(call).convertAll?.([large], 'served');
    assert.match(sent, /"a":9007199254740993[},]/);
  });
  test('refuse an answer that is another object', async () => {
    const call = answering((one) => ({ ...one, apiVersion: 'g.io/v2', metadata: { name: 'y', uid: 'u' } }));
    await assert.rejects(
      async () => await conversionWith(call).convertAll?.([object], 'served'),
      /must have the same name/,
    );
  });
  const malformed: readonly (readonly [string, unknown])[] = [
    ['labels that are numbers', { name: 'x', uid: 'u', labels: { a: 5 } }],
    ['labels that are a text', { name: 'x', uid: 'u', labels: 'a' }],
    ['annotations that are objects', { name: 'x', uid: 'u', annotations: { a: {} } }],
    ['a text as metadata', 'x'],
    ['an object as name', { name: {}, uid: 'u' }],
  ];
  for (const [what, metadata] of malformed) {
    test(`refuse an answer with ${what}, which no client could decode`, async () => {
      const call = answering((one) => ({ ...one, apiVersion: 'g.io/v2', metadata }));
      await assert.rejects(
        async () => await conversionWith(call).convertAll?.([object], 'served'),
        /conversion webhook for g.io\/v1, Kind=T returned invalid/,
      );
    });
  }
  test('refuse an answer whose response is null', async () => {
    const call: CallConversion = (_config, body) =>
      Promise.resolve({ ...(JSON.parse(body) as ConversionReview), response: null });
    await assert.rejects(
      async () => await conversionWith(call).convertAll?.([object], 'served'),
      /no response provided/,
    );
  });
  test('report why the webhook failed', async () => {
    const call = answering((one) => one, { status: 'Failure', message: 'not today' });
    await assert.rejects(
      async () => await conversionWith(call).convertAll?.([object], 'served'),
      /conversion webhook for g.io\/v1, Kind=T failed: not today/,
    );
  });
});
