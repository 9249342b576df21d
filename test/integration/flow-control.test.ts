/**
 * Tests API priority and fairness in a whole control plane: its objects, their status, and how much one user can take from
 * others.
 */
import assert from 'node:assert/strict';
import { rm, writeFile } from 'node:fs/promises';
import { connect, type ClientHttp2Session } from 'node:http2';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { flowSchemas, priorityLevelConfigurations } from '../../api/client/resources.ts';
import { ensureFlowControl } from '../../controlplane/controllers/cluster-objects/flow-control-objects.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

let plane: ControlPlane;
let directory: string;
let session: ClientHttp2Session;

before(async () => {
  directory = temporaryFolder();
  const tokens = join(directory, 'tokens.csv');
  await writeFile(
    tokens,
    'alice,alice,1\nbob,bob,2\nnode,system:node:n1,3,"system:nodes"\nroot,root,4,"system:masters"\n',
  );
  plane = await startControlPlane({
    memory: true,
    flags: { tokenAuthFile: tokens, maxRequestsInflight: 40, maxMutatingRequestsInflight: 20, scheduler: false },
  });
  session = connect(plane.url, { ca: plane.ca });
});

after(async () => {
  session.destroy();
  await plane.close();
  await rm(directory, { recursive: true, force: true });
});

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly headers: Readonly<Record<string, unknown>>;
}

function request(token: string, method: string, path: string, body?: object): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
    const headers = { authorization: `Bearer ${token}`, 'content-type': type };
    const stream = session.request({ ':method': method, ':path': path, ...headers }, { endStream: body === undefined });
    let answer: Record<string, unknown> = {};
    let text = '';
    stream.on('response', (received) => (answer = received));
    stream.setEncoding('utf8').on('data', (part: string) => (text += part));
    stream.on('end', () => resolve({ status: Number(answer[':status']), text, headers: answer }));
    stream.on('error', reject);
    if (body !== undefined) stream.end(JSON.stringify(body));
  });
}

const REVIEWS = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';
const review = { spec: { nonResourceAttributes: { path: '/', verb: 'get' } } };

test('unfinished bodies of one user keep neither nodes nor others waiting', async () => {
  const headers = { authorization: 'Bearer alice', 'content-type': 'application/json' };
  const attack = Array.from({ length: 200 }, () => {
    const stream = session.request({ ':method': 'POST', ':path': REVIEWS, ...headers });
    stream.on('error', () => undefined).resume();
    stream.write('{"spec":');
    return stream;
  });
  await request('bob', 'GET', '/version');
  assert.equal((await request('bob', 'POST', REVIEWS, review)).status, 201);
  const node = { metadata: { name: 'n1' } };
  assert.equal((await request('node', 'POST', '/api/v1/nodes', node)).status, 201);
  const status = { status: { nodeInfo: { kubeletVersion: 'v1' } } };
  const patched = await request('node', 'PATCH', '/api/v1/nodes/n1/status', status);
  assert.equal(patched.status, 200, patched.text);
  const lease = { metadata: { name: 'n1' }, spec: { holderIdentity: 'n1', leaseDurationSeconds: 40 } };
  const leases = '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases';
  assert.equal((await request('node', 'POST', leases, lease)).status, 201);
  for (const stream of attack) stream.close();
});

test('responses name their flow schema and priority level, and the metrics count them', async () => {
  const schema = await plane.client.get(flowSchemas, '', 'global-default');
  const level = await plane.client.get(priorityLevelConfigurations, '', 'global-default');
  await until('the configuration is applied', async () => {
    const { headers } = await request('bob', 'GET', '/version');
    return (
      headers['x-kubernetes-pf-flowschema-uid'] === schema.metadata.uid &&
      headers['x-kubernetes-pf-prioritylevel-uid'] === level.metadata.uid
    );
  });
  const { text } = await request('root', 'GET', '/metrics');
  for (const name of ['dispatched_requests_total', 'nominal_limit_seats', 'request_wait_duration_seconds_count'])
    assert.match(text, new RegExp(`^apiserver_flowcontrol_${name}\\{.*priority_level="global-default"`, 'm'));
  const dump = await request('root', 'GET', '/debug/api_priority_and_fairness/dump_priority_levels');
  assert.match(dump.text, /^exempt, +0, +\w+, +false, +0, +\d+, +\d+, +0, +0, +0$/m);
});

