/** Tests the filters of the handler chain, through the port of the server. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Authenticator } from '../../../../controlplane/security/authentication/authentication.ts';
import type {
  AuthorizationAttributes,
  Authorizer,
} from '../../../../controlplane/security/authorization/authorization.ts';
import type { Rest } from '../../../../controlplane/model/rest.ts';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { startFakeServer, type FakeServer } from '../../../fakes/fake-server.ts';
import type { ServerOptions } from '../../../../controlplane/server/server.ts';

const PATH = '/api/v1/namespaces/n/configmaps/a';

async function withServer(
  options: Partial<ServerOptions>,
  run: (fake: FakeServer, resource: FakeResource) => Promise<void>,
): Promise<void> {
  const resource = new FakeResource(fakeInfo('configmaps', 'ConfigMap'));
  resource.put('n', { metadata: { name: 'a' } });
  const fake = await startFakeServer(new FakeCatalog([resource]), options);
  try {
    await run(fake, resource);
  } finally {
    await fake.close();
  }
}

/** Allows requests in the list, as `verb resource/name` or `verb resource`. */
function allowing(...allowed: string[]): Authorizer {
  return {
    authorize({ verb, resource, subresource, name, user }: AuthorizationAttributes) {
      const what = subresource === '' ? resource : `${resource}/${subresource}`;
      const isAllowed =
        user.name === 'root' || allowed.includes(`${verb} ${what} ${name}`) || allowed.includes(`${verb} ${what}`);
      return { decision: isAllowed ? 'allow' : 'no-opinion', reason: '' };
    },
  };
}

const messageOf = (text: string): string => (JSON.parse(text) as { message: string }).message;

test('a refusal names the user, the verb and the resource', async () => {
  await withServer({ authorizer: allowing() }, async (fake) => {
    const answer = await fake.request('GET', PATH, { authorization: 'Bearer ann' });
    assert.equal(answer.status, 403);
    assert.equal(answer.headers['x-content-type-options'], 'nosniff');
    assert.equal(
      messageOf(answer.text),
      'configmaps "a" is forbidden: User "ann" cannot get resource "configmaps" in API group "" in the namespace "n"',
    );
    const path = await fake.request('GET', '/version', {});
    assert.equal(messageOf(path.text), 'forbidden: User "system:anonymous" cannot get path "/version"');
  });
});

test('impersonation needs the permission for an empty value of a group or an extra field as for others', async () => {
  await withServer({ authorizer: allowing('impersonate users jane', 'get configmaps') }, async (fake) => {
    for (const header of ['impersonate-extra-scopes', 'impersonate-group']) {
      const headers = { authorization: 'Bearer ann', 'impersonate-user': 'jane', [header]: '' };
      for (const answer of [await fake.request('GET', PATH, headers), await fake.request1('GET', PATH, headers)])
        assert.deepEqual([answer.status, answer.headers['x-content-type-options']], [403, 'nosniff'], header);
    }
  });
});

test('impersonation checks the constrained modes first and names the request that it refuses', async () => {
  await withServer({ authorizer: allowing() }, async (fake) => {
    const as = (headers: Record<string, string | string[]>) =>
      fake.request('GET', PATH, { authorization: 'Bearer ann', ...headers });
    const jane = await as({ 'impersonate-user': 'jane' });
    assert.match(messageOf(jane.text), /User "ann" cannot impersonate-on:user-info:get resource "configmaps"/);
    const account = await as({ 'impersonate-user': 'system:serviceaccount:n:robot' });
    assert.match(messageOf(account.text), /cannot impersonate-on:serviceaccount:get resource "configmaps"/);
    const node = await as({ 'impersonate-user': 'system:node:n1', 'impersonate-group': 'system:nodes' });
    assert.match(messageOf(node.text), /users "system:node:n1" is forbidden: .* cannot impersonate resource "users"/);
    const nobody = await as({ 'impersonate-group': 'devs' });
    assert.equal(nobody.status, 400);
  });
});

test('after the older verb has allowed once, refusals are in its words', async () => {
  await withServer({ authorizer: allowing('impersonate users jane', 'get configmaps') }, async (fake) => {
    const as = (user: string) => fake.request('GET', PATH, { authorization: 'Bearer ann', 'impersonate-user': user });
    assert.equal((await as('jane')).status, 200);
    assert.match(
      messageOf((await as('Jane')).text),
      /users "Jane" is forbidden: User "ann" cannot impersonate resource "users"/,
    );
  });
});

