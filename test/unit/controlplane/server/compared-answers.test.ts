/**
 * Tests further answers that were compared with those of kube-apiserver 1.36.2, over HTTP: paths, reads, reviews, evictions,
 * preconditions and the managers of objects that the server creates. They come from
 * 'controlplane/server/filters/request-info.ts', 'controlplane/server/issuer-paths.ts', 'controlplane/server/index-page.ts',
 * 'controlplane/server/openapi/openapi.ts', 'controlplane/server/response.ts', 'controlplane/registry/store-read.ts',
 * 'controlplane/registry/store-delete.ts', 'controlplane/registry/continue-token.ts', 'controlplane/registry/scale-rest.ts',
 * 'controlplane/registry/scale-view.ts', 'controlplane/registry/kinds/core/pod-eviction.ts',
 * 'controlplane/registry/kinds/core/pod-actions.ts', 'controlplane/registry/kinds/core/pods.ts',
 * 'controlplane/registry/kinds/core/service-ranges.ts', 'controlplane/registry/kinds/core/component-statuses.ts',
 * 'controlplane/registry/kinds/networking/columns.ts', 'controlplane/server/reviews/access-review.ts',
 * 'controlplane/controllers/cluster-objects/default-service-range.ts',
 * 'controlplane/controllers/cluster-objects/flow-control-objects.ts',
 * 'controlplane/start/aggregation.ts' and 'api/codec/yaml.ts'.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { JsonObject } from '../../../../api/meta/object.ts';
import { type Call, TestedPlane } from '../../../integration/tested-plane.ts';
import { until } from '../../../until.ts';

const NAMESPACE = '/api/v1/namespaces/default';
const MAPS = `${NAMESPACE}/configmaps`;
const PODS = `${NAMESPACE}/pods`;
const BUDGETS = '/apis/policy/v1/namespaces/default/poddisruptionbudgets';
const SCALE = '/apis/apps/v1/namespaces/default/deployments/d/scale';
const MERGE = 'application/merge-patch+json';
const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io';

let tested: TestedPlane;

const created = async (path: string, body: JsonObject): Promise<void> => {
  const { status, text } = await tested.call({ method: 'POST', path, body });
  assert.equal(status, 201, text);
};
const pod = (name: string): JsonObject => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, labels: { app: 'guarded' } },
  spec: { automountServiceAccountToken: false, containers: [{ name: 'c', image: 'i' }] },
});

before(async () => {
  tested = await TestedPlane.start();
  for (const name of ['a', 'b', 'c', 'd'])
    await created(MAPS, { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, labels: { page: 'y' } } });
  await created('/apis/apps/v1/namespaces/default/deployments', {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'd' },
    spec: {
      replicas: 1,
      selector: { matchLabels: { a: 'b' } },
      template: { metadata: { labels: { a: 'b' } }, spec: { containers: [{ name: 'c', image: 'i' }] } },
    },
  });
  await created(`${NAMESPACE}/serviceaccounts`, { metadata: { name: 'default' } });
});

after(() => tested.close());

interface Case extends Call {
  readonly name: string;
  readonly status: number;
  readonly contains?: string;
}

function holds(cases: readonly Case[]): void {
  for (const { name, status, contains, ...request } of cases) {
    test(name, async () => {
      const answer = await tested.call(request);
      assert.equal(answer.status, status, answer.text.slice(0, 500));
      if (contains !== undefined) assert.ok(answer.text.includes(contains), answer.text.slice(0, 800));
    });
  }
}

describe('paths', () => {
  holds([
    {
      name: 'a path that ends after watch is an internal error as text',
      path: '/api/v1/watch?x=%3C',
      status: 500,
      contains:
        'Internal Server Error: "/api/v1/watch?x=%3C": failed to create RequestInfo: unable to determine kind and namespace from url, /api/v1/watch?x=%3C\n',
    },
    { name: 'keys are sent as such only', path: '/openid/v1/jwks', accept: 'application/json', status: 406 },
    {
      name: 'every method reads the list of paths',
      method: 'PUT',
      path: '/',
      body: {},
      status: 200,
      contains: '"/apis/"',
    },
    {
      name: 'a missing OpenAPI document is missing by any method',
      method: 'POST',
      path: '/openapi/v3/no',
      status: 404,
    },
    {
      name: 'a component is missing by its own name',
      path: '/api/v1/componentstatuses/x',
      status: 404,
      contains: 'componentstatus \\"x\\" not found',
    },
    { name: 'the server shows its state', path: '/statusz', accept: 'text/plain', status: 200, contains: '/flagz' },
    { name: 'the server shows its flags', path: '/flagz', accept: 'text/plain', status: 200, contains: 'secure-port=' },
  ]);
});

describe('reads', () => {
  const REFUSED = 'Name parameter invalid: \\"a%b\\": may not contain \'%\'';
  holds([
    { name: 'a name that no object can have is refused', path: `${MAPS}/a%25b`, status: 400, contains: REFUSED },
    {
      name: 'also by a patch',
      method: 'PATCH',
      path: `${MAPS}/a%25b`,
      type: MERGE,
      body: {},
      status: 400,
      contains: REFUSED,
    },
    { name: 'also by a deletion', method: 'DELETE', path: `${MAPS}/a%25b`, status: 400, contains: REFUSED },
    {
      name: 'a token that is cut off is explained',
      path: `${MAPS}?continue=eyJ2`,
      status: 400,
      contains: 'continue key is not valid: unexpected end of JSON input',
    },
    {
      name: 'a table of default columns without objects has null for its rows',
      path: `${NAMESPACE}/limitranges`,
      accept: TABLE,
      status: 200,
      contains: '"rows":null',
    },
    {
      name: 'an alias without an anchor has no position',
      method: 'POST',
      path: MAPS,
      type: 'application/yaml',
      body: 'a: *b',
      status: 400,
      contains: "yaml: unknown anchor 'b' referenced",
    },
  ]);

  test('the limit of a page of any version does not count', async () => {
    const first = await tested.call({ path: `${MAPS}?limit=1&labelSelector=page%3Dy` });
    const { metadata } = JSON.parse(first.text) as { metadata: { continue: string } };
    const path = `${MAPS}?limit=1&resourceVersion=0&labelSelector=page%3Dy&continue=${metadata.continue}`;
    const next = JSON.parse((await tested.call({ path })).text) as { metadata: object; items: unknown[] };
    assert.ok(next.items.length > 1);
    assert.ok(!('continue' in next.metadata));
  });
});

describe('preconditions', () => {
  holds([
    {
      name: 'a namespace reports its own UID',
      method: 'DELETE',
      path: `${NAMESPACE}?dryRun=All`,
      body: { preconditions: { uid: 'x' } },
      status: 409,
      contains:
        'fulfilled on namespaces \\"default\\": Precondition failed: UID in precondition: x, UID in object meta: ',
    },
    {
      name: 'a patch of a scale keeps the name',
      method: 'PATCH',
      path: SCALE,
      type: MERGE,
      body: { metadata: { name: 'z' } },
      status: 400,
      contains: 'the name of the object (z) does not match the name on the URL (d)',
    },
    {
      name: 'a patch of a scale takes the UID for a precondition',
      method: 'PATCH',
      path: SCALE,
      type: MERGE,
      body: { metadata: { uid: 'z' } },
      status: 409,
      contains: 'deployments/scale.apps \\"d\\": Precondition failed: UID in precondition: z',
    },
    {
      name: 'a patch of a scale sees who owns the replicas',
      method: 'PATCH',
      path: SCALE,
      type: MERGE,
      body: { spec: { replicas: 'x' } },
      status: 422,
      contains: '\\\\\\"apiVersion\\\\\\":\\\\\\"autoscaling/v1\\\\\\",\\\\\\"time\\\\\\"',
    },
  ]);

  test('the resource of bindings ignores the UID', async () => {
    await created(PODS, pod('bound'));
    const binding = { metadata: { name: 'bound', uid: 'x' }, target: { kind: 'Node', name: 'n' } };
    const send = (path: string) => tested.call({ method: 'POST', path: `${path}?dryRun=All`, body: binding });
    assert.equal((await send(`${PODS}/bound/binding`)).status, 409);
    assert.equal((await send(`${NAMESPACE}/bindings`)).status, 201);
  });

  test('the first and the last address of the service range belong to none', async () => {
    const service = { metadata: { name: 's' }, spec: { clusterIP: '10.96.0.0', ports: [{ port: 80 }] } };
    const { status, text } = await tested.call({ method: 'POST', path: `${NAMESPACE}/services`, body: service });
    assert.equal(status, 422);
    assert.match(text, /failed to allocate IP 10\.96\.0\.0: the provided network does not match the current range/);
  });
});

test('a budget says why it refuses, and that it is exhausted', async () => {
  for (const name of ['one', 'two']) {
    await created(PODS, pod(name));
    const status = { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] };
    await tested.call({ method: 'PATCH', path: `${PODS}/${name}/status`, type: MERGE, body: { status } });
  }
  await created(BUDGETS, {
    metadata: { name: 'p' },
    spec: { minAvailable: 1, selector: { matchLabels: { app: 'guarded' } } },
  });
  const status = {
    observedGeneration: 1,
    disruptionsAllowed: 1,
    currentHealthy: 2,
    desiredHealthy: 1,
    expectedPods: 2,
  };
  const setStatus = (more: object) =>
    tested.call({
      method: 'PATCH',
      path: `${BUDGETS}/p/status`,
      type: MERGE,
      body: { status: { ...status, ...more } },
    });
  const evict = (name: string) =>
    tested.call({ method: 'POST', path: `${PODS}/${name}/eviction`, body: { metadata: { name } } });
  await setStatus({});
  assert.equal((await evict('one')).status, 201);
  const { text } = await tested.call({ path: `${BUDGETS}/p` });
  assert.match(
    text,
    /"type":"DisruptionAllowed","status":"False","observedGeneration":1,.*"reason":"InsufficientPods"/,
  );
  assert.match((await evict('two')).text, /"message":"The disruption budget p does not allow evicting pods currently"/);
  const condition = (reason: string) => ({
    disruptionsAllowed: 0,
    conditions: [
      {
        type: 'DisruptionAllowed',
        status: 'False',
        reason,
        message: 'why',
        lastTransitionTime: '2026-01-01T00:00:00Z',
      },
    ],
  });
  await setStatus(condition('SyncFailed'));
  assert.match((await evict('two')).text, /does not allow evicting pods currently because it failed sync: why"/);
  await setStatus(condition('Other'));
  assert.match((await evict('two')).text, /does not allow evicting pods currently \(Other\): why"/);
  await setStatus({ disruptionsAllowed: 0, currentHealthy: 1 });
  assert.match((await evict('two')).text, /The disruption budget p needs 1 healthy pods and has 1 currently"/);
});

test('fields that a subresource of pods resets stay with their manager', async () => {
  await created(PODS, pod('owned'));
  const body = { status: { phase: 'Failed' } };
  const path = `${PODS}/owned/ephemeralcontainers?fieldManager=m`;
  const { text } = await tested.call({ method: 'PATCH', path, type: MERGE, body });
  const { status, metadata } = JSON.parse(text) as {
    status: { phase: string };
    metadata: { managedFields: { manager: string; fieldsV1: object }[] };
  };
  assert.equal(status.phase, 'Pending');
  const own = metadata.managedFields.find(({ manager }) => manager === 'm');
  assert.deepEqual(own?.fieldsV1, { 'f:status': { 'f:phase': {} } });
});

describe('access reviews', () => {
  const review = (spec: JsonObject): Call => ({
    method: 'POST',
    path: '/apis/authorization.k8s.io/v1/subjectaccessreviews',
    body: { spec },
  });
  const selector = { requirements: [{ key: 'a', operator: 'Newer' }] };
  holds([
    {
      name: 'the target is checked before the user',
      ...review({}),
      status: 422,
      contains: 'is invalid: [spec.resourceAttributes: ',
    },
    {
      name: 'an unknown operator of a newer client is ignored',
      ...review({ user: 'u', resourceAttributes: { verb: 'list', resource: 'pods', labelSelector: selector } }),
      status: 201,
      contains: '"evaluationError":"spec.resourceAttributes.labelSelector ignored due to parse error"',
    },
  ]);
});

test('the default class of ingresses is marked in tables', async () => {
  const classes = '/apis/networking.k8s.io/v1/ingressclasses';
  await created(classes, {
    metadata: { name: 'c', annotations: { 'ingressclass.kubernetes.io/is-default-class': 'true' } },
    spec: { controller: 'a.b/c' },
  });
  assert.match((await tested.call({ path: classes, accept: TABLE })).text, /"cells":\["c \(default\)","a\.b\/c"/);
});

test("objects of the server have the managers of kube-apiserver's parts", async () => {
  const managersOf = async (path: string): Promise<string[]> => {
    const { metadata } = JSON.parse((await tested.call({ path })).text) as {
      metadata: { managedFields: { manager: string }[] };
    };
    return metadata.managedFields.map(({ manager }) => manager);
  };
  const range = '/apis/networking.k8s.io/v1/servicecidrs/kubernetes';
  await until('the status of the range', async () => (await managersOf(range)).length === 2);
  assert.deepEqual(await managersOf(range), ['kubernetes-service-cidr-controller', 'kube-apiserver']);
  assert.doesNotMatch((await tested.call({ path: range })).text, /"f:reason"/);
  const schema = '/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt';
  await until('the status of the flow schema', async () => (await managersOf(schema)).length === 2);
  assert.deepEqual(await managersOf(schema), [
    'api-priority-and-fairness-config-consumer-v1',
    'api-priority-and-fairness-config-producer-v1',
  ]);
  const name = 'v1.compared.example.com';
  const services = '/apis/apiregistration.k8s.io/v1/apiservices';
  const spec = { group: 'compared.example.com', version: 'v1', groupPriorityMinimum: 1, versionPriority: 1 };
  const service = { namespace: 'default', name: 'none' };
  await created(services, { metadata: { name }, spec: { ...spec, service, insecureSkipTLSVerify: true } });
  await until('the status of the API service', async () => (await managersOf(`${services}/${name}`)).length === 2);
  assert.ok((await managersOf(`${services}/${name}`)).includes('kube-apiserver'));
  const { headers, status } = await tested.call({ path: '/apis/compared.example.com/v1' });
  assert.deepEqual([status, headers['x-content-type-options']], [503, 'nosniff']);
});
