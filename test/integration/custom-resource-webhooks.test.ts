/**
 * Sends writes of custom resources through admission webhooks. The reviews that webhooks get, and what becomes of their
 * answers, were compared with apiextensions-apiserver 1.36.
 */
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:https';
import type { ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import type { JsonObject } from '../../api/meta/object.ts';
import type { Answer } from '../hostile/send.ts';
import { until } from '../until.ts';
import { TestedPlane } from './tested-plane.ts';
import { webhookCertificate } from './webhook-certificate.ts';

const THINGS = '/apis/hooks.example.com/v1/namespaces/default/things';
const OTHERS = '/apis/versions.example.com/v2/others';

let tested: TestedPlane;
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
interface ConversionReview {
  readonly apiVersion: string;
  readonly kind: string;
  readonly request: {
    readonly uid: string;
    readonly desiredAPIVersion: string;
    readonly objects: readonly JsonObject[];
  };
  readonly response: JsonObject;
}
type Converted = JsonObject & { metadata: JsonObject };

/** Answers the next conversions, with the objects in the version that is asked for. */
let conversion: (review: ConversionReview, objects: Converted[]) => unknown = converted;
let conversions: ConversionReview[] = [];

function converted({ apiVersion, kind, request }: ConversionReview, convertedObjects: Converted[]): JsonObject {
  return { apiVersion, kind, response: { uid: request.uid, result: { status: 'Success' }, convertedObjects } };
}

const changed =
  (change: (object: Converted) => void): typeof conversion =>
  (review, objects) => {
    objects.forEach(change);
    return converted(review, objects);
  };

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
): Promise<Answer> => tested.call({ method, path, body, type });

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
  const { cert: ca, key } = await webhookCertificate();
  server = createServer({ cert: ca, key }, (message, response) => {
    const chunks: Buffer[] = [];
    message.on('data', (chunk: Buffer) => chunks.push(chunk));
    message.on('end', () => {
      const review = JSON.parse(Buffer.concat(chunks).toString()) as Review | ConversionReview;
      if (!('operation' in review.request)) {
        const { desiredAPIVersion: apiVersion, objects } = review.request;
        conversions.push(review as ConversionReview);
        const answer = conversion(
          review as ConversionReview,
          objects.map((object) => ({ ...object, apiVersion }) as unknown as Converted),
        );
        text(typeof answer === 'string' ? answer : JSON.stringify(answer))(review as never, response);
        return;
      }
      reviews.push(review as Review);
      respond(review as Review, response);
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  tested = await TestedPlane.start();
  const open = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  const definition = {
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
  };
  await tested.define(definition, THINGS);
  const version = (name: string, storage: boolean): JsonObject => ({
    name,
    served: true,
    storage,
    schema: { openAPIV3Schema: { type: 'object', properties: { spec: open } } },
  });
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const caBundle = Buffer.from(ca).toString('base64');
  const convertible = {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'others.versions.example.com' },
    spec: {
      group: 'versions.example.com',
      scope: 'Cluster',
      names: { plural: 'others', kind: 'Other' },
      versions: [version('v1', true), version('v2', false)],
      conversion: {
        strategy: 'Webhook',
        webhook: { conversionReviewVersions: ['v1'], clientConfig: { url, caBundle } },
      },
    },
  };
  await tested.define(convertible, OTHERS);
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
        clientConfig: { url, caBundle },
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
  await tested.close();
  server.closeAllConnections();
  server.close();
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

describe('conversions that are none', () => {
  const webhook = 'conversion webhook for versions.example.com/v2, Kind=Other';
  const cases: readonly (readonly [string, typeof conversion, string])[] = [
    ['empty', () => '', 'failed: 0-length response with status code: 200 and content type: application/json'],
    [
      'another kind',
      (review, objects) => ({ ...converted(review, objects), kind: 'Foo' }),
      'failed: no kind "Foo" is registered for version "apiextensions.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111"',
    ],
    [
      'another version of the review',
      (review, objects) => ({ ...converted(review, objects), apiVersion: 'apiextensions.k8s.io/v1beta1' }),
      'failed: converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion',
    ],
    [
      'a failure',
      ({ apiVersion, kind, request: { uid } }) => ({
        apiVersion,
        kind,
        response: { uid, result: { status: 'Failure', message: 'no can do' } },
      }),
      'failed: no can do',
    ],
    ['no objects', (review) => converted(review, []), 'returned 0 objects, expected 1'],
    [
      'another group',
      changed((object) => (object['apiVersion'] = 'x/v1')),
      'returned invalid object at index 0: invalid groupVersion (expected versions.example.com/v1, received x/v1)',
    ],
    [
      'another name',
      changed((object) => (object.metadata['name'] = 'changed')),
      'returned invalid object: must have the same name: one != changed',
    ],
    [
      'a label that is no text',
      changed((object) => (object.metadata['labels'] = { n: 1 })),
      'returned invalid metadata: metadata.labels[n] must be a string, but is int64 in converted object',
    ],
    [
      'a label with an invalid name',
      changed((object) => (object.metadata['labels'] = { 'a b': 'x' })),
      'returned invalid metadata: metadata.labels: Invalid value: "a b": name part must consist of',
    ],
  ];
  const body = { apiVersion: 'versions.example.com/v2', kind: 'Other', metadata: { name: 'one' }, spec: { b: 1 } };
  for (const [name, answer, message] of cases) {
    test(name, async () => {
      conversion = answer;
      const { status, text: answered } = await call('POST', `${OTHERS}?dryRun=All`, body);
      const shown = JSON.parse(answered) as { message: string; reason?: string };
      assert.deepEqual([status, shown.reason], [500, undefined], answered);
      assert.ok(shown.message.startsWith(`${webhook} ${message}`), shown.message);
    });
  }

  test('a review has an empty response', async () => {
    conversion = converted;
    conversions = [];
    assert.equal((await call('POST', `${OTHERS}?dryRun=All`, body)).status, 201);
    assert.deepEqual(conversions[0]?.response, { uid: '', convertedObjects: null, result: { metadata: {} } });
  });
});

test('a mutating policy merges a configuration by the schema of the definition', async () => {
  respond = allow({});
  const group = 'merged.example.com';
  const path = `/apis/${group}/v1/mergeds`;
  const texts = { type: 'array', items: { type: 'string' } };
  const spec = {
    type: 'object',
    properties: { n: { type: 'integer' }, list: texts, set: { ...texts, 'x-kubernetes-list-type': 'set' } },
  };
  const definition = await call('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `mergeds.${group}` },
    spec: {
      group,
      scope: 'Cluster',
      names: { plural: 'mergeds', kind: 'Merged' },
      versions: [
        {
          name: 'v1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: { type: 'object', properties: { spec } } },
        },
      ],
    },
  });
  assert.equal(definition.status, 201, definition.text);
  await until('the resource of the definition', async () => (await call('GET', path)).status === 200);
  const body = {
    apiVersion: `${group}/v1`,
    kind: 'Merged',
    metadata: { name: 'x' },
    spec: { n: 1, list: ['x'], set: ['x'] },
  };
  const registration = '/apis/admissionregistration.k8s.io/v1';
  const metadata = { name: 'merges' };
  const binding = await call('POST', `${registration}/mutatingadmissionpolicybindings`, {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'MutatingAdmissionPolicyBinding',
    metadata,
    spec: { policyName: 'merges' },
  });
  assert.equal(binding.status, 201, binding.text);
  const outcome = async (expression: string): Promise<string> => {
    await call('DELETE', `${registration}/mutatingadmissionpolicies/merges`);
    const policy = await call('POST', `${registration}/mutatingadmissionpolicies`, {
      apiVersion: 'admissionregistration.k8s.io/v1',
      kind: 'MutatingAdmissionPolicy',
      metadata,
      spec: {
        matchConstraints: {
          resourceRules: [{ operations: ['CREATE'], apiGroups: [group], apiVersions: ['*'], resources: ['*'] }],
        },
        reinvocationPolicy: 'Never',
        failurePolicy: 'Fail',
        mutations: [{ patchType: 'ApplyConfiguration', applyConfiguration: { expression } }],
      },
    });
    assert.equal(policy.status, 201, policy.text);
    let last = '';
    await until('the policy', async () => {
      const { text: answered } = await call('POST', `${path}?dryRun=All`, body);
      const { message, spec: made } = JSON.parse(answered) as { message?: string; spec?: JsonObject };
      last = message ?? JSON.stringify(made);
      return last !== JSON.stringify(body.spec);
    });
    return last;
  };
  const denied = "policy 'merges' with binding 'merges' denied request: error applying patch: ";
  const typed = `${denied}failed to convert patch object to typed object: `;
  assert.deepEqual(JSON.parse(await outcome('Object{spec: Object.spec{set: ["y"]}}')), {
    n: 1,
    list: ['x'],
    set: ['x', 'y'],
  });
  assert.deepEqual(JSON.parse(await outcome('Object{kind: "X", spec: Object.spec{n: 2}}')), { ...body.spec, n: 2 });
  assert.equal(
    await outcome('Object{spec: Object.spec{list: ["y"]}}'),
    `${denied}invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.list`,
  );
  assert.equal(await outcome('Object{spec: Object.spec{zz: 5}}'), `${typed}.spec.zz: field not declared in schema`);
  assert.equal(
    await outcome('Object{spec: Object.spec{n: "text"}}'),
    `${typed}.spec.n: expected numeric (int or float), got string`,
  );
  assert.equal(
    await outcome('Object{spec: Object.spec{set: ["y", "y"]}}'),
    `${typed}.spec.set: duplicate entries for key [="y"]`,
  );
});
