/**
 * Reads and writes a custom resource in a version that a webhook converts from and to the stored one. What kube-apiserver 1.36
 * answered to the same requests is expected.
 */
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import type { JsonObject } from '../../api/meta/object.ts';
import { until } from '../until.ts';
import { TestedPlane } from './tested-plane.ts';
import { webhookCertificate } from './webhook-certificate.ts';

const GROUP = 'converted.example.com';
const V1 = `/apis/${GROUP}/v1/widgets`;
const V2 = `/apis/${GROUP}/v2/widgets`;
const MERGE = 'application/merge-patch+json';
const APPLY = 'application/apply-patch+yaml';

interface Widget {
  readonly apiVersion: string;
  readonly metadata: JsonObject;
  readonly spec: { size?: number; width?: { size?: number }; [name: string]: unknown };
}
interface Review {
  readonly apiVersion: string;
  readonly kind: string;
  readonly request: { readonly uid: string; readonly desiredAPIVersion: string; readonly objects: readonly Widget[] };
}

let tested: TestedPlane;
let server: Server;
let requests: Review[] = [];
let fails = false;

/** Converts a widget: `spec.size` of v1 is `spec.width.size` of v2. */
function converted(object: Widget, apiVersion: string): object {
  const { size, width, ...rest } = object.spec;
  const spec = apiVersion.endsWith('v2') ? { ...rest, width: { size } } : { ...rest, size: width?.size };
  return { ...object, apiVersion, spec };
}

const call = (method: 'POST' | 'PATCH' | 'GET', path: string, body?: JsonObject, type = 'application/json') =>
  tested.call({ method, path, body, type });

async function answer(...request: Parameters<typeof call>): Promise<[number, JsonObject]> {
  const { status, text } = await call(...request);
  return [status, JSON.parse(text) as JsonObject];
}

const widget = (version: string, name: string, spec: JsonObject): JsonObject => ({
  apiVersion: `${GROUP}/${version}`,
  kind: 'Widget',
  metadata: { name },
  spec,
});

function version(name: string, storage: boolean, properties: JsonObject, replicas: string): JsonObject {
  const spec = { type: 'object', properties: { ...properties, n: { type: 'integer' } } };
  const status = { type: 'object', properties: { n: { type: 'integer' } } };
  return {
    name,
    served: true,
    storage,
    schema: { openAPIV3Schema: { type: 'object', properties: { spec, status } } },
    subresources: { scale: { specReplicasPath: replicas, statusReplicasPath: '.status.n' } },
  };
}

