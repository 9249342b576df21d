import assert from 'node:assert/strict';
import { generateKeyPairSync, X509Certificate } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { describe, it } from 'node:test';
import { accessMetrics } from '../../../../agent/server/access-metrics.ts';
import { type AccessOptions, createAccess, subresourcesOf } from '../../../../agent/server/access.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { newForbidden } from '../../../../api/meta/status-error.ts';
import { createCertificate } from '../../../../api/pki/certificate.ts';
import * as der from '../../../../api/pki/der.ts';
import type { DistinguishedName } from '../../../../api/pki/names.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

function setUp(more: Partial<AccessOptions> = {}) {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const asked: unknown[] = [];
  const granted = new Set<string>();
  const failure: { error?: Error } = {};
  client.intercept((call) => {
    if (failure.error !== undefined) throw failure.error;
    const spec = call.object?.['spec'] as {
      token?: string;
      resourceAttributes?: { subresource: string; verb: string };
    };
    asked.push(spec.token ?? `${spec.resourceAttributes?.verb} ${spec.resourceAttributes?.subresource}`);
    const status =
      spec.token === undefined
        ? { allowed: granted.has(spec.resourceAttributes?.subresource ?? '') }
        : { authenticated: spec.token === 'good', user: { username: 'jane', groups: ['g'] } };
    return { metadata: {}, status } as never;
  });
  const access = createAccess({
    client,
    clock,
    nodeName: 'n',
    hasClientCa: true,
    anonymous: 'none',
    tokenWebhook: true,
    tokenTtlMs: 120_000,
    authorization: 'Webhook',
    allowedTtlMs: 300_000,
    refusedTtlMs: 30_000,
    ...more,
  });
  return { clock, access, asked, granted, failure };
}

const { publicKey, privateKey } = generateKeyPairSync('ed25519');

/** Returns the socket of a client with a certificate of this subject. */
function socketOf(
  subject: DistinguishedName | Buffer,
  { notAfterMs = Date.parse('2040-01-01T00:00:00Z') } = {},
): object {
  const times = { notBeforeMs: Date.parse('2020-01-01T00:00:00Z'), notAfterMs };
  const certificate = new X509Certificate(createCertificate({ subject, publicKey, ...times }, { privateKey }));
  return { authorized: true, getPeerX509Certificate: () => certificate };
}

const signed = socketOf({ commonName: 'admin', organizations: ['a', 'b'] });
const request = (
  authorization?: string,
  socket: object = { getPeerX509Certificate: () => undefined },
): IncomingMessage =>
  ({ headers: authorization === undefined ? {} : { authorization }, socket }) as unknown as IncomingMessage;
const jane = { name: 'jane', uid: '', groups: ['g'], extra: {} };

describe("the authentication of the agent's server", () => {
  it('accepts a client certificate that the CA signed', async () => {
    const { access } = setUp({ anonymous: 'any' });
    const { extra, ...user } = (await access.authenticate(request(undefined, signed))) ?? {};
    assert.deepEqual(user, { name: 'admin', uid: '', groups: ['a', 'b', 'system:authenticated'] });
    assert.match(extra?.['authentication.kubernetes.io/credential-id']?.[0] ?? '', /^X509SHA256=[0-9a-f]{64}$/);
  });

  it('rejects a client certificate that has expired since the connection was opened', async () => {
    const { access, clock } = setUp({ anonymous: 'any' });
    const socket = socketOf({ commonName: 'admin' }, { notAfterMs: clock.now() + 60_000 });
    assert.equal((await access.authenticate(request(undefined, socket)))?.name, 'admin');
    await clock.advance(60_001);
    assert.equal(await access.authenticate(request(undefined, socket)), undefined);
  });

  it('takes the last of several common names, as the API server does', async () => {
    const { access } = setUp();
    const attribute = (oid: string, text: string): Buffer =>
      der.setOf(der.sequence(der.oid(oid), der.utf8String(text)));
    const subject = der.sequence(
      attribute('2.5.4.10', 'system:nodes'),
      attribute('2.5.4.3', 'kube-apiserver-kubelet-client'),
      attribute('2.5.4.3', 'system:node:hostile'),
    );
    const user = await access.authenticate(request(undefined, socketOf(subject)));
    assert.equal(user?.name, 'system:node:hostile');
  });

  it('rejects a client certificate of another CA, unless the request has a valid token', async () => {
    const { access } = setUp({ anonymous: 'any' });
    const wrong = { ...signed, authorized: false };
    assert.equal(await access.authenticate(request(undefined, wrong)), undefined);
    assert.equal((await access.authenticate(request('Bearer good', wrong)))?.name, 'jane');
    const nameless = socketOf({});
    assert.equal((await access.authenticate(request(undefined, nameless)))?.name, 'system:anonymous');
  });

  it('accepts a reviewed token, and reviews it again after the cache expires', async () => {
    const { access, asked, clock } = setUp();
    assert.equal((await access.authenticate(request('Bearer good')))?.name, 'jane');
    assert.equal((await access.authenticate(request('bearer good')))?.name, 'jane');
    assert.equal(await access.authenticate(request('Bearer bad')), undefined);
    assert.equal(await access.authenticate(request('Bearer bad')), undefined);
    assert.deepEqual(asked, ['good', 'bad']);
    await clock.advance(120_001);
    await access.authenticate(request('Bearer good'));
    assert.equal(asked.length, 3);
  });

  it('accepts anonymous requests only if enabled, and never with wrong credentials', async () => {
    assert.equal(await setUp().access.authenticate(request()), undefined);
    const { access } = setUp({ anonymous: 'any' });
    assert.equal((await access.authenticate(request()))?.name, 'system:anonymous');
    assert.equal(await access.authenticate(request('Bearer bad')), undefined);
    assert.equal(await access.authenticate(request('Basic eA==')), undefined);
  });
});

