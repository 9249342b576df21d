/** Clients that send and read protobuf see the same objects as JSON clients, for every built-in type. */
import assert from 'node:assert/strict';
import { Agent, request } from 'node:https';
import { after, before, describe, test } from 'node:test';
import { createProtobufCodec } from '../../api/codec/protobuf.ts';
import { parseYaml } from '../../api/codec/yaml.ts';
import type { JsonObject, KubeObject } from '../../api/meta/object.ts';
import { builtinResources } from '../../api/schema/resources.ts';
import { loadSchema } from '../../api/schema/table.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { servedResources } from '../../controlplane/registry/runtime-config.ts';
import { fill, pick } from '../parity/json-path.ts';
import { areas, scenariosOf } from '../parity/scenario.ts';
import { until } from '../until.ts';

const PROTOBUF = 'application/vnd.kubernetes.protobuf';
const schema = loadSchema();
const codec = createProtobufCodec(schema);
const NAMESPACE = 'of-protobuf';

interface Case {
  /** The path of the collection. */
  readonly path: string;
  readonly body: KubeObject;
}

/** Objects for which no recorded request can be used here. */
const OWN: readonly Case[] = [
  {
    path: '/apis/authentication.k8s.io/v1/selfsubjectreviews',
    body: { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview', metadata: {} },
  },
  {
    path: '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
    body: {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectAccessReview',
      metadata: {},
      spec: { resourceAttributes: { verb: 'get', resource: 'pods' } },
    },
  },
  {
    path: '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews',
    body: {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectRulesReview',
      metadata: {},
      spec: { namespace: NAMESPACE },
    },
  },
  {
    path: `/apis/autoscaling/v1/namespaces/${NAMESPACE}/horizontalpodautoscalers`,
    body: {
      apiVersion: 'autoscaling/v1',
      kind: 'HorizontalPodAutoscaler',
      metadata: { name: 'version-one' },
      spec: { scaleTargetRef: { kind: 'Deployment', name: 'd', apiVersion: 'apps/v1' }, maxReplicas: 3 },
    },
  },
];

/** Returns an object of each built-in resource that kube-apiserver accepted. */
function cases(): Case[] {
  const found = new Map<string, Case>();
  for (const scenario of areas().flatMap(scenariosOf)) {
    if (scenario.webhooks !== undefined) continue;
    for (const raw of scenario.steps) {
      if (raw.method !== 'POST' || raw.want?.status !== 201 || raw.as !== undefined || raw.headers !== undefined)
        continue;
      const key = (raw.path ?? '').split('?')[0] ?? '';
      if (found.has(key) || /\{\{(?!ns\}\})|[^/]\{\{|\/(status|eviction|bindings?|token)$/.test(key)) continue;
      if (/"[^"]*\{\{(?!ns\}|id\}|id6\})/.test(JSON.stringify(raw.body) ?? '')) continue;
      const step = fill(raw, { ns: NAMESPACE, id: 'a1b2c3d4', id6: 'a1b2c3' });
      const body = step.body as KubeObject | undefined;
      const [group = '', version = ''] = body?.apiVersion?.includes('/')
        ? body.apiVersion.split('/')
        : ['', body?.apiVersion];
      if (body?.kind === undefined || schema.kind(group, version, body.kind) === undefined) continue;
      found.set(key, { path: key.replaceAll('{{ns}}', NAMESPACE), body });
    }
  }
  return [...found.values(), ...OWN];
}

/** Removes nulls and empty values, except in lists and maps. Protobuf has neither, and a typed client treats both as absent. */
function withoutZeros(value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => withoutZeros(item) ?? {});
  if (typeof value !== 'object' || value === null)
    return value === null || value === '' || value === 0 || value === false ? undefined : value;
  const kept = Object.entries(value)
    .map(([key, member]) => [key, withoutZeros(member)] as const)
    .filter(([, member]) => member !== undefined && (!Array.isArray(member) || member.length > 0));
  return kept.length === 0 ? undefined : Object.fromEntries(kept);
}

