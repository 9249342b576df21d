/**
 * Tries every verb on every resource and subresource of discovery, as a node on objects of another node, and as a user with
 * `edit` in one namespace on another namespace. Resources that are added later are tested automatically.
 */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const directory = temporaryFolder();
const agent = new Agent({ keepAlive: true, maxSockets: 8 });
let plane: ControlPlane;

type User = 'admin' | 'node-a' | 'node-b' | 'alice' | 'bob';
interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

/** Sends a request as a user. An accepted stream is closed at once, because only its status matters. */
function call(
  user: User,
  method: string,
  path: string,
  body?: unknown,
  contentType = 'application/json',
): Promise<Answer> {
  const { hostname, port } = new URL(plane.url);
  const text = body === undefined ? undefined : JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${user}-token`,
      accept: 'application/json',
      ...(text === undefined ? {} : { 'content-type': contentType, 'content-length': Buffer.byteLength(text) }),
    };
    const sent = request({ hostname, port, path, method, headers, ca: plane.ca, agent }, (response) => {
      const status = response.statusCode ?? 0;
      if (status === 200 && /[?&]watch=/.test(path)) {
        response.destroy();
        resolve({ status, body: {} });
        return;
      }
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const answer = Buffer.concat(chunks).toString();
        resolve({
          status,
          body: answer.startsWith('{') ? (JSON.parse(answer) as Record<string, unknown>) : { text: answer },
        });
      });
    });
    sent.setTimeout(60_000, () => sent.destroy(new Error(`${user}: no answer to ${method} ${path}`)));
    sent.on('error', reject);
    sent.end(text);
  });
}

interface Served {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly subresource: string;
  readonly kind: string;
  readonly kindVersion: string;
  readonly namespaced: boolean;
}

interface ResourceRow {
  readonly name: string;
  readonly kind: string;
  readonly namespaced: boolean;
  readonly group?: string;
  readonly version?: string;
}

async function discovered(): Promise<Served[]> {
  const groups = (await call('admin', 'GET', '/apis')).body['groups'] as {
    readonly versions: readonly { readonly groupVersion: string }[];
  }[];
  const found: Served[] = [];
  for (const groupVersion of ['v1', ...groups.flatMap(({ versions }) => versions.map((one) => one.groupVersion))]) {
    const [group, version] = groupVersion === 'v1' ? ['', 'v1'] : groupVersion.split('/');
    const list = await call('admin', 'GET', group === '' ? '/api/v1' : `/apis/${groupVersion}`);
    for (const row of (list.body['resources'] ?? []) as readonly ResourceRow[]) {
      const [resource = '', subresource = ''] = row.name.split('/');
      const ofKind =
        row.group === undefined ? groupVersion : `${row.group === '' ? '' : `${row.group}/`}${row.version}`;
      found.push({
        group: group ?? '',
        version: version ?? '',
        resource,
        subresource,
        kind: row.kind,
        kindVersion: ofKind,
        namespaced: row.namespaced,
      });
    }
  }
  return found;
}

interface Target {
  readonly namespace: string;
  readonly name: string;
}

function pathOf(served: Served, { namespace, name }: Target): { readonly collection: string; readonly object: string } {
  const root = served.group === '' ? '/api/v1' : `/apis/${served.group}/${served.version}`;
  const collection = `${root}${served.namespaced ? `/namespaces/${namespace}` : ''}/${served.resource}`;
  const object = `${collection}/${name}${served.subresource === '' ? '' : `/${served.subresource}`}`;
  return { collection, object };
}

const VERBS = ['get', 'list', 'watch', 'create', 'update', 'patch', 'apply', 'delete', 'deletecollection'] as const;
/** Other forms of a verb: of all namespaces, by the older path of watches, below a proxy, by a WebSocket. */
const FORMS = ['list of all', 'watch of all', 'watch by path', 'get below', 'get by upgrade'] as const;
type Verb = (typeof VERBS)[number] | (typeof FORMS)[number];

const STREAMS: ReadonlySet<string> = new Set(['exec', 'attach', 'portforward', 'proxy']);

function verbsOf({ namespaced, subresource }: Served): readonly Verb[] {
  if (subresource !== '') return STREAMS.has(subresource) ? [...VERBS, 'get below', 'get by upgrade'] : VERBS;
  return namespaced ? [...VERBS, 'list of all', 'watch of all', 'watch by path'] : [...VERBS, 'watch by path'];
}

/** Returns the status of a request for a WebSocket. */
function upgrade(user: User, path: string): Promise<Answer> {
  const { hostname, port } = new URL(plane.url);
  const headers = {
    ...{ authorization: `Bearer ${user}-token`, connection: 'Upgrade', upgrade: 'websocket' },
    ...{ 'sec-websocket-version': '13', 'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==' },
    'sec-websocket-protocol': 'v5.channel.k8s.io',
  };
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path, headers, ca: plane.ca, agent: false }, (response) => {
      response.resume();
      resolve({ status: response.statusCode ?? 0, body: {} });
    });
    sent.on('upgrade', ({ statusCode = 0 }, socket) => {
      socket.destroy();
      resolve({ status: statusCode, body: {} });
    });
    sent.on('error', reject);
    sent.end();
  });
}
const LABELS = { labels: { taken: 'yes' } };

/** Sends one request for the verb. `body` is the body of a create or update. */
function attempt(user: User, verb: Verb, served: Served, target: Target, body: object): Promise<Answer> {
  const { collection, object } = pathOf(served, target);
  const everywhere = collection.replace(/\/namespaces\/[^/]+\/(?=[^/]+$)/, '/');
  switch (verb) {
    case 'get':
      return call(user, 'GET', object);
    case 'list':
      return call(user, 'GET', served.subresource === '' ? collection : `${object}?limit=1`);
    case 'watch':
      return call(user, 'GET', `${served.subresource === '' ? collection : object}?watch=1&timeoutSeconds=1`);
    case 'create':
      return call(user, 'POST', served.subresource === '' ? collection : object, body);
    case 'update':
      return call(user, 'PUT', object, body);
    case 'patch':
      return call(user, 'PATCH', object, { metadata: LABELS }, 'application/merge-patch+json');
    case 'apply':
      return call(
        user,
        'PATCH',
        `${object}?fieldManager=thief&force=true`,
        { apiVersion: served.kindVersion, kind: served.kind, metadata: { name: target.name, ...LABELS } },
        'application/apply-patch+yaml',
      );
    case 'delete':
      return call(user, 'DELETE', object);
    case 'deletecollection':
      return call(user, 'DELETE', served.subresource === '' ? collection : object);
    case 'list of all':
      return call(user, 'GET', everywhere);
    case 'watch of all':
      return call(user, 'GET', `${everywhere}?watch=1&timeoutSeconds=1`);
    case 'watch by path':
      return call(
        user,
        'GET',
        `${object.replace(/^(\/api|\/apis\/[^/]+)\/[^/]+/, '$&/watch')}?watch=1&timeoutSeconds=1`,
      );
    case 'get below':
      return call(user, 'GET', `${object}/below`);
    case 'get by upgrade':
      return upgrade(user, `${object}?command=id&stdin=true&container=c`);
  }
}

interface Tally {
  tried: number;
  refused: number;
  readonly let: string[];
}

const shown = (verb: Verb, { group, resource, subresource }: Served): string =>
  `${verb.split(' ')[0]} ${resource}${group === '' ? '' : `.${group}`}${subresource === '' ? '' : `/${subresource}`}`;

const NODE_B = { apiVersion: 'v1', kind: 'Node', name: 'b' };
/** The objects of node b, by resource. */
const OF_NODE_B: Readonly<Record<string, Target>> = {
  nodes: { namespace: '', name: 'b' },
  pods: { namespace: 'ns-b', name: 'pod-b' },
  secrets: { namespace: 'ns-b', name: 'secret-b' },
  configmaps: { namespace: 'ns-b', name: 'map-b' },
  serviceaccounts: { namespace: 'ns-b', name: 'account-b' },
  persistentvolumeclaims: { namespace: 'ns-b', name: 'claim-b' },
  persistentvolumes: { namespace: '', name: 'volume-b' },
  resourceclaims: { namespace: 'ns-b', name: 'devices-b' },
  leases: { namespace: 'kube-node-lease', name: 'b' },
  csinodes: { namespace: '', name: 'b' },
  resourceslices: { namespace: '', name: 'slice-b' },
  volumeattachments: { namespace: '', name: 'attachment-b' },
};
const OTHERS: Target = { namespace: 'ns-b', name: 'x' };

const podSpec = {
  nodeName: 'b',
  serviceAccountName: 'account-b',
  automountServiceAccountToken: false,
  containers: [
    { name: 'c', image: 'i', envFrom: [{ secretRef: { name: 'secret-b' } }, { configMapRef: { name: 'map-b' } }] },
  ],
  volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'claim-b' } }],
  resourceClaims: [{ name: 'd', resourceClaimName: 'devices-b' }],
};
const sliceSpec = {
  nodeName: 'b',
  driver: 'd.example.com',
  pool: { name: 'b', generation: 1, resourceSliceCount: 1 },
  devices: [],
};
const FIXTURES: readonly (readonly [path: string, object: Readonly<Record<string, unknown>>])[] = [
  ...['ns-b', 'alice', 'bob'].map((name) => ['/api/v1/namespaces', { metadata: { name } }] as const),
  ...['a', 'b'].map((name) => ['/api/v1/nodes', { metadata: { name } }] as const),
  ['/api/v1/namespaces/ns-b/serviceaccounts', { metadata: { name: 'account-b' } }],
  ['/api/v1/namespaces/ns-b/secrets', { metadata: { name: 'secret-b' }, stringData: { key: 'of node b' } }],
  ['/api/v1/namespaces/ns-b/configmaps', { metadata: { name: 'map-b' }, data: { key: 'of node b' } }],
  [
    '/api/v1/persistentvolumes',
    {
      metadata: { name: 'volume-b' },
      spec: {
        capacity: { storage: '1Gi' },
        accessModes: ['ReadWriteOnce'],
        claimRef: { apiVersion: 'v1', kind: 'PersistentVolumeClaim', namespace: 'ns-b', name: 'claim-b' },
        csi: { driver: 'd', volumeHandle: 'h', nodeStageSecretRef: { namespace: 'ns-b', name: 'secret-b' } },
      },
    },
  ],
  [
    '/api/v1/namespaces/ns-b/persistentvolumeclaims',
    {
      metadata: { name: 'claim-b' },
      spec: { volumeName: 'volume-b', accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } },
    },
  ],
  [
    '/apis/resource.k8s.io/v1/namespaces/ns-b/resourceclaims',
    {
      metadata: { name: 'devices-b' },
      spec: { devices: { requests: [{ name: 'r', exactly: { deviceClassName: 'c.example.com' } }] } },
    },
  ],
  ['/apis/resource.k8s.io/v1/resourceslices', { metadata: { name: 'slice-b' }, spec: sliceSpec }],
  [
    '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases',
    { metadata: { name: 'b' }, spec: { holderIdentity: 'b' } },
  ],
  ['/apis/storage.k8s.io/v1/csinodes', { metadata: { name: 'b' }, spec: { drivers: [] } }],
  [
    '/apis/storage.k8s.io/v1/volumeattachments',
    {
      metadata: { name: 'attachment-b' },
      spec: { attacher: 'd', nodeName: 'b', source: { persistentVolumeName: 'volume-b' } },
    },
  ],
  ['/api/v1/namespaces/ns-b/pods', { metadata: { name: 'pod-b' }, spec: podSpec }],
  ...['alice', 'bob'].map(
    (name) =>
      [
        `/apis/rbac.authorization.k8s.io/v1/namespaces/${name}/rolebindings`,
        {
          metadata: { name: 'edit' },
          roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'edit' },
          subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name }],
        },
      ] as const,
  ),
  ...['alice', 'bob'].flatMap((name) => [
    [`/api/v1/namespaces/${name}/configmaps`, { metadata: { name: 'x' }, data: { of: name } }] as const,
    [`/api/v1/namespaces/${name}/secrets`, { metadata: { name: 'x' }, stringData: { of: name } }] as const,
    [`/api/v1/namespaces/${name}/serviceaccounts`, { metadata: { name: 'x' } }] as const,
    [
      `/api/v1/namespaces/${name}/pods`,
      { metadata: { name: 'x' }, spec: { serviceAccountName: 'x', containers: [{ name: 'c', image: 'i' }] } },
    ] as const,
  ]),
];

before(async () => {
  const tokens = join(directory, 'tokens.csv');
  writeFileSync(
    tokens,
    [
      'admin-token,admin,1,"system:masters"',
      'node-a-token,system:node:a,2,"system:nodes"',
      'node-b-token,system:node:b,3,"system:nodes"',
      'alice-token,alice,4',
      'bob-token,bob,5',
    ].join('\n'),
  );
  plane = await startControlPlane({
    memory: true,
    flags: {
      tokenAuthFile: tokens,
      // This controller sets the rules of the role `edit`.
      controllers: ['clusterrole-aggregation-controller'],
      scheduler: false,
      // Versions that are off by default as well.
      runtimeConfig: { 'api/all': 'true' },
    },
  });
  for (const [path, object] of FIXTURES) {
    const { status, body } = await call('admin', 'POST', path, object);
    assert.equal(status, 201, `${path}: ${JSON.stringify(body)}`);
  }
});

before(async () => {
  await until(
    'the rules of edit',
    async () => (await call('alice', 'GET', '/api/v1/namespaces/alice/pods')).status === 200,
  );
});

after(async () => {
  agent.destroy();
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Returns all objects that the users attack, as the administrator reads them. */
async function everything(paths: readonly string[]): Promise<Record<string, unknown>> {
  const found: Record<string, unknown> = {};
  for (const path of paths) found[path] = (await call('admin', 'GET', path)).body;
  return found;
}

/** What every node may do to objects that belong to no node. */
const NODES_MAY: ReadonlySet<string> = new Set([
  ...['get', 'list', 'watch'].map((verb) => `${verb} services`),
  'get endpoints',
  ...['create', 'update', 'patch', 'apply'].flatMap((verb) => [`${verb} events`, `${verb} events.events.k8s.io`]),
  'create tokenreviews.authentication.k8s.io',
  'create selfsubjectreviews.authentication.k8s.io',
  ...['localsubjectaccessreviews', 'subjectaccessreviews', 'selfsubjectaccessreviews', 'selfsubjectrulesreviews'].map(
    (resource) => `create ${resource}.authorization.k8s.io`,
  ),
  ...['get', 'list', 'watch'].flatMap((verb) =>
    [
      'certificatesigningrequests.certificates.k8s.io',
      'clustertrustbundles.certificates.k8s.io',
      'csidrivers.storage.k8s.io',
      'runtimeclasses.node.k8s.io',
    ].map((resource) => `${verb} ${resource}`),
  ),
  'create certificatesigningrequests.certificates.k8s.io',
]);

/** Returns a body that passes every check except the one of its owner. */
function bodyOfNodeB(
  served: Served,
  current: Readonly<Record<string, unknown>>,
  uids: Readonly<Record<string, string>>,
) {
  const base = { apiVersion: served.kindVersion, kind: served.kind };
  const target = OF_NODE_B[served.resource] ?? OTHERS;
  switch (`${served.resource}/${served.subresource}`) {
    case 'serviceaccounts/token': {
      const boundObjectRef = { apiVersion: 'v1', kind: 'Pod', name: 'pod-b', uid: uids['pod-b'] };
      return { ...base, spec: { audiences: [], boundObjectRef } };
    }
    case 'pods/eviction':
      return { ...base, metadata: { name: 'pod-b', namespace: 'ns-b' } };
    case 'podcertificaterequests/':
      return {
        ...base,
        metadata: { name: 'x' },
        spec: { nodeName: 'b', nodeUID: uids['b'], podName: 'pod-b', podUID: uids['pod-b'] },
      };
    default: {
      const metadata = (current['metadata'] ?? { name: target.name }) as Readonly<Record<string, unknown>>;
      return { ...current, ...base, metadata: { ...metadata, ...LABELS } };
    }
  }
}

/** Returns the body of a create: an object of node b with an unused name. */
function created(served: Served, body: Readonly<Record<string, unknown>>, uids: Readonly<Record<string, string>>) {
  if (served.subresource !== '') return body;
  const name = 'another-of-b';
  switch (served.resource) {
    case 'pods': {
      const ownerReferences = [{ ...NODE_B, uid: uids['b'], controller: true }];
      const metadata = { name, annotations: { 'kubernetes.io/config.mirror': 'x' }, ownerReferences };
      return {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata,
        spec: { nodeName: 'b', containers: podSpec.containers.map(({ name: one, image }) => ({ name: one, image })) },
      };
    }
    default:
      return { ...body, metadata: { name } };
  }
}

test('a node is refused every verb on every resource and subresource of another node', async (t) => {
  const table = await discovered();
  const paths = Object.entries(OF_NODE_B).flatMap(([resource, target]) =>
    table.filter((one) => one.resource === resource && one.subresource === '').map((one) => pathOf(one, target).object),
  );
  const uidOf = async (path: string): Promise<string> =>
    ((await call('admin', 'GET', path)).body['metadata'] as { readonly uid: string }).uid;
  const uids = { b: await uidOf('/api/v1/nodes/b'), 'pod-b': await uidOf('/api/v1/namespaces/ns-b/pods/pod-b') };
  const before = await everything(paths);
  const tally: Tally = { tried: 0, refused: 0, let: [] };
  const used = new Set<string>();
  for (const served of table) {
    const target = OF_NODE_B[served.resource] ?? OTHERS;
    const main = { ...served, subresource: '' };
    const current =
      OF_NODE_B[served.resource] === undefined ? {} : (await call('admin', 'GET', pathOf(main, target).object)).body;
    const body = bodyOfNodeB(served, current, uids);
    for (const verb of verbsOf(served)) {
      tally.tried += 1;
      const sent = verb === 'create' ? created(served, body, uids) : body;
      const { status } = await attempt('node-a', verb, served, target, sent);
      if (status === 403) tally.refused += 1;
      else if (NODES_MAY.has(shown(verb, served))) used.add(shown(verb, served));
      else tally.let.push(`${verb}: ${shown(verb, served)} -> ${status}`);
    }
  }
  for (const [resource, root] of [
    ['pods', '/api/v1'],
    ['resourceslices', '/apis/resource.k8s.io/v1'],
  ] as const) {
    for (const [method, query] of [
      ['GET', ''],
      ['GET', '?watch=1&'],
      ['DELETE', ''],
    ] as const) {
      for (const selector of ['spec.nodeName%3Db', 'spec.nodeName!%3Da', 'spec.nodeName%3Da,spec.nodeName%3Db', '']) {
        tally.tried += 1;
        const path = `${root}/${resource}${query === '' ? '?' : query}fieldSelector=${selector}`;
        const { status, body } = await call('node-a', method, path);
        // A selector that also contains the node's own name matches nothing of another node.
        const isEmpty =
          status === 200 && ((body['items'] ?? []) as readonly unknown[]).length === 0 && selector.includes('3Da,');
        if (status === 403 || status === 405 || isEmpty) tally.refused += 1;
        else tally.let.push(`${method} ${path} -> ${status}`);
      }
    }
  }
  t.diagnostic(
    `${tally.tried} requests of a node, ${tally.refused} refused, ${tally.tried - tally.refused} of the rights of every node`,
  );
  assert.deepEqual(tally.let, []);
  assert.ok(tally.refused > 1000, String(tally.refused));
  assert.deepEqual(
    [...NODES_MAY].filter((one) => !used.has(one)),
    [],
    'nodes are refused these',
  );
  assert.deepEqual(await everything(paths), before);
});

test('the node itself may read what its pod names, so the refusals of the other mean something', async () => {
  for (const [resource, root] of [
    ['pods', '/api/v1'],
    ['secrets', '/api/v1'],
    ['configmaps', '/api/v1'],
    ['serviceaccounts', '/api/v1'],
    ['persistentvolumeclaims', '/api/v1'],
    ['persistentvolumes', '/api/v1'],
    ['nodes', '/api/v1'],
    ['resourceclaims', '/apis/resource.k8s.io/v1'],
    ['resourceslices', '/apis/resource.k8s.io/v1'],
    ['leases', '/apis/coordination.k8s.io/v1'],
    ['csinodes', '/apis/storage.k8s.io/v1'],
    ['volumeattachments', '/apis/storage.k8s.io/v1'],
  ] as const) {
    const { namespace, name } = OF_NODE_B[resource] ?? OTHERS;
    const path = `${root}${namespace === '' ? '' : `/namespaces/${namespace}`}/${resource}/${name}`;
    assert.equal((await call('node-b', 'GET', path)).status, 200, path);
    assert.equal((await call('node-a', 'GET', path)).status, 403, path);
  }
});

/** What every user may request about itself. */
const ANYBODY_MAY: ReadonlySet<string> = new Set([
  'create selfsubjectreviews.authentication.k8s.io',
  'create selfsubjectaccessreviews.authorization.k8s.io',
  'create selfsubjectrulesreviews.authorization.k8s.io',
]);

for (const [user, other] of [
  ['alice', 'bob'],
  ['bob', 'alice'],
] as const) {
  test(`${user}, who may edit one namespace, is refused every verb on everything in that of ${other} and of the cluster`, async (t) => {
    const table = await discovered();
    const paths = ['configmaps', 'secrets', 'serviceaccounts', 'pods'].map(
      (resource) => `/api/v1/namespaces/${other}/${resource}/x`,
    );
    const before = await everything(paths);
    const tally: Tally = { tried: 0, refused: 0, let: [] };
    for (const served of table) {
      // For namespaces, the name is that of the other user's namespace.
      const target = { namespace: other, name: served.resource === 'namespaces' ? other : 'x' };
      const body = { apiVersion: served.kindVersion, kind: served.kind, metadata: { name: 'y', ...LABELS } };
      for (const verb of verbsOf(served)) {
        tally.tried += 1;
        const { status } = await attempt(user, verb, served, target, body);
        if (status === 403) tally.refused += 1;
        else if (!ANYBODY_MAY.has(shown(verb, served))) tally.let.push(`${shown(verb, served)} -> ${status}`);
      }
    }
    t.diagnostic(
      `${tally.tried} requests of ${user}, ${tally.refused} refused, ${tally.tried - tally.refused} of the rights of everybody`,
    );
    assert.deepEqual(tally.let, []);
    assert.ok(tally.refused > 1000, String(tally.refused));
    assert.deepEqual(await everything(paths), before);
    let own = 0;
    for (const served of table.filter(({ namespaced, subresource }) => namespaced && subresource === '')) {
      const { status } = await attempt(user, 'list', served, { namespace: user, name: 'x' }, {});
      if (status === 200) own += 1;
    }
    assert.ok(own > 20, `${user} lists ${own} resources of the own namespace`);
  });
}
