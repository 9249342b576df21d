/**
 * Sends writes of custom resources through admission webhooks. The reviews that webhooks get, and what becomes of their
 * answers, were compared with apiextensions-apiserver 1.36.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, createServer, type Server } from 'node:https';
import type { ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { JsonObject } from '../../api/meta/object.ts';
import { certificatePem, createCertificate } from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { send, type Answer, type Connection } from '../hostile/send.ts';
import { until } from '../until.ts';

const TOKEN = 'custom-webhooks-token';
const THINGS = '/apis/hooks.example.com/v1/namespaces/default/things';
const DAY = 86_400_000;

const directory = mkdtempSync(join(tmpdir(), 'orchlet-hooks-'));
const agent = new Agent({ keepAlive: true, rejectUnauthorized: false });
let plane: ControlPlane;
let connection: Connection;
let server: Server;

interface Review {
  readonly apiVersion: string;
  readonly kind: string;
  readonly request: {
    readonly uid: string;
    readonly operation: string;
    readonly name?: string;
    readonly object: JsonObject | null;
    readonly oldObject: JsonObject | null;
  };
}

let reviews: Review[] = [];
/** Answers the next reviews. */
let respond: (review: Review, response: ServerResponse) => void = allow({});

function allow(more: JsonObject): typeof respond {
  return ({ apiVersion, kind, request }, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ apiVersion, kind, response: { uid: request.uid, allowed: true, ...more } }));
  };
}

const patch = (operations: unknown): typeof respond =>
  allow({ patchType: 'JSONPatch', patch: Buffer.from(JSON.stringify(operations)).toString('base64') });

const text =
  (body: string, status = 200): typeof respond =>
  (_review, response) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(body);
  };

const call = (
  method: 'POST' | 'DELETE' | 'PATCH' | 'GET',
  path: string,
  body?: JsonObject,
  type = 'application/json',
): Promise<Answer> =>
  send(connection, { method, path, type, ...(body === undefined ? {} : { body: () => JSON.stringify(body) }) });

const thing = (name: string): JsonObject => ({
  apiVersion: 'hooks.example.com/v1',
  kind: 'Thing',
  metadata: { name },
  spec: { a: 1 },
});
/** Returns the code and the message, or the object, of a create in a dry run. */
async function created(): Promise<readonly [number, string, JsonObject]> {
  const answer = await call('POST', `${THINGS}?dryRun=All`, thing('x'));
  const value = JSON.parse(answer.text) as JsonObject;
  return [answer.status, String(value['message'] ?? ''), value];
}

