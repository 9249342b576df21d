/**
 * Attacks a running control plane without persistent storage. The client is an administrator, so that nothing is refused before
 * it is read. An input is `METHOD path`, header lines, an empty line and the body.
 */
import { Agent, request } from 'node:https';
import { createProtobufCodec } from '../../../api/codec/protobuf.ts';
import { parseYaml } from '../../../api/codec/yaml.ts';
import { loadSchema } from '../../../api/schema/table.ts';
import { startControlPlane } from '../../../controlplane/main.ts';
import { Random } from '../random.ts';
import { law, type Target } from '../target.ts';
import { json, POD, protobuf, yaml } from './codecs.ts';
import { jsonPatch, mergePatch, strategicMerge, structuredMerge } from './patches.ts';
import { mutate } from '../mutate.ts';

const TIMEOUT_MS = 20_000;
const MAX_ANSWER_BYTES = 1 << 24;

const PATHS = [
  '/api/v1/namespaces/default/pods',
  '/api/v1/namespaces/default/pods/a',
  '/api/v1/namespaces/default/configmaps',
  '/api/v1/namespaces/default/configmaps/a',
  '/api/v1/namespaces/default/services',
  '/api/v1/namespaces/default/secrets',
  '/api/v1/namespaces',
  '/api/v1/nodes',
  '/api/v1/nodes/n/status',
  '/api/v1/pods',
  '/apis/apps/v1/namespaces/default/deployments',
  '/apis/apps/v1/namespaces/default/deployments/d/scale',
  '/apis/apiextensions.k8s.io/v1/customresourcedefinitions',
  '/apis/batch/v1/namespaces/default/jobs',
  '/apis/certificates.k8s.io/v1/certificatesigningrequests',
  '/apis/rbac.authorization.k8s.io/v1/clusterroles',
  '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
  '/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies',
  '/apis/networking.k8s.io/v1/namespaces/default/ingresses',
  '/apis/policy/v1/namespaces/default/poddisruptionbudgets',
  '/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers',
  '/apis/storage.k8s.io/v1/storageclasses',
  '/apis/coordination.k8s.io/v1/namespaces/default/leases',
  '/apis/events.k8s.io/v1/namespaces/default/events',
  '/api/v1/namespaces/default/serviceaccounts/default/token',
  '/api/v1/namespaces/default/pods/a/eviction',
  '/api/v1/namespaces/default/pods/a/binding',
  '/api/v1/namespaces/default/pods/a/log',
  '/api/v1/namespaces/default/pods/a/exec',
  '/api/v1/namespaces/default/services/a/proxy/x',
  '/apis',
  '/api',
  '/openapi/v2',
  '/openapi/v3',
  '/openapi/v3/api/v1',
  '/version',
  '/healthz',
  '/metrics',
  '/',
  '/apis/apps',
  '/livez/ping',
  '/.well-known/openid-configuration',
] as const;
const QUERIES = [
  'limit=1',
  'limit=-1',
  'limit=99999999999999999999',
  'continue=x',
  'continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0',
  'labelSelector=a%3Db',
  'labelSelector=%2C(',
  'fieldSelector=metadata.name%3Da',
  'fieldSelector=__proto__%3D1',
  'resourceVersion=0',
  'resourceVersion=1&resourceVersionMatch=Exact',
  'resourceVersion=-1',
  'resourceVersionMatch=x',
  'watch=1&timeoutSeconds=1',
  'timeoutSeconds=x',
  'dryRun=All',
  'dryRun=x',
  'fieldManager=m',
  'force=true',
  'fieldValidation=Strict',
  'propagationPolicy=Orphan',
  'gracePeriodSeconds=-1',
  'pretty=1',
  'timeout=1s',
  'timeout=x',
  '__proto__=1',
  'constructor=1',
  '%ff=%ff',
  'sendInitialEvents=true&watch=1&resourceVersionMatch=NotOlderThan&timeoutSeconds=1',
  'limit=1&limit=2',
  'tailLines=-1',
  'command=a&container=b&stdin=1',
] as const;
const TYPES = [
  'application/json',
  'application/yaml',
  'application/vnd.kubernetes.protobuf',
  'application/json-patch+json',
  'application/merge-patch+json',
  'application/strategic-merge-patch+json',
  'application/apply-patch+yaml',
  'application/apply-patch+cbor',
  'application/cbor',
  'text/plain',
  'application/json;charset=x',
  ';;',
  '',
] as const;
const ACCEPTS = [
  'application/json',
  'application/json',
  'application/yaml',
  'application/vnd.kubernetes.protobuf',
  'application/json;as=Table;g=meta.k8s.io;v=v1',
  'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1',
  '*/*;q=x',
  'text/html',
  'application/json;as=x;g=y;v=z',
  ',;,',
] as const;
const MORE_HEADERS = [
  'if-none-match: *',
  'accept-encoding: gzip',
  'impersonate-user: a',
  'impersonate-group: b',
  'impersonate-extra-__proto__: c',
  'user-agent: x/y (z)',
  'content-encoding: gzip',
  'range: bytes=0-',
  'expect: 100-continue',
  'x-remote-user: r',
  'audit-id: é',
  'authorization: Bearer a.b.c',
  'traceparent: 00',
  'x-stream-protocol-version: v4.channel.k8s.io',
] as const;