before(async () => {
  const { cert: ca, key } = await webhookCertificate();
  server = createServer({ cert: ca, key }, (message, response) => {
    const chunks: Buffer[] = [];
    message.on('data', (chunk: Buffer) => chunks.push(chunk));
    message.on('end', () => {
      const review = JSON.parse(Buffer.concat(chunks).toString()) as Review;
      requests.push(review);
      const { uid, desiredAPIVersion, objects } = review.request;
      const convertedObjects = fails ? [] : objects.map((object) => converted(object, desiredAPIVersion));
      const { apiVersion, kind } = review;
      response.setHeader('content-type', 'application/json');
      response.end(
        JSON.stringify({ apiVersion, kind, response: { uid, result: { status: 'Success' }, convertedObjects } }),
      );
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  tested = await TestedPlane.start();
  const size = { type: 'integer', maximum: 50 };
  const width = { type: 'object', properties: { size, unit: { type: 'string', default: 'cm' } } };
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const clientConfig = { url, caBundle: Buffer.from(ca).toString('base64') };
  const definition = {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `widgets.${GROUP}` },
    spec: {
      group: GROUP,
      scope: 'Cluster',
      names: { plural: 'widgets', kind: 'Widget' },
      versions: [
        version('v1', true, { size, color: { type: 'string', default: 'red' } }, '.spec.size'),
        version('v2', false, { width, color: { type: 'string' } }, '.spec.width.size'),
      ],
      conversion: { strategy: 'Webhook', webhook: { conversionReviewVersions: ['v1'], clientConfig } },
    },
  };
  await tested.define(definition, V2);
});

after(async () => {
  await tested.close();
  server.closeAllConnections();
  server.close();
});

test('a read object gets the defaults of the stored version before it is converted, and none of the served version', async () => {
  assert.equal((await call('POST', V1, widget('v1', 'read', { size: 5 }))).status, 201);
  requests = [];
  const [status, { spec }] = await answer('GET', `${V2}/read`);
  assert.deepEqual([status, spec], [200, { color: 'red', width: { size: 5 } }]);
  assert.equal(requests[0]?.request.objects[0]?.metadata['resourceVersion'], undefined);
});

test('an object is validated in the version of the request, before it is converted', async () => {
  requests = [];
  const [status, { message }] = await answer('POST', V2, widget('v2', 'invalid', { width: { size: 77 } }));
  assert.deepEqual(
    [status, message],
    [
      422,
      `Widget.${GROUP} "invalid" is invalid: spec.width.size: Invalid value: 77: spec.width.size in body should be less than or equal to 50`,
    ],
  );
  assert.deepEqual(requests, []);
});

test('a Scale has the replicas of the version of its path', async () => {
  assert.equal((await call('POST', V1, widget('v1', 'scaled', { size: 5 }))).status, 201);
  const [, { spec: before }] = await answer('GET', `${V2}/scaled/scale`);
  assert.deepEqual(before, { replicas: 5 });
  assert.equal((await call('PATCH', `${V2}/scaled/scale`, { spec: { replicas: 6 } }, MERGE)).status, 200);
  const [, { spec: after }] = await answer('GET', `${V1}/scaled`);
  assert.deepEqual(after, { size: 6, color: 'red' });
});

describe('an owner of fields in another version', () => {
  const ownersOf = (object: JsonObject): unknown[] => {
    const { managedFields } = object['metadata'] as { managedFields: { manager: string; fieldsV1: JsonObject }[] };
    return managedFields.map(({ manager, fieldsV1 }) => [manager, fieldsV1['f:spec']]);
  };

  test('loses the field that the webhook makes of a written one', async () => {
    const created = await call('POST', `${V1}?fieldManager=first`, widget('v1', 'owned', { size: 5, n: 1 }));
    assert.equal(created.status, 201);
    const [status, object] = await answer(
      'PATCH',
      `${V2}/owned?fieldManager=second`,
      { spec: { width: { size: 6 } } },
      MERGE,
    );
    assert.equal(status, 200);
    assert.deepEqual(ownersOf(object), [
      ['first', { '.': {}, 'f:color': {}, 'f:n': {} }],
      ['second', { 'f:width': { 'f:size': {}, 'f:unit': {} } }],
    ]);
  });
  test('conflicts with an apply of that field', async () => {
    assert.equal((await call('POST', `${V1}?fieldManager=first`, widget('v1', 'fought', { size: 5 }))).status, 201);
    const applied = widget('v2', 'fought', { width: { size: 7 } });
    const [status, { message }] = await answer('PATCH', `${V2}/fought?fieldManager=second`, applied, APPLY);
    const expected = `Apply failed with 1 conflict: conflict with "first" using ${GROUP}/v1: .spec.size`;
    assert.deepEqual([status, message], [409, expected]);
  });
});

test('a webhook that fails is named with the URL and the reason', async () => {
  fails = true;
  const [status, { message }] = await answer('GET', `${V2}/read/scale`);
  fails = false;
  const expected = `conversion webhook for ${GROUP}/v1, Kind=Widget returned 0 objects, expected 1`;
  assert.deepEqual([status, message], [500, expected]);
  const definitions = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
  const service = { name: 'none', namespace: 'default', path: '/convert' };
  const [patched] = await answer(
    'PATCH',
    `${definitions}/widgets.${GROUP}`,
    { spec: { conversion: { webhook: { clientConfig: { url: null, service } } } } },
    MERGE,
  );
  assert.equal(patched, 200);
  const why = 'Post "https://none.default.svc:443/convert?timeout=30s": service "none" not found';
  const failed = `conversion webhook for ${GROUP}/v1, Kind=Widget failed: ${why}`;
  await until('the failure', async () => (await answer('GET', `${V2}/read`))[1]['message'] === failed);
});