test('a narrow mode needs both of its permissions', async () => {
  const both = ['impersonate-on:user-info:get configmaps a', 'impersonate:user-info users kim', 'get configmaps'];
  await withServer({ authorizer: allowing(...both) }, async (fake) => {
    const answer = await fake.request('GET', PATH, { authorization: 'Bearer ann', 'impersonate-user': 'kim' });
    assert.equal(answer.status, 200);
  });
  await withServer({ authorizer: allowing(...both.slice(0, 1)) }, async (fake) => {
    const answer = await fake.request('GET', PATH, { authorization: 'Bearer ann', 'impersonate-user': 'kim' });
    assert.match(
      messageOf(answer.text),
      /cannot impersonate:user-info resource "users" in API group "authentication.k8s.io"/,
    );
  });
});

test('a stream by GET needs the permission to create it as well', async () => {
  const allowed = ['get pods/exec', 'get pods/log', 'create pods/attach'];
  await withServer({ authorizer: allowing(...allowed) }, async (fake) => {
    const get = async (path: string): Promise<string> =>
      messageOf((await fake.request('GET', `/api/v1/namespaces/n/pods/p/${path}`, {})).text);
    assert.equal(await get('exec'), 'pods "p" is forbidden: ');
    assert.match(await get('attach'), /cannot get resource "pods\/attach"/);
    assert.match(await get('log'), /could not find/);
  });
});

test('an upgrade of the proxy to a node needs the permission to create it as well', async () => {
  await withServer({ authorizer: allowing('get nodes/proxy') }, async (fake) => {
    const get = async (headers: Record<string, string>): Promise<string> =>
      messageOf((await fake.request1('GET', '/api/v1/nodes/n1/proxy/exec/n/p/c?command=id', headers)).text);
    const upgrade = { connection: 'Upgrade', upgrade: 'websocket' };
    assert.match(await get(upgrade), /cannot create resource "nodes\/proxy"/);
    assert.doesNotMatch(await get({}), /cannot/);
  });
});

test('the legacy verb gives no groups of nodes', async () => {
  let seen: readonly string[] = [];
  const authorizer: Authorizer = {
    authorize({ verb, resource, user }: AuthorizationAttributes) {
      if (verb === 'get') seen = user.groups;
      const isAllowed = verb === 'get' || (verb === 'impersonate' && resource === 'users');
      return { decision: isAllowed ? 'allow' : 'no-opinion', reason: '' };
    },
  };
  await withServer({ authorizer }, async (fake) => {
    const headers = { authorization: 'Bearer ann', 'impersonate-user': 'system:node:n1' };
    assert.equal((await fake.request('GET', PATH, headers)).status, 200);
    assert.deepEqual(seen, ['system:authenticated']);
  });
});

/** What a caller may do who may impersonate every user in the mode `user-info`, and one of those users by the legacy verb. */
const USER_INFO = [
  'impersonate-on:user-info:get configmaps a',
  ...['users', 'groups', 'uids', 'userextras/', 'userextras/scopes', 'userextras/a.io/B', 'userextras/a.io/b'].map(
    (what) => `impersonate:user-info ${what}`,
  ),
  'get configmaps',
];
const neverGranted: readonly (readonly [string, string, RegExp])[] = [
  [
    'impersonate-group',
    'system:masters',
    /groups\.\S+ "system:masters" is .*: impersonating the system:masters group is/,
  ],
  ['impersonate-group', '', /impersonating the empty string group is not allowed/],
  ['impersonate-extra-scopes', 'x', /impersonating an invalid key in extra is not allowed: .*domain-prefixed path/],
  ['impersonate-extra-', 'x', /impersonating the empty string key in extra is not allowed/],
  ['impersonate-extra-a.io%2f%42', 'x', /impersonating a non-lowercase key in extra is not allowed: "a.io\/B"/],
  ['impersonate-extra-a.io%2fb', '', /impersonating the empty string value in extra is not allowed/],
];
for (const [header, value, message] of neverGranted) {
  test(`a constrained mode grants nobody ${header} ${JSON.stringify(value)}`, async () => {
    await withServer({ authorizer: allowing(...USER_INFO) }, async (fake) => {
      const kim = { authorization: 'Bearer ann', 'impersonate-user': 'kim' };
      const answer = await fake.request('GET', PATH, { ...kim, [header]: value });
      assert.equal(answer.status, 403);
      assert.match(messageOf(answer.text), message);
      const others = { 'impersonate-group': 'devs', 'impersonate-uid': '7', 'impersonate-extra-a.io%2fb': 'x' };
      assert.equal((await fake.request('GET', PATH, { ...kim, ...others })).status, 200);
    });
  });
}

test('a user that is named like a node without being one is impersonated as other users are', async () => {
  for (const [name, status] of [
    ['system:node:', 200],
    ['system:node:N_1', 200],
    ['system:node:n1', 403],
  ] as const) {
    await withServer({ authorizer: allowing(...USER_INFO) }, async (fake) => {
      const answer = await fake.request('GET', PATH, { authorization: 'Bearer ann', 'impersonate-user': name });
      assert.equal(answer.status, status, name);
    });
    const asNode = ['impersonate-on:arbitrary-node:get configmaps a', 'impersonate:arbitrary-node nodes'];
    await withServer({ authorizer: allowing(...asNode, 'get configmaps') }, async (fake) => {
      const answer = await fake.request('GET', PATH, { authorization: 'Bearer ann', 'impersonate-user': name });
      assert.equal(answer.status, status === 200 ? 403 : 200, name);
    });
  }
});