describe("the authorization of the agent's server", () => {
  for (const [path, wanted] of [
    ['/stats/summary', ['stats']],
    ['/metrics/cadvisor', ['metrics']],
    ['/logs/syslog', ['log']],
    ['/checkpoint/a/b/c', ['checkpoint']],
    ['/configz', ['configz', 'proxy']],
    ['/healthz/ping', ['healthz', 'proxy']],
    ['/statusz', ['statusz', 'proxy']],
    ['/flagz', ['configz', 'proxy']],
    ['/pods', ['pods', 'proxy']],
    ['/runningpods/', ['pods', 'proxy']],
    ['/exec/ns/pod/c', ['proxy']],
    ['/metricsx', ['proxy']],
    ['/%73tats', ['proxy']],
  ] as const) {
    it(`of ${path} is ${wanted.join(' or ')}`, () => assert.deepEqual(subresourcesOf(path), wanted));
  }

  it('is enough by the narrow right or the wide one', async () => {
    const { access, granted, asked } = setUp();
    granted.add('proxy');
    assert.equal(await access.refusal(jane, 'GET', '/pods'), '');
    assert.deepEqual(asked, ['get pods', 'get proxy']);
    assert.equal(await access.refusal(jane, 'POST', '/exec/a/b/c'), '');
    assert.equal(asked.at(-1), 'create proxy');
  });

  it('distinguishes users of the same name by their uid', async () => {
    const { access, granted } = setUp();
    granted.add('proxy');
    assert.equal(await access.refusal({ ...jane, uid: '1' }, 'POST', '/exec/a/b/c'), '');
    granted.clear();
    assert.match(await access.refusal({ ...jane, uid: '2' }, 'POST', '/exec/a/b/c'), /^Forbidden/);
  });

  it('denies with the missing permission, and reviews again after the cache expires', async () => {
    const { access, asked, clock } = setUp();
    const refusal = 'Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[pods proxy])\n';
    assert.equal(await access.refusal(jane, 'GET', '/pods'), refusal);
    assert.equal(await access.refusal(jane, 'GET', '/pods'), refusal);
    assert.equal(asked.length, 2);
    await clock.advance(30_001);
    await access.refusal(jane, 'GET', '/pods');
    assert.equal(asked.length, 4);
  });

  it('treats an unknown method as an empty verb, which only a wildcard permission covers', async () => {
    const { access, granted, asked } = setUp();
    granted.add('pods');
    await access.refusal(jane, 'HEAD', '/pods');
    assert.deepEqual(asked, [' pods']);
  });

  it('is everything with AlwaysAllow', async () => {
    const { access, asked } = setUp({ authorization: 'AlwaysAllow' });
    assert.equal(await access.refusal(jane, 'DELETE', '/x'), '');
    assert.deepEqual(asked, []);
  });
});