before(async () => {
  const keys = await generateKey('ecdsa');
  const certificate = createCertificate(
    {
      subject: { commonName: 'webhook' },
      publicKey: keys.publicKey,
      notBeforeMs: Date.now() - DAY,
      notAfterMs: Date.now() + DAY,
      keyUsages: ['cert sign', 'digital signature'],
      extendedKeyUsages: ['server auth'],
      basicConstraints: { isCa: true },
      names: { ip: ['127.0.0.1'] },
    },
    { privateKey: keys.privateKey },
  );
  const ca = certificatePem(certificate);
  server = createServer({ cert: ca, key: privateKeyPem(keys.privateKey) }, (message, response) => {
    const chunks: Buffer[] = [];
    message.on('data', (chunk: Buffer) => chunks.push(chunk));
    message.on('end', () => {
      const review = JSON.parse(Buffer.concat(chunks).toString()) as Review;
      reviews.push(review);
      respond(review, response);
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  writeFileSync(join(directory, 'tokens.csv'), `${TOKEN},tester,1,"system:masters"\n`);
  plane = await startControlPlane({
    memory: true,
    flags: { tokenAuthFile: join(directory, 'tokens.csv'), scheduler: false, controllers: [] },
  });
  connection = { origin: plane.url, agent, token: TOKEN };
  const open = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  const definition = await call('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'things.hooks.example.com' },
    spec: {
      group: 'hooks.example.com',
      scope: 'Namespaced',
      names: { plural: 'things', kind: 'Thing' },
      versions: [
        {
          name: 'v1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: { type: 'object', properties: { spec: open, status: open } } },
          subresources: { scale: { specReplicasPath: '.spec.a', statusReplicasPath: '.status.a' } },
        },
      ],
    },
  });
  assert.equal(definition.status, 201, definition.text);
  await until('the resource of the definition', async () => (await call('GET', THINGS)).status === 200);
  const configuration = await call('POST', '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations', {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'MutatingWebhookConfiguration',
    metadata: { name: 'hooks' },
    webhooks: [
      {
        name: 'hook.example.com',
        admissionReviewVersions: ['v1'],
        sideEffects: 'None',
        rules: [{ operations: ['*'], apiGroups: ['hooks.example.com'], apiVersions: ['*'], resources: ['*/*'] }],
        clientConfig: {
          url: `https://127.0.0.1:${(server.address() as AddressInfo).port}/`,
          caBundle: Buffer.from(ca).toString('base64'),
        },
      },
    ],
  });
  assert.equal(configuration.status, 201, configuration.text);
  await until('the webhook', async () => {
    await created();
    return reviews.length > 0;
  });
});

after(async () => {
  agent.destroy();
  await plane.close();
  server.closeAllConnections();
  server.close();
  rmSync(directory, { recursive: true, force: true });
});

test('a mutating webhook sees the object that is deleted, and nothing of one that does not exist', async () => {
  respond = allow({});
  assert.equal((await call('POST', THINGS, thing('one'))).status, 201);
  reviews = [];
  assert.equal((await call('DELETE', `${THINGS}/none`)).status, 404);
  assert.equal(reviews.length, 0);
  assert.equal((await call('DELETE', `${THINGS}/one?dryRun=All`)).status, 200);
  assert.equal((await call('DELETE', THINGS)).status, 200);
  const shown = reviews.map(({ request }) => [request.operation, request.object, request.oldObject?.['spec']]);
  assert.deepEqual(shown, [
    ['DELETE', null, { a: 1 }],
    ['DELETE', null, { a: 1 }],
  ]);
});

test('the entry of who writes through a Scale has no time', async () => {
  respond = allow({});
  assert.equal((await call('POST', THINGS, thing('scaled'))).status, 201);
  const MERGE = 'application/merge-patch+json';
  const scaled = await call('PATCH', `${THINGS}/scaled/scale`, { spec: { replicas: 4 } }, MERGE);
  assert.equal(scaled.status, 200, scaled.text);
  const { metadata } = JSON.parse((await call('GET', `${THINGS}/scaled`)).text) as {
    metadata: { managedFields: { subresource?: string; time?: string }[] };
  };
  const times = metadata.managedFields.map(({ subresource, time }) => [subresource, time !== undefined]);
  assert.deepEqual(times, [
    ['scale', false],
    [undefined, true],
  ]);
});

describe('objects that a patch has changed', () => {
  const cases: readonly (readonly [string, unknown, number, string])[] = [
    [
      'to another kind',
      [{ op: 'replace', path: '/kind', value: 'Other' }],
      422,
      'Other.hooks.example.com "x" is invalid: kind: Invalid value: "Other": must be Thing',
    ],
    [
      'to another group',
      [{ op: 'replace', path: '/apiVersion', value: 'a/v1' }],
      500,
      'a/v1, Kind=Thing is unstructured and is not suitable for converting to "hooks.example.com/v1"',
    ],
    [
      'to no object',
      [{ op: 'replace', path: '', value: { a: 1 } }],
      500,
      `Internal error occurred: Object 'Kind' is missing in '{"a":1}'`,
    ],
  ];
  for (const [name, operations, status, message] of cases) {
    test(name, async () => {
      respond = patch(operations);
      assert.deepEqual((await created()).slice(0, 2), [status, message]);
    });
  }

  test('to metadata of other types lose them', async () => {
    for (const [path, value] of [
      ['/metadata/labels', { a: 1 }],
      ['/metadata/managedFields', []],
    ] as const) {
      respond = patch([{ op: 'add', path, value }]);
      const [status, , object] = await created();
      const member = path.slice('/metadata/'.length);
      assert.deepEqual([status, (object['metadata'] as JsonObject)[member]], [201, undefined], path);
    }
  });
});

describe('answers that are none', () => {
  const failed = 'Internal error occurred: failed calling webhook "hook.example.com": ';
  const TYPE_META =
    'Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }';
  const cases: readonly (readonly [string, typeof respond, string])[] = [
    [
      'empty',
      text(''),
      'failed to call webhook: 0-length response with status code: 200 and content type: application/json',
    ],
    ['null', text('null'), 'received invalid webhook response: webhook response was absent'],
    [
      'a list',
      text('[]'),
      `failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal array into ${TYPE_META}`,
    ],
    [
      'a text that allows',
      allow({ allowed: 'yes' }),
      'failed to call webhook: json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool',
    ],
    [
      'a patch that is not encoded',
      allow({ patchType: 'JSONPatch', patch: '!!!' }),
      'failed to call webhook: illegal base64 data at input byte 0',
    ],
    [
      'a Status',
      text('{"kind":"Status","apiVersion":"v1","status":"Failure","message":"from status","code":500}', 500),
      'failed to call webhook: from status',
    ],
    [
      'a bad request',
      text('{"message":"hi"}', 400),
      'failed to call webhook: the server rejected our request for an unknown reason',
    ],
  ];
  for (const [name, answer, message] of cases) {
    test(name, async () => {
      respond = answer;
      assert.deepEqual((await created()).slice(0, 2), [500, failed + message]);
    });
  }
});