const POLICY = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'ValidatingAdmissionPolicy',
  metadata: { name: 'a' },
  spec: { matchConstraints: { resourceRules: [] }, validations: [{ expression: 'object.a.all(x, x.b)' }] },
};
const CRD = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'as.x.io' },
  spec: {
    group: 'x.io',
    scope: 'Namespaced',
    names: { plural: 'as', kind: 'A' },
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        schema: {
          openAPIV3Schema: {
            type: 'object',
            properties: {
              a: { type: 'string', pattern: '(a+)+$', 'x-kubernetes-validations': [{ rule: 'self.size() > 1' }] },
            },
          },
        },
      },
    ],
  },
};
const DEPLOYMENT = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'd' },
  spec: {
    replicas: 0,
    selector: { matchLabels: { a: 'b' } },
    template: { metadata: { labels: { a: 'b' } }, spec: POD.spec },
  },
};
const OTHERS: readonly object[] = [
  POLICY,
  CRD,
  DEPLOYMENT,
  { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a' }, data: { a: 'b' }, binaryData: { c: 'AA==' } },
  {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'a' },
    spec: { ports: [{ port: 80, targetPort: 'x' }], selector: { a: 'b' } },
  },
  {
    apiVersion: 'certificates.k8s.io/v1',
    kind: 'CertificateSigningRequest',
    metadata: { name: 'a' },
    spec: { request: 'LS0t', signerName: 'kubernetes.io/kube-apiserver-client', usages: ['client auth'] },
  },
  { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid: 'x' } },
  { apiVersion: 'autoscaling/v1', kind: 'Scale', spec: { replicas: 1 } },
  {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectAccessReview',
    spec: { resourceAttributes: { verb: 'get' } },
  },
];