describe("the metrics of the access to the agent's server", () => {
  function measured() {
    const metrics = new MetricsRegistry();
    const more = setUp({ observe: accessMetrics(metrics), anonymous: 'any' });
    const value = (series: string): string | undefined =>
      metrics
        .text()
        .split('\n')
        .find((line) => line.startsWith(`${series} `))
        ?.slice(series.length + 1);
    return { ...more, value };
  }

  it('counts reviews by the status code of the response, and lookups of tokens', async () => {
    const { access, failure, value } = measured();
    for (const token of ['good', 'good', 'bad']) await access.authenticate(request(`Bearer ${token}`));
    assert.equal(value('authentication_token_cache_request_total{status="hit"}'), '1');
    assert.equal(value('authentication_token_cache_request_total{status="miss"}'), '2');
    assert.equal(value('authentication_token_cache_fetch_total{status="ok"}'), '2');
    assert.equal(value('authentication_token_cache_active_fetch_count{status="in_flight"}'), '0');
    assert.equal(value('apiserver_delegated_authn_request_total{code="201"}'), '2');
    assert.equal(value('apiserver_delegated_authn_request_duration_seconds_bucket{code="201",le="0.7"}'), '2');
    await access.refusal(jane, 'GET', '/metrics');
    assert.equal(value('apiserver_delegated_authz_request_total{code="201"}'), '1');
    failure.error = newForbidden({ group: 'authorization.k8s.io', resource: 'subjectaccessreviews' }, '', 'no');
    await assert.rejects(access.refusal(jane, 'GET', '/stats'));
    assert.equal(value('apiserver_delegated_authz_request_total{code="403"}'), '1');
    failure.error = new Error('connect ECONNREFUSED');
    await assert.rejects(access.authenticate(request('Bearer other')));
    assert.equal(value('apiserver_delegated_authn_request_total{code="<error>"}'), '1');
    assert.equal(value('authentication_token_cache_fetch_total{status="error"}'), '1');
  });

  it('has requests that come together with one token wait for one review', async () => {
    const { access, asked, value } = measured();
    const both = [1, 2].map(() => access.authenticate(request('Bearer good')));
    assert.equal(value('authentication_token_cache_active_fetch_count{status="blocked"}'), '2');
    assert.equal(value('authentication_token_cache_active_fetch_count{status="in_flight"}'), '1');
    assert.deepEqual(
      (await Promise.all(both)).map((user) => user?.name),
      ['jane', 'jane'],
    );
    assert.deepEqual(asked, ['good']);
    assert.equal(value('authentication_token_cache_active_fetch_count{status="blocked"}'), '0');
  });

  it('observes how long an accepted client certificate is still valid', async () => {
    const { access, clock, value } = measured();
    await access.authenticate(
      request(undefined, socketOf({ commonName: 'a' }, { notAfterMs: clock.now() + 3_000_000 })),
    );
    assert.equal(value('apiserver_client_certificate_expiration_seconds_bucket{le="1800"}'), '0');
    assert.equal(value('apiserver_client_certificate_expiration_seconds_bucket{le="3600"}'), '1');
  });
});

describe('a flood of wrong tokens, which anybody can send to the port of an agent', () => {
  /** Returns an access whose reviews end when the test ends them. */
  function slowReviews() {
    const clock = new FakeClock();
    const client = new FakeClient(clock);
    const asked: string[] = [];
    const ends: (() => void)[] = [];
    client.intercept(async (call) => {
      const { token = '' } = (call.object?.['spec'] ?? {}) as { token?: string };
      asked.push(token);
      await new Promise<void>((resolve) => ends.push(resolve));
      return { metadata: {}, status: { authenticated: token === 'good', user: { username: 'jane' } } } as never;
    });
    const access = createAccess({
      ...{ client, clock, nodeName: 'n', hasClientCa: false, anonymous: 'none', tokenWebhook: true },
      ...{ tokenTtlMs: 120_000, authorization: 'AlwaysAllow', allowedTtlMs: 0, refusedTtlMs: 0 },
    });
    const send = (token: string, remoteAddress: string): ReturnType<typeof access.authenticate> =>
      access.authenticate(request(`Bearer ${token}`, { remoteAddress, getPeerX509Certificate: () => undefined }));
    const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    return { asked, ends, send, settle, clock };
  }

  it('causes a bounded number of reviews at once, and the next one is that of another client', async () => {
    const { asked, ends, send, settle } = slowReviews();
    const refused: unknown[] = [];
    for (let i = 0; i < 2000; i++) send(`wrong-${i}`, '10.0.0.1').catch((error: unknown) => refused.push(error));
    await settle();
    assert.equal(asked.length, 16);
    assert.equal(refused.length, 2000 - 16 - 256);
    assert.equal((refused[0] as { code?: number }).code, 429);
    const good = send('good', '10.0.0.2');
    ends.shift()?.();
    await settle();
    assert.equal(asked.at(-1), 'good');
    ends.pop()?.();
    assert.equal((await good)?.name, 'jane');
  });

  for (const [who, knows] of [
    ['a client that has sent a right one before', true],
    ['a client that is new', false],
  ] as const)
    it(`of hundreds of addresses leaves the next review to ${who}`, async () => {
      const { asked, ends, send, settle, clock } = slowReviews();
      const drain = async (): Promise<void> => {
        for (; ends.length > 0; await settle()) ends.shift()?.();
      };
      const flood = async (): Promise<void> => {
        for (let i = 0; i < 300; i++)
          send(`wrong-${Math.random()}`, `10.1.${i >> 8}.${i & 255}`).catch(() => undefined);
        await settle();
      };
      if (knows) {
        const first = send('good', '10.0.0.2');
        await settle();
        await drain();
        await first;
        await clock.advance(121_000);
      }
      // Clients without a turn in the first round get one in the second.
      for (let round = 0; round < 2; round++) {
        await flood();
        await drain();
      }
      await flood();
      const good = send('good', '10.0.0.2');
      ends.shift()?.();
      await settle();
      assert.equal(asked.at(-1), 'good');
      ends.pop()?.();
      assert.equal((await good)?.name, 'jane');
    });

  it('takes no place of the right one in the cache', async () => {
    const { asked, ends, send, settle } = slowReviews();
    const answered = async (token: string) => {
      const answer = send(token, '10.0.0.1');
      await settle();
      ends.shift()?.();
      return answer;
    };
    await answered('good');
    for (let i = 0; i < 5000; i++) await answered(`wrong-${i}`);
    asked.length = 0;
    assert.equal((await answered('good'))?.name, 'jane');
    assert.deepEqual(asked, []);
  });
});