test('the headers of impersonation are UTF-8, and of several users the first one counts', async () => {
  const seen: object[] = [];
  const authorizer: Authorizer = {
    authorize({ verb, user }: AuthorizationAttributes) {
      if (verb === 'get') seen.push(user);
      return { decision: 'allow', reason: '' };
    },
  };
  const bytes = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');
  await withServer({ authorizer }, async (fake) => {
    const headers = {
      'impersonate-user': [bytes('jürgen'), 'root'],
      'impersonate-group': [bytes('größen'), 'a, b'],
      'impersonate-uid': ['7', '8'],
      'impersonate-extra-a.io%2fb': bytes('名'),
    };
    assert.equal((await fake.request1('GET', PATH, headers)).status, 200);
    const extra = { 'a.io/b': ['名'] };
    assert.deepEqual(seen, [{ name: 'jürgen', groups: ['größen', 'a, b', 'system:authenticated'], uid: '7', extra }]);
  });
});

test('only a service account is associated with the node in its token', async () => {
  const allowed = [
    'impersonate-on:associated-node:get configmaps a',
    'impersonate:associated-node nodes *',
    'get configmaps',
  ];
  const extra = { 'authentication.kubernetes.io/node-name': ['n1'] };
  for (const [name, status] of [
    ['ann', 403],
    ['system:serviceaccount:ns:agent', 200],
  ] as const) {
    const authenticator: Authenticator = { authenticate: () => ({ user: { name, groups: [], extra } }) };
    await withServer({ authorizer: allowing(...allowed), authenticator }, async (fake) => {
      const answer = await fake.request('GET', PATH, { 'impersonate-user': 'system:node:n1' });
      assert.equal(answer.status, status, name);
    });
  }
});

class SlowResource extends FakeResource {
  readonly gate = Promise.withResolvers<void>();
  waiting = 0;

  override async create(...args: Parameters<FakeResource['create']>): ReturnType<FakeResource['create']> {
    this.waiting += 1;
    await this.gate.promise;
    return super.create(...args);
  }
}

const create = (
  fake: FakeServer,
  name: string,
  groups = '',
): Promise<{ status: number; headers: Record<string, unknown> }> =>
  fake.request(
    'POST',
    '/api/v1/namespaces/n/configmaps',
    { authorization: `Bearer ann ${groups}`, 'content-type': 'application/json' },
    JSON.stringify({ metadata: { name } }),
  );

test('too many simultaneous writes are answered with Retry-After, but not those of administrators', async () => {
  const slow = new SlowResource(fakeInfo('configmaps', 'ConfigMap'));
  const fake = await startFakeServer(new FakeCatalog([slow]), { maxMutating: 1 });
  try {
    const first = create(fake, 'a');
    while (slow.waiting < 1) await new Promise((resolve) => setImmediate(resolve));
    const second = await create(fake, 'b');
    assert.equal(second.status, 429);
    assert.equal(second.headers['retry-after'], '1');
    const admin = create(fake, 'c', 'system:masters');
    while (slow.waiting < 2) await new Promise((resolve) => setImmediate(resolve));
    slow.gate.resolve();
    assert.deepEqual(
      (await Promise.all([first, admin])).map((answer) => answer.status),
      [201, 201],
    );
    assert.equal((await create(fake, 'd')).status, 201);
  } finally {
    await fake.close();
  }
});

test('a request that takes too long gets a 504', async () => {
  const slow = new SlowResource(fakeInfo('configmaps', 'ConfigMap'));
  const clock = new FakeClock();
  const fake = await startFakeServer(new FakeCatalog([slow]), { clock });
  try {
    const answer = create(fake, 'a');
    while (slow.waiting < 1) await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(60_000);
    assert.equal((await answer).status, 504);
    slow.gate.resolve();
  } finally {
    await fake.close();
  }
});

test('an unexpected failure is a 500 and the server lives on', async () => {
  const broken: Rest = {
    info: fakeInfo('secrets', 'Secret'),
    subresource: undefined,
    get: () => {
      throw new TypeError('a bug');
    },
  };
  const fake = await startFakeServer(new FakeCatalog([broken]));
  try {
    const answer = await fake.json('GET', '/api/v1/namespaces/n/secrets/a');
    assert.equal(answer.status, 500);
    assert.equal(answer.body['reason'], 'InternalError');
    assert.equal((await fake.json('GET', '/api/v1/namespaces/n/secrets/a')).status, 500);
  } finally {
    await fake.close();
  }
});
