/** Custom resources whose objects a webhook converts, written by a user who wants lists of them to fail for others. */
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, afterEach, before, test } from 'node:test';
import type { KubeObject } from '../../api/meta/object.ts';
import { TestedPlane } from './tested-plane.ts';
import { webhookCertificate } from './webhook-certificate.ts';

const V1 = '/apis/x.io/v1/namespaces/default/tests';
const V2 = '/apis/x.io/v2/namespaces/default/tests';
let plane: TestedPlane;
let server: Server;
/** The number of objects of each call. */
const calls: number[] = [];

interface Review {
  readonly apiVersion: string;
  readonly kind: string;
  readonly request: {
    readonly uid: string;
    readonly desiredAPIVersion: string;
    readonly objects: readonly KubeObject[];
  };
}

function converted({ apiVersion, kind, request }: Review): string {
  calls.push(request.objects.length);
  const convertedObjects = request.objects.map((object) => ({ ...object, apiVersion: request.desiredAPIVersion }));
  return JSON.stringify({
    apiVersion,
    kind,
    response: { uid: request.uid, result: { status: 'Success' }, convertedObjects },
  });
}

before(async () => {
  const identity = await webhookCertificate();
  server = createServer(identity, (message, response) => {
    const chunks: Buffer[] = [];
    message.on('data', (chunk: Buffer) => chunks.push(chunk));
    message.on('end', () => {
      response.setHeader('content-type', 'application/json');
      response.end(converted(JSON.parse(Buffer.concat(chunks).toString()) as Review));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  plane = await TestedPlane.start();
  const schema = { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } };
  const clientConfig = { url, caBundle: Buffer.from(identity.cert).toString('base64') };
  await plane.define(
    {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: 'tests.x.io' },
      spec: {
        group: 'x.io',
        scope: 'Namespaced',
        names: { plural: 'tests', kind: 'Test' },
        conversion: { strategy: 'Webhook', webhook: { conversionReviewVersions: ['v1'], clientConfig } },
        versions: [
          { name: 'v1', served: true, storage: true, schema },
          { name: 'v2', served: true, storage: false, schema },
        ],
      },
    },
    V1,
  );
});

after(async () => {
  await plane.close();
  server.closeAllConnections();
  server.close();
});

afterEach(async () => {
  await plane.call({ method: 'DELETE', path: V1 });
  calls.length = 0;
});

async function create(name: string, x: string): Promise<void> {
  const body = `{"apiVersion":"x.io/v1","kind":"Test","metadata":{"name":"${name}"},"x":${x}}`;
  const { status, text } = await plane.call({ method: 'POST', path: V1, body });
  assert.equal(status, 201, text.slice(0, 1000));
}

for (const [what, x] of [
  ['as many values as a body may have', `[${Array.from({ length: 99_980 }, () => 1).join()}]`],
  ['as many bytes as a body may have', JSON.stringify('x'.repeat(3_100_000))],
  ['as many levels as a body may have', `${'['.repeat(1_999)}${']'.repeat(1_999)}`],
] as const)
  test(`an object with ${what} does not make the lists of its other version fail`, async () => {
    await create('a', x);
    const { status, text } = await plane.call({ path: V2 });
    assert.equal(status, 200, text.slice(0, 1000));
  });

test('objects that are larger together than the answer of a webhook may be are converted by several calls', async () => {
  for (let at = 0; at < 50; at++) await create(`a${at}`, JSON.stringify('x'.repeat(200_000)));
  const { status, text } = await plane.call({ path: V2 });
  assert.equal(status, 200, text.slice(0, 1000));
  const { items } = JSON.parse(text) as { readonly items: readonly KubeObject[] };
  assert.equal(items.length, 50);
  assert.ok(items.every(({ apiVersion }) => apiVersion === 'x.io/v2'));
  assert.deepEqual(
    calls,
    Array.from({ length: 10 }, () => 5),
  );
});