test('a flow schema without its level is dangling, until the level exists', async () => {
  const spec = {
    matchingPrecedence: 500,
    priorityLevelConfiguration: { name: 'mine' },
    rules: [
      {
        subjects: [{ kind: 'User', user: { name: 'bob' } }],
        nonResourceRules: [{ verbs: ['*'], nonResourceURLs: ['*'] }],
      },
    ],
  };
  const apiVersion = 'flowcontrol.apiserver.k8s.io/v1';
  await plane.client.create(flowSchemas, '', { apiVersion, kind: 'FlowSchema', metadata: { name: 'mine' }, spec });
  const dangling = async (status: string): Promise<boolean> => {
    const { status: found } = await plane.client.get(flowSchemas, '', 'mine');
    const [condition] = (found as { conditions?: { type: string; status: string }[] } | undefined)?.conditions ?? [];
    return condition?.type === 'Dangling' && condition.status === status;
  };
  await until('the condition Dangling of the flow schema', () => dangling('True'));
  await plane.client.create(priorityLevelConfigurations, '', {
    apiVersion,
    kind: 'PriorityLevelConfiguration',
    metadata: { name: 'mine' },
    spec: { type: 'Limited', limited: { nominalConcurrencyShares: 5, limitResponse: { type: 'Reject' } } },
  });
  await until('the flow schema with its priority level', () => dangling('False'));
  const { metadata } = await plane.client.get(flowSchemas, '', 'mine');
  await until('a response by the flow schema', async () => {
    const { headers } = await request('bob', 'GET', '/version');
    return headers['x-kubernetes-pf-flowschema-uid'] === metadata.uid;
  });
});

test('flow control objects are restored, except for those that an administrator maintains', async () => {
  const { client } = plane;
  const levels = priorityLevelConfigurations;
  const sharesOf = async (name: string): Promise<unknown> => {
    const { spec } = await client.get(levels, '', name);
    return (spec as { limited?: { nominalConcurrencyShares?: number } }).limited?.nominalConcurrencyShares;
  };
  const setShares = (name: string, keep: string) =>
    client.patch(levels, '', name, {
      type: 'merge',
      body: {
        metadata: { annotations: { 'apf.kubernetes.io/autoupdate-spec': keep } },
        spec: { limited: { nominalConcurrencyShares: 7 } },
      },
    });
  await setShares('workload-low', 'true');
  await setShares('workload-high', 'false');
  await client.delete(flowSchemas, '', 'service-accounts');
  await client.delete(flowSchemas, '', 'catch-all');
  const stale = { name: 'stale', annotations: { 'apf.kubernetes.io/autoupdate-spec': 'true' } };
  const { spec } = await client.get(levels, '', 'system');
  const apiVersion = 'flowcontrol.apiserver.k8s.io/v1';
  const kind = 'PriorityLevelConfiguration';
  await client.create(levels, '', { apiVersion, kind, metadata: stale, spec });
  await ensureFlowControl(client);
  assert.equal(await sharesOf('workload-low'), 100);
  assert.equal(await sharesOf('workload-high'), 7);
  await client.get(flowSchemas, '', 'service-accounts');
  await client.get(flowSchemas, '', 'catch-all');
  await assert.rejects(client.get(levels, '', 'stale'), { message: /not found/ });
});

test('a list of many custom resources takes more seats than one', async () => {
  const group = 'seats.example.com';
  const definition = {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `things.${group}` },
    spec: {
      group,
      scope: 'Cluster',
      names: { plural: 'things', singular: 'thing', kind: 'Thing', listKind: 'ThingList' },
      versions: [
        {
          name: 'v1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: { type: 'object', properties: { text: { type: 'string' } } } },
        },
      ],
    },
  };
  const definitions = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
  assert.equal((await request('root', 'POST', definitions, definition)).status, 201);
  const things = `/apis/${group}/v1/things`;
  await until('the custom resource', async () => (await request('root', 'GET', things)).status === 200);
  for (let count = 0; count < 60; count += 1) {
    const thing = { apiVersion: `${group}/v1`, kind: 'Thing', metadata: { name: `t${count}` }, text: 'x'.repeat(5000) };
    assert.equal((await request('root', 'POST', things, thing)).status, 201);
  }
  const seats = async (): Promise<number> => {
    const { text } = await request('root', 'GET', '/metrics');
    const lines = text
      .split('\n')
      .filter((line) => /^apiserver_flowcontrol_work_estimated_seats_sum\{.*"system-nodes"/.test(line));
    return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  };
  const before = await seats();
  // A request takes seats before authorization refuses it.
  assert.equal((await request('node', 'GET', things)).status, 403);
  assert.equal((await seats()) - before, 2);
  await request('node', 'GET', `${things}?limit=1&labelSelector=no%3Dmatch`);
  assert.equal((await seats()) - before, 4);
  await request('node', 'GET', `${things}?limit=1`);
  assert.equal((await seats()) - before, 5);
});