/** Generates a large body. */
function largeBody(random: Random): string {
  const many = random.pick([1000, 100_000]);
  const labels = (count: number): string => Array.from({ length: count }, (_, index) => `"k${index}":"v"`).join(',');
  switch (random.below(8)) {
    case 0:
      return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"l","labels":{${labels(many)}}}}`;
    case 1:
      return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"l"},"data":{${labels(many)}}}`;
    case 2:
      return `{"a":`.repeat(10_000) + '1' + '}'.repeat(10_000);
    case 3: {
      const containers = Array.from(
        { length: many / 10 },
        (_, index) => `{"name":"c${index}","image":"x","env":[{"name":"A"}]}`,
      );
      return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[${containers.join(',')}]}}`;
    }
    case 4:
      return `[${Array.from({ length: 10_000 }, (_, index) => `{"op":"add","path":"/data/k${index}","value":"${index}"}`).join(',')}]`;
    case 5:
      return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"l","finalizers":[${Array.from({ length: many / 10 }, (_, index) => `"x.io/f${index}"`).join(',')}]}}`;
    case 6: {
      const ports = Array.from({ length: many / 20 }, (_, index) => `{"name":"p${index}","port":${index + 1}}`);
      return `{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"ports":[${ports.join(',')}]}}`;
    }
    default:
      return `{"x":"${'y'.repeat(random.pick([3_145_000, 3_145_729, 5_000_000]))}"}`;
  }
}

function readRequest(input: Buffer): { method: string; path: string; headers: string[]; body: Buffer } {
  const split = input.indexOf('\n\n');
  const head = input
    .subarray(0, split < 0 ? input.length : split)
    .toString('latin1')
    .split('\n');
  const [method = 'GET', path = '/'] = (head[0] ?? '').split(' ');
  const headers = head.slice(1).flatMap((line) => {
    const colon = line.indexOf(': ');
    const name = line.slice(0, colon).toLowerCase();
    // The HTTP client sets the headers that frame the message.
    if (
      colon < 1 ||
      !/^[a-z][a-z0-9_-]*$/.test(name) ||
      /^(?:content-length|transfer-encoding|connection|upgrade|expect|host)$/.test(name)
    )
      return [];
    return [name, line.slice(colon + 2).replaceAll(/[^ -~]/g, '?')];
  });
  return {
    method: /^(?:GET|POST|PUT|PATCH|DELETE|OPTIONS|HEAD)$/.test(method) ? method : 'GET',
    path: `/${path.replace(/^\//, '').replaceAll(/[^!-~]/g, '')}`,
    headers,
    body: split < 0 ? Buffer.alloc(0) : input.subarray(split + 2),
  };
}

