/** Tests misbehaving webhooks, and webhooks that authenticate and authorize. */
import assert from 'node:assert/strict';
import { type EventEmitter, once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import type { Service } from '../../../../../api/kinds/kinds.ts';
import { endpointSlices, services } from '../../../../../api/client/resources.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';
import { endpointOf } from '../../../../../controlplane/security/admission/webhook/endpoint.ts';
import {
  WebhookClient,
  withTimeout,
  type WebhookEndpoint,
} from '../../../../../controlplane/security/webhooks/webhook-client.ts';
import { cachedTokens } from '../../../../../controlplane/security/authentication/cached-token.ts';
import { webhookTokenAuthenticator } from '../../../../../controlplane/security/authentication/webhook-token.ts';
import type { AuthorizationAttributes } from '../../../../../controlplane/security/authorization/authorization.ts';
import { webhookAuthorizer } from '../../../../../controlplane/security/authorization/webhook.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

let server: Server;
let answer: (message: IncomingMessage, response: ServerResponse, body: Record<string, never>) => void;
let calls = 0;
const client = new WebhookClient('test');

before(async () => {
  server = createServer((message, response) => {
    let text = '';
    message.on('data', (chunk: Buffer) => (text += chunk.toString()));
    message.on('end', () => {
      calls += 1;
      answer(message, response, JSON.parse(text === '' ? '{}' : text) as Record<string, never>);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});

after(() => {
  client.close();
  server.closeAllConnections();
  server.close();
});

const endpoint = (): WebhookEndpoint => ({
  url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`),
  purpose: 'webhook-url',
});
const call = (signal = AbortSignal.timeout(60_000)) => client.call(endpoint(), { method: 'POST', body: '{}', signal });

test('a call to a hanging webhook fails at the timeout', async () => {
  answer = () => undefined;
  await assert.rejects(call(withTimeout(30)), { name: 'TimeoutError' });
});

test('an answer of ten megabytes is broken off', async () => {
  answer = (_message, response) => response.end(Buffer.alloc(10 * 1024 * 1024, 'x'));
  await assert.rejects(call(), { code: 'too-large' });
});

test('a truncated response is an error', async () => {
  answer = (_message, response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('{"kind":', () => response.destroy());
  };
  await assert.rejects(call(), { code: 'unreachable' });
});

test('a call is not ended by calls of many other webhooks, and its connection closes after it', async () => {
  const waiting = Promise.withResolvers<ServerResponse>();
  const requests: IncomingMessage[] = [];
  answer = (message, response) => {
    requests.push(message);
    if (message.url === '/slow') waiting.resolve(response);
    else response.end('{}');
  };
  const body = { method: 'POST', body: '{}', signal: AbortSignal.timeout(60_000) } as const;
  const many = new WebhookClient('test');
  const slow = many.call({ ...endpoint(), url: new URL('/slow', endpoint().url) }, body);
  const response = await waiting.promise;
  for (let i = 0; i < 100; i++) await many.call({ ...endpoint(), serverName: `other-${i}.example.com` }, body);
  const closed = once(response.socket as EventEmitter, 'close');
  response.end('{"slow":true}');
  assert.equal((await slow).body.toString(), '{"slow":true}');
  await closed;
  const open = new Set(requests.map(({ socket }) => socket).filter((socket) => !socket.destroyed));
  assert.ok(open.size <= 64, `${open.size} connections`);
  many.close();
});

test('an answer that switches protocols fails at once, and is not waited for beyond the timeout', async () => {
  answer = (_message, response) => {
    response.socket?.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd\r\n\r\n');
  };
  await assert.rejects(call(), { code: 'unreachable' });
});

test('a redirect is a response, and is not followed', async () => {
  let followed = false;
  answer = (message, response) => {
    if (message.url !== '/hook') followed = true;
    response.writeHead(302, { location: '/elsewhere' }).end();
  };
  assert.equal((await call()).status, 302);
  assert.equal(followed, false);
});

const endpointTo = (spec: Service['spec'] | undefined, addresses: readonly string[] = []) => {
  const metadata = { name: 's', namespace: 'n', labels: { 'kubernetes.io/service-name': 's' } };
  const slice = { metadata, ports: [{ port: 8443 }], endpoints: [{ addresses }], addressType: 'IPv4' };
  const listers = fixedListers([
    ...(spec === undefined ? [] : [{ resource: services, object: { metadata, spec } }]),
    ...(addresses.length === 0 ? [] : [{ resource: endpointSlices, object: slice }]),
  ]);
  const found = { services: listers.of(services), endpointSlices: listers.of(endpointSlices), random: () => 0 };
  return endpointOf({ service: { namespace: 'n', name: 's' } }, 5, found);
};
const called = (to: WebhookEndpoint) =>
  client.call(to, { method: 'POST', body: '{}', signal: AbortSignal.timeout(60_000) });
const serviceTo = (externalName: string) => endpointTo({ type: 'ExternalName', externalName });

test('a service is called at an address of its endpoints, by its own name', async () => {
  const found = await endpointTo({ ports: [{ port: 443 }] }, ['10.1.2.3']);
  assert.deepEqual(found.connectTo, { host: '10.1.2.3', port: 8443 });
  assert.equal(found.serverName, 's.n.svc');
});

for (const address of ['127.0.0.1', '169.254.169.254', '::1', '0.0.0.0']) {
  test(`an endpoint ${address} of a service is not called`, async () =>
    assert.rejects(called(await endpointTo({ ports: [{ port: 443 }] }, [address])), /address not allowed/));
}

for (const [why, asked, reason] of [
  ['that is not there', () => endpointTo(undefined), /^service "s" not found$/],
  ['without the port', () => endpointTo({ ports: [{ port: 80 }] }), /^no service port 443 found for service "s"$/],
  ['without endpoints', () => endpointTo({ ports: [{ port: 443 }] }), /^no endpoints available for service "s"$/],
] as const) {
  test(`a service ${why} is reported`, () => assert.rejects(asked(), (error: Error) => reason.test(error.message)));
}

test('a service that leads to the metadata address, or to a name of this host, is not called', async () => {
  const before = calls;
  await assert.rejects(
    called(await serviceTo('169.254.169.254')),
    /address not allowed: 169.254.169.254 is a link-local/,
  );
  await assert.rejects(
    called(await serviceTo('localhost')),
    /address not allowed: .* of localhost is a loopback address/,
  );
  const { url } = endpoint();
  const connectTo = { host: 'localhost', port: Number(url.port) };
  await assert.rejects(called({ url, purpose: 'webhook-service', connectTo }), /address not allowed/);
  await called({ url, purpose: 'webhook-url', connectTo });
  assert.equal(calls, before + 1);
});

const json = (response: ServerResponse, value: object): void => {
  response.setHeader('content-type', 'application/json').end(JSON.stringify(value));
};

for (const version of ['v1', 'v1beta1'] as const) {
  test(`a token is reviewed in ${version}, and an answer in another version counts for nothing`, async () => {
    const tokens = webhookTokenAuthenticator({
      endpoint: () => Promise.resolve(endpoint()),
      client,
      version,
      apiAudiences: ['api'],
      clock: new FakeClock(),
    });
    answer = (_message, response, body) =>
      json(response, {
        apiVersion: body['apiVersion'],
        kind: 'TokenReview',
        status:
          body['spec']?.['token'] === 'good'
            ? { authenticated: true, user: { username: 'ann', groups: ['devs'] }, audiences: ['api'] }
            : { authenticated: false },
      });
    assert.equal((await tokens.authenticateToken('good', []))?.user.name, 'ann');
    assert.equal(await tokens.authenticateToken('bad', []), undefined);
    answer = (_message, response) =>
      json(response, {
        apiVersion: 'authentication.k8s.io/v2',
        kind: 'TokenReview',
        status: { authenticated: true, user: { username: 'root' } },
      });
    await assert.rejects(async () => tokens.authenticateToken('good', []));
  });
}

test('a webhook that answers without audiences vouches for the API server alone', async () => {
  const tokens = webhookTokenAuthenticator({
    endpoint: () => Promise.resolve(endpoint()),
    client,
    version: 'v1',
    apiAudiences: ['api'],
    clock: new FakeClock(),
  });
  answer = (_message, response, body) =>
    json(response, {
      apiVersion: body['apiVersion'],
      kind: 'TokenReview',
      status: { authenticated: true, user: { username: 'ann' } },
    });
  assert.deepEqual((await tokens.authenticateToken('good', []))?.audiences, ['api']);
  assert.deepEqual((await tokens.authenticateToken('good', ['vault', 'api']))?.audiences, ['api']);
  assert.equal(await tokens.authenticateToken('good', ['vault']), undefined);
});

test('a client that floods a token webhook with wrong tokens keeps other clients from it for one call at most', async () => {
  const asked: string[] = [];
  const ends: (() => void)[] = [];
  const slow = new (class extends WebhookClient {
    override async call(...[, { body = '' }]: Parameters<WebhookClient['call']>) {
      const { spec } = JSON.parse(body) as { spec: { token: string } };
      asked.push(spec.token);
      await new Promise<void>((resolve) => ends.push(resolve));
      const user = { username: 'ann' };
      const review = {
        apiVersion: 'authentication.k8s.io/v1',
        kind: 'TokenReview',
        status: { authenticated: spec.token === 'good', user },
      };
      return { status: 200, contentType: 'application/json', body: Buffer.from(JSON.stringify(review)) };
    }
  })('test');
  const reviewed = webhookTokenAuthenticator({
    ...{ endpoint: () => Promise.resolve(endpoint()), client: slow, version: 'v1', apiAudiences: [] },
    clock: new FakeClock(),
  });
  const ttls = { successTtlMs: 0, failureTtlMs: 0 };
  const tokens = cachedTokens(cachedTokens(reviewed, { clock: new FakeClock(), ...ttls }), {
    ...{ clock: new FakeClock(), ...ttls },
  });
  const send = async (token: string, remoteAddress: string) =>
    tokens.authenticateToken(token, [], { remoteAddress, peerCertificate: undefined });
  const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  let refused = 0;
  for (let i = 0; i < 3000; i++) send(`wrong-${i}`, '192.0.2.1').catch(() => (refused += 1));
  await settle();
  assert.equal(asked.length, 64);
  assert.equal(refused, 3000 - 64 - 1024);
  const good = send('good', '192.0.2.2');
  await settle();
  ends.shift()?.();
  await settle();
  assert.equal(asked.at(-1), 'good');
  ends.pop()?.();
  assert.equal((await good)?.user.name, 'ann');
});

const wanted: AuthorizationAttributes = {
  user: { name: 'ann', groups: [] },
  verb: 'get',
  isResourceRequest: true,
  group: '',
  version: 'v1',
  resource: 'pods',
  subresource: '',
  namespace: 'n',
  name: 'p',
  path: '/api/v1/namespaces/n/pods/p',
};

test('decisions of a webhook are kept for their time, allowed longer than not', async () => {
  const clock = new FakeClock();
  const authorizer = webhookAuthorizer({
    name: 'hook',
    endpoint: () => Promise.resolve(endpoint()),
    client,
    version: 'v1',
    authorizedTtlMs: 300_000,
    unauthorizedTtlMs: 30_000,
    clock,
  });
  answer = (_message, response, body) =>
    json(response, {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      status: body['spec']?.['user'] === 'ann' ? { allowed: true, reason: 'fine' } : { allowed: false, denied: true },
    });
  const ask = async (name: string) => (await authorizer.authorize({ ...wanted, user: { name, groups: [] } })).decision;
  calls = 0;
  assert.equal(await ask('ann'), 'allow');
  assert.equal(await ask('bob'), 'deny');
  assert.equal(await ask('ann'), 'allow');
  assert.equal(await ask('bob'), 'deny');
  assert.equal(calls, 2);
  await clock.advance(60_000);
  assert.equal(await ask('ann'), 'allow');
  assert.equal(await ask('bob'), 'deny');
  assert.equal(calls, 3);
});

for (const [policy, decision] of [
  ['NoOpinion', 'no-opinion'],
  ['Deny', 'deny'],
] as const) {
  test(`a webhook that fails is ${decision} under failure policy ${policy}`, async () => {
    answer = (_message, response) => response.writeHead(400).end();
    const authorizer = webhookAuthorizer({
      name: 'hook',
      endpoint: () => Promise.resolve(endpoint()),
      client,
      version: 'v1',
      authorizedTtlMs: 0,
      unauthorizedTtlMs: 0,
      failurePolicy: policy,
      clock: new FakeClock(),
    });
    const made = await authorizer.authorize(wanted);
    assert.equal(made.decision, decision);
    assert.ok(made.evaluationError);
  });
}