describe('protobuf over HTTP', () => {
  let plane: ControlPlane;
  const agent = new Agent({ keepAlive: true });
  let credentials: { cert: string; key: string; ca: string };

  function call(
    method: string,
    path: string,
    accept: string,
    body?: Buffer,
  ): Promise<{ status: number; type: string; bytes: Buffer }> {
    return new Promise((resolve, reject) => {
      const headers = {
        accept,
        ...(body === undefined ? {} : { 'content-type': PROTOBUF, 'content-length': body.length }),
      };
      const sent = request(new URL(path, plane.url), { method, headers, agent, ...credentials }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            type: response.headers['content-type'] ?? '',
            bytes: Buffer.concat(chunks),
          }),
        );
      });
      sent.on('error', reject);
      sent.end(body);
    });
  }

  const decoded = (answer: { type: string; bytes: Buffer }): JsonObject => {
    assert.equal(answer.type, PROTOBUF);
    return codec.decode(answer.bytes);
  };

  before(async () => {
    plane = await startControlPlane({ memory: true, flags: { controllers: [], scheduler: false } });
    const config = parseYaml(plane.kubeconfig).value;
    const pem = (name: string): string =>
      Buffer.from(String(pick(config, `users.0.user.${name}-data`)), 'base64').toString('utf8');
    credentials = { cert: pem('client-certificate'), key: pem('client-key'), ca: plane.ca };
    for (const object of [
      { apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } },
      { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default', namespace: NAMESPACE } },
    ]) {
      const path =
        object.kind === 'Namespace' ? '/api/v1/namespaces' : `/api/v1/namespaces/${NAMESPACE}/serviceaccounts`;
      const made = await call('POST', path, PROTOBUF, codec.encodeEnveloped(object));
      assert.equal(made.status, 201, made.bytes.toString());
    }
  });
  after(async () => {
    agent.destroy();
    await plane.close();
  });

  test('an object that is created with protobuf is the same in protobuf and in JSON', async () => {
    const kinds = new Set<string>();
    const refused: string[] = [];
    for (const { path, body } of cases()) {
      const made = await call('POST', path, PROTOBUF, codec.encodeEnveloped(body));
      if (made.status === 409) continue;
      if (made.status !== 201) {
        refused.push(`${path}: ${made.bytes.toString()}`);
        continue;
      }
      const object = decoded(made) as KubeObject;
      kinds.add(`${body.apiVersion ?? ''} ${body.kind ?? ''}`);
      // Protobuf has empty values as well, such as the uid of a review, which is not stored.
      const { name = '', uid = '' } = object.metadata ?? {};
      if (uid === '') continue;
      // A controller may write the status between two reads.
      const { binary, json } = await until(`one revision of ${path}/${name} in both encodings`, async () => {
        const read = decoded(await call('GET', `${path}/${name}`, PROTOBUF)) as KubeObject;
        const text = await call('GET', `${path}/${name}`, 'application/json');
        assert.equal(text.status, 200, path);
        const parsed = JSON.parse(text.bytes.toString()) as KubeObject;
        const same = read.metadata?.resourceVersion === parsed.metadata?.resourceVersion;
        return same ? { binary: read, json: parsed } : undefined;
      });
      assert.deepEqual(withoutZeros(binary), withoutZeros(json), path);
      const lists = [await call('GET', path, PROTOBUF), await call('GET', path, 'application/json')] as const;
      const list = decoded(lists[0]) as { items?: object[] };
      const wanted = JSON.parse(lists[1].bytes.toString()) as { items: object[] };
      assert.equal(list.items?.length, wanted.items.length, path);
    }
    assert.deepEqual(refused, []);
    const serves = servedResources({});
    const stored = builtinResources().filter((info) => serves(info) && info.verbs.includes('create'));
    const left = stored
      .map(({ group, version, kind }) => `${group === '' ? '' : `${group}/`}${version} ${kind}`)
      .filter((kind) => !kinds.has(kind));
    assert.deepEqual(left, ['v1 Binding']);
  });
});