/** Starts a control plane and returns the target that sends requests to it. */
export async function http(): Promise<Target> {
  const plane = await startControlPlane({ memory: true });
  const config = parseYaml(plane.kubeconfig).value as { users: [{ user: Record<string, string> }] };
  const { user } = config.users[0];
  const pem = (name: string): Buffer => Buffer.from(user[name] ?? '', 'base64');
  const agent = new Agent({
    keepAlive: true,
    ca: plane.ca,
    cert: pem('client-certificate-data'),
    key: pem('client-key-data'),
  });
  const bodies = [json, yaml, protobuf(), jsonPatch, mergePatch, strategicMerge(), structuredMerge()];
  const codec = createProtobufCodec(loadSchema());
  const body = (random: Random): Buffer => {
    const other = random.pick(OTHERS) ?? POD;
    switch (random.below(6)) {
      case 0:
        return random.chance(3) ? Buffer.from(largeBody(random)) : Buffer.alloc(0);
      case 1: {
        const target = random.pick(bodies) ?? json;
        return target.generate?.(random) ?? Buffer.alloc(0);
      }
      case 2: {
        const target = random.pick(bodies) ?? json;
        return Buffer.from(random.pick(target.seeds) ?? '');
      }
      case 3: {
        const { preconditions: _, ...object } = other as { preconditions?: object };
        const bytes = Buffer.from(codec.encodeEnveloped('spec' in object || 'data' in object ? object : POD));
        if (random.chance(2)) bytes[random.below(bytes.length)] = random.below(256);
        return bytes;
      }
      default: {
        const target = random.pick(bodies) ?? json;
        const bytes = Buffer.from(JSON.stringify(other));
        return random.chance(3)
          ? bytes
          : mutate(bytes, { corpus: [bytes, Buffer.from(JSON.stringify(POD))], words: target.words }, random);
      }
    }
  };
  const generate = (random: Random): Buffer => {
    const queries = Array.from({ length: random.below(3) }, () => random.pick(QUERIES));
    const lines = [
      `${random.pick(['GET', 'POST', 'POST', 'PUT', 'PATCH', 'PATCH', 'PATCH', 'DELETE'])} ${random.pick(PATHS)}${random.chance(6) ? random.pick(['/', '//', '/..', '/%2e', '/%00', '/status', '/__proto__', '/constructor', '/%ff']) : ''}${queries.length === 0 ? '' : `?${queries.join('&')}`}`,
      `content-type: ${random.pick(TYPES)}`,
      `accept: ${random.pick(ACCEPTS)}`,
      ...(random.chance(4) ? [random.pick(MORE_HEADERS)] : []),
    ];
    return Buffer.concat([Buffer.from(`${lines.join('\n')}\n\n`), body(random)]);
  };
  const send = (input: Buffer): Promise<{ status: number; type: string; text: string }> =>
    new Promise((resolve, reject) => {
      const { method, path, headers, body: sent } = readRequest(input);
      const { hostname, port } = new URL(plane.url);
      const call = request(
        {
          hostname,
          port,
          method,
          path,
          agent,
          timeout: TIMEOUT_MS,
          headers: ['host', 'a', ...headers, 'content-length', String(sent.length)],
        },
        (response) => {
          // Watches and followed logs do not end.
          if (/[?&](?:watch|follow)/.test(path) && response.statusCode === 200) {
            resolve({ status: 200, type: 'stream', text: '' });
            response.destroy();
            return;
          }
          const chunks: Buffer[] = [];
          let size = 0;
          response.on('data', (chunk: Buffer) => {
            size += chunk.length;
            if (size < MAX_ANSWER_BYTES) chunks.push(chunk);
          });
          response.on('error', reject);
          response.on('end', () =>
            resolve({
              status: response.statusCode ?? 0,
              type: `${response.headers['content-type']}`.slice(0, 30),
              text: Buffer.concat(chunks).toString(),
            }),
          );
        },
      );
      call.on('timeout', () => call.destroy(new Error('no answer')));
      call.on('error', (error: NodeJS.ErrnoException) => {
        // A server may respond and close the connection before it has read the whole body.
        if (error.code === 'EPIPE' || error.code === 'ECONNRESET') resolve({ status: 0, type: error.code, text: '' });
        else reject(error);
      });
      call.end(sent);
    });
  const seeds = Array.from({ length: 40 }, (_, seed) => generate(new Random(seed)).subarray(0, 1 << 16));
  return {
    seeds: [
      `POST /api/v1/namespaces/default/pods\ncontent-type: application/json\n\n${JSON.stringify(POD)}`,
      ...OTHERS.slice(2, 5).map(
        (object, index) =>
          `POST ${['/apis/apps/v1/namespaces/default/deployments', '/api/v1/namespaces/default/configmaps', '/api/v1/namespaces/default/services'][index]}\ncontent-type: application/json\n\n${JSON.stringify(object)}`,
      ),
      ...seeds,
    ],
    words: [...PATHS, ...QUERIES, ...TYPES, ...json.words, ...yaml.words],
    generate,
    async execute(input) {
      const { status, type, text } = await send(input);
      const { method, path } = readRequest(input);
      // kube-apiserver responds with 500 and without a reason to malformed strategic merge patches and resource versions.
      const asReference =
        text.includes('strconv.ParseUint: parsing') ||
        (method === 'PATCH' && text.includes('"status":"Failure"') && !text.includes('"reason"'));
      law(status !== 500 || asReference, `500: ${method} ${path} ${text.slice(0, 600)}`);
      return `${method} ${status} ${type} ${path.split(/[/?]/).slice(1, 4).join('/').slice(0, 20)} ${/"reason":"(\w+)"/.exec(text)?.[1] ?? ''}`;
    },
    async close() {
      agent.destroy();
      await plane.close();
    },
  };
}
