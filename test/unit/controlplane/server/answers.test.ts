/**
 * Tests answers that were compared with those of kube-apiserver 1.36.2, over HTTP. They come from
 * 'controlplane/server/body.ts', 'controlplane/server/response.ts', 'controlplane/server/verbs/create.ts',
 * 'controlplane/server/verbs/patch.ts', 'controlplane/server/verbs/update.ts', 'controlplane/registry/resource-rest.ts',
 * 'controlplane/registry/scale-rest.ts', 'controlplane/registry/managed-fields-conflicts.ts',
 * 'controlplane/registry/generic-strategy.ts', 'controlplane/registry/kinds/core/pod-actions.ts',
 * 'controlplane/registry/columns/scale-columns.ts', 'controlplane/start/api-server.ts' and 'api/schema/go-types.ts'.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { JsonObject } from '../../../../api/meta/object.ts';
import { type Call, TestedPlane } from '../../../integration/tested-plane.ts';

const MAPS = '/api/v1/namespaces/default/configmaps';
const DEPLOYMENTS = '/apis/apps/v1/namespaces/default/deployments';
const APPLY = 'application/apply-patch+yaml';
const MERGE = 'application/merge-patch+json';
const STRATEGIC = 'application/strategic-merge-patch+json';

const template = { metadata: { labels: { a: 'b' } }, spec: { containers: [{ name: 'c', image: 'app:1' }] } };
const deployment: JsonObject = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'd' },
  spec: { replicas: 1, selector: { matchLabels: { a: 'b' } }, template },
};
const scale = (spec: JsonObject, more: JsonObject = {}): JsonObject => ({
  apiVersion: 'autoscaling/v1',
  kind: 'Scale',
  metadata: { name: 'd' },
  spec,
  ...more,
});

let tested: TestedPlane;

before(async () => {
  tested = await TestedPlane.start();
  await tested.call({
    method: 'POST',
    path: MAPS,
    body: { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a' }, data: { k: 'v' } },
  });
  await tested.call({ method: 'POST', path: DEPLOYMENTS, body: deployment });
});

after(() => tested.close());

interface Case extends Call {
  readonly name: string;
  readonly status: number;
  readonly contains?: string;
  readonly lacks?: string;
}

function holds(cases: readonly Case[]): void {
  for (const { name, status, contains, lacks, ...request } of cases) {
    test(name, async () => {
      const answer = await tested.call(request);
      assert.equal(answer.status, status, answer.text.slice(0, 500));
      if (contains !== undefined) assert.ok(answer.text.includes(contains), answer.text.slice(0, 800));
      if (lacks !== undefined) assert.ok(!answer.text.includes(lacks), answer.text.slice(0, 800));
    });
  }
}

describe('bodies', () => {
  const map = (more: JsonObject): JsonObject => ({ apiVersion: 'v1', kind: 'ConfigMap', ...more });
  holds([
    {
      name: 'options are checked before the body',
      method: 'POST',
      path: `${MAPS}?fieldValidation=Bad`,
      body: '{',
      status: 422,
    },
    {
      name: 'a version of three parts is no version',
      method: 'POST',
      path: MAPS,
      body: map({ apiVersion: 'a/b/c' }),
      status: 400,
      contains: '(must be of type ConfigMap): unexpected GroupVersion string: a/b/c (',
    },
    {
      name: 'the namespace is compared before the name',
      method: 'PUT',
      path: `${MAPS}/a`,
      body: map({ metadata: { name: 'b', namespace: 'x' } }),
      status: 400,
      contains: 'the namespace of the provided object does not match',
    },
    {
      name: 'a strategic patch keeps the kind',
      method: 'PATCH',
      path: `${MAPS}/a?dryRun=All`,
      type: STRATEGIC,
      body: { kind: 'Secret' },
      status: 200,
      contains: '"kind":"ConfigMap"',
    },
    {
      name: 'a strategic patch names no origin',
      method: 'PATCH',
      path: `${MAPS}/a`,
      type: STRATEGIC,
      body: '[]',
      status: 400,
      contains: '"message":"json: cannot unmarshal array',
    },
    {
      name: 'an operation of null is an empty one',
      method: 'PATCH',
      path: `${MAPS}/a`,
      type: 'application/json-patch+json',
      body: '[null]',
      status: 422,
    },
    {
      name: 'the members on the path of a patch are sorted',
      method: 'PATCH',
      path: `${MAPS}/a`,
      type: MERGE,
      body: { data: 5 },
      status: 422,
      contains:
        '{\\\\\\"apiVersion\\\\\\":\\\\\\"v1\\\\\\",\\\\\\"data\\\\\\":5,\\\\\\"kind\\\\\\":\\\\\\"ConfigMap\\\\\\",\\\\\\"metadata\\\\\\":{\\\\\\"name\\\\\\"',
    },
    {
      name: 'a binding without a name has no target',
      method: 'POST',
      path: '/api/v1/namespaces/default/bindings',
      body: {},
      status: 500,
      contains: 'target.name: Required value',
    },
  ]);
});

describe('forms', () => {
  const metadata = 'application/json;v=v1;g=meta.k8s.io;as=';
  holds([
    {
      name: 'a list is no metadata',
      path: MAPS,
      accept: `${metadata}PartialObjectMetadata`,
      status: 406,
      contains: '(*core.ConfigMapList)',
    },
    {
      name: 'an object is no list of metadata',
      path: `${DEPLOYMENTS}/d/scale`,
      accept: `${metadata}PartialObjectMetadataList`,
      status: 406,
      contains: '(*autoscaling.Scale)',
    },
    {
      name: 'a parameter without a value has no meaning',
      path: MAPS,
      accept: 'application/json;as',
      status: 200,
      contains: '"kind":"ConfigMapList"',
    },
    {
      name: 'the name of a Scale has no format',
      path: `${DEPLOYMENTS}/d/scale`,
      accept: `${metadata}Table`,
      status: 200,
      contains: '"name":"Name","type":"string","format":""',
    },
    {
      name: 'documents are of the release without its patch',
      path: '/openapi/v3/version',
      status: 200,
      contains: '"version":"1.36"',
    },
  ]);
});

describe('an applied Scale', () => {
  const apply = (manager: string, body: JsonObject): Call => ({
    method: 'PATCH',
    path: `${DEPLOYMENTS}/d/scale?fieldManager=${manager}`,
    type: APPLY,
    body,
  });
  holds([
    {
      name: 'has the kind of a Scale',
      ...apply('m', deployment),
      status: 400,
      contains: 'invalid object type: apps/v1, Kind=Deployment',
    },
    {
      name: 'has the fields of a Scale',
      ...apply('m', scale({ x: 1 })),
      status: 500,
      contains: '.spec.x: field not declared in schema',
    },
    { name: 'needs no name', ...apply('m', scale({ replicas: 1 }, { metadata: {} })), status: 200 },
    {
      name: 'can be written by others',
      method: 'PATCH',
      path: `${DEPLOYMENTS}/d/scale?fieldManager=u&dryRun=All`,
      type: MERGE,
      body: { spec: { replicas: 4 } },
      status: 200,
    },
  ]);

  test('conflicts in its own version', async () => {
    const path = `${DEPLOYMENTS}/d/scale?fieldManager=other`;
    await tested.call({ method: 'PATCH', path, type: MERGE, body: { spec: { replicas: 4 } } });
    const { status, text } = await tested.call(apply('n', scale({ replicas: 9 })));
    assert.equal(status, 409);
    assert.ok(text.includes('with subresource \\"scale\\" using autoscaling/v1'), text);
  });
});

test('nobody owns the labels of a deployment through its status', async () => {
  const { text } = await tested.call({
    method: 'PATCH',
    path: `${DEPLOYMENTS}/d/status?fieldManager=labeller`,
    type: MERGE,
    body: { metadata: { labels: { z: '1' } }, status: { replicas: 1 } },
  });
  assert.ok(!text.includes('"f:z"'), text);
});
