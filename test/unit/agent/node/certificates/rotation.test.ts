import assert from 'node:assert/strict';
import type { KeyObject } from 'node:crypto';
import { readdir, readFile, readlink, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { before, describe, it, type TestContext } from 'node:test';
import {
  currentPath,
  readPair,
  type StoredPair,
  writePair,
} from '../../../../../agent/node/certificates/certificate-store.ts';
import { requestCertificate } from '../../../../../agent/node/certificates/request-certificate.ts';
import { keepCertificate, renewalTime } from '../../../../../agent/node/certificates/rotation.ts';
import { certificateMetrics } from '../../../../../agent/node/certificates/certificate-metrics.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import type { TransportResponse } from '../../../../../api/client/http-connections.ts';
import { certificatePem, createCertificate } from '../../../../../api/pki/certificate.ts';
import { type CertificateRequest, parseCsr } from '../../../../../api/pki/certificate-request.ts';
import { generateKey, privateKeyPem } from '../../../../../api/pki/signing.ts';
import { newForbidden } from '../../../../../api/meta/status-error.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const HOUR_MS = 3_600_000;

async function issue(notBeforeMs: number, lifeMs: number): Promise<{ certificatePem: string; keyPem: string }> {
  const keys = await generateKey('ecdsa');
  const der = createCertificate(
    {
      subject: { commonName: 'system:node:n' },
      publicKey: keys.publicKey,
      notBeforeMs,
      notAfterMs: notBeforeMs + lifeMs,
      names: { dns: ['n'], ip: [] },
      keyUsages: ['digital signature'],
      extendedKeyUsages: ['client auth'],
    },
    { privateKey: keys.privateKey },
  );
  return { certificatePem: certificatePem(der), keyPem: privateKeyPem(keys.privateKey) };
}

interface SetUpOptions {
  readonly fits?: (pair: StoredPair) => boolean;
  readonly metrics?: MetricsRegistry;
}

async function setUp(t: TestContext, lifeMs: number, { fits, metrics }: SetUpOptions = {}) {
  const directory = temporaryFolder();
  const clock = new FakeClock();
  const state = { asked: 0, failing: false, rotated: 0 };
  const stop = new AbortController();
  const running = keepCertificate(
    {
      directory,
      name: 'kubelet-client',
      clock,
      logger: silentLogger,
      random: () => 0.5,
      ...(fits === undefined ? {} : { fits }),
      ...(metrics === undefined ? {} : { observer: certificateMetrics(metrics, clock).server }),
      onRotated: () => void (state.rotated += 1),
      request: async () => {
        state.asked += 1;
        if (state.failing) throw new Error('away');
        return issue(clock.now(), lifeMs);
      },
    },
    stop.signal,
  );
  t.after(async () => {
    stop.abort();
    await running;
  });
  /**
   * Advances the time in small steps, so that real file operations keep up, until this number of certificates was requested.
   */
  const until = async (asked: number, stepMs: number): Promise<number> => {
    let steps = 0;
    while (state.asked < asked) {
      await clock.advance(clock.pendingTimers > 0 ? stepMs : 0);
      steps += 1;
    }
    return steps;
  };
  return { directory, clock, state, until };
}

describe('a certificate', () => {
  it('is renewed although reading the old one failed before', async (t) => {
    let failures = 0;
    const { state, until } = await setUp(t, 10 * HOUR_MS, {
      fits: () => {
        if (state.rotated === 1 && failures === 0) {
          failures += 1;
          throw new Error('unreadable');
        }
        return true;
      },
    });
    await until(2, 60_000);
    assert.equal(failures, 1);
  });

  it('is due between 70 and 90 % of its life', () => {
    const certificate = { notBeforeMs: 1000, notAfterMs: 11_000 };
    assert.deepEqual(
      [0, 0.5, 1].map((random) => renewalTime(certificate, random)),
      [8000, 9000, 10_000],
    );
  });

  it('that is backdated is due by its remaining lifetime at the time of its arrival', () => {
    const certificate = { notBeforeMs: 0, notAfterMs: 310_000 };
    assert.equal(renewalTime(certificate, 0, 300_000), 307_000);
    // The validity is impossible, because the clocks differ.
    assert.equal(renewalTime(certificate, 0, 400_000), 217_000);
  });

  it('is requested if there is none, and renewed when it is due', async (t) => {
    const { directory, clock, state, until } = await setUp(t, 10 * HOUR_MS);
    await until(1, 0);
    while (state.rotated < 1) await clock.settle();
    const first = await readPair(directory, 'kubelet-client');
    const start = clock.now();
    await until(2, 60_000);
    assert.ok(clock.now() - start >= 8 * HOUR_MS);
    while (state.rotated < 2) await clock.settle();
    const second = await readPair(directory, 'kubelet-client');
    assert.notEqual(first?.certificatePem, second?.certificatePem);
  });

  it('is shown with the time that it lasts, the life of the one before and failed renewals', async (t) => {
    const metrics = new MetricsRegistry();
    const { clock, state, until } = await setUp(t, 10 * HOUR_MS, { metrics });
    const value = (name: string): string => new RegExp(`^${name} (.*)$`, 'm').exec(metrics.text())?.[1] ?? '';
    assert.equal(value('kubelet_certificate_manager_server_ttl_seconds'), '+Inf');
    assert.equal(value('kubelet_certificate_manager_client_ttl_seconds'), '+Inf');
    await until(1, 0);
    while (value('kubelet_certificate_manager_server_ttl_seconds') === '+Inf') await clock.settle();
    assert.equal(Number(value('kubelet_certificate_manager_server_ttl_seconds')), 36_000);
    state.failing = true;
    await until(2, 60_000);
    while (value('kubelet_server_expiration_renew_errors') !== '1') await clock.settle();
    state.failing = false;
    await until(3, 60_000);
    while (value('kubelet_certificate_manager_server_rotation_seconds_count') !== '1') await clock.settle();
    assert.ok(Number(value('kubelet_certificate_manager_server_rotation_seconds_sum')) >= 8 * 3600);
  });

  it('is requested again with growing delays after failures', async (t) => {
    const { clock, state, until } = await setUp(t, HOUR_MS);
    state.failing = true;
    await until(1, 0);
    const times: number[] = [];
    for (const count of [2, 3, 4]) {
      const from = clock.now();
      await until(count, 500);
      times.push(clock.now() - from);
    }
    assert.ok((times[1] ?? 0) > (times[0] ?? 0) && (times[2] ?? 0) > (times[1] ?? 0), String(times));
  });

  it('that differs from the request does not flood the signer', async (t) => {
    const { clock, state, until } = await setUp(t, HOUR_MS, { fits: () => false });
    await until(1, 0);
    while (state.rotated < 1) await clock.settle();
    const from = clock.now();
    await until(3, 500);
    assert.ok(clock.now() - from >= 6000);
  });
});

describe('the store of certificates', () => {
  it('swaps key and certificate in one file that only the owner reads', async () => {
    const directory = join(temporaryFolder(), 'pki');
    const one = await issue(Date.UTC(2026, 0, 1), HOUR_MS);
    await writePair(directory, 'x', one, new Date(Date.UTC(2026, 0, 1)));
    const two = await issue(Date.UTC(2026, 0, 2), HOUR_MS);
    await writePair(directory, 'x', two, new Date(Date.UTC(2026, 0, 2)));
    assert.equal(await readlink(currentPath(directory, 'x')), 'x-2026-01-02-00-00-00.pem');
    assert.equal((await readPair(directory, 'x'))?.keyPem.trim(), two.keyPem.trim());
    assert.match(await readFile(currentPath(directory, 'x'), 'utf8'), /CERTIFICATE[\s\S]*PRIVATE KEY/);
    for (const path of [directory, currentPath(directory, 'x')]) assert.equal((await stat(path)).mode & 0o077, 0, path);
    assert.equal(
      (await readdir(directory)).some((name) => name.endsWith('.new')),
      false,
    );
  });

  it('has no pair where a file is missing or broken', async () => {
    const directory = temporaryFolder();
    assert.equal(await readPair(directory, 'x'), undefined);
    await writeFile(currentPath(directory, 'x'), 'nonsense');
    assert.equal(await readPair(directory, 'x'), undefined);
  });
});

describe('a certificate signing request', () => {
  const wish = { signerName: 'example.org/s', subject: { commonName: 'n' }, usages: ['client auth'] };

  type Answer = object | Error | ((csr: CertificateRequest) => object);

  /** Returns a certificate for the key of the request, or for another given key. */
  const signed =
    (more = '', key?: KeyObject) =>
    (csr: CertificateRequest): object => {
      const der = createCertificate(
        { subject: { commonName: 'n' }, publicKey: key ?? csr.publicKey, notBeforeMs: 0, notAfterMs: HOUR_MS },
        { privateKey: authority.privateKey },
      );
      return { certificate: Buffer.from(certificatePem(der) + more).toString('base64') };
    };
  let authority: Awaited<ReturnType<typeof generateKey>>;
  before(async () => {
    authority = await generateKey('ecdsa');
  });

  async function ask(statuses: Answer[], { signerName = wish.signerName, minor = '36' } = {}) {
    const clock = new FakeClock();
    const client = new FakeClient(clock);
    const raw = async (): Promise<TransportResponse> => {
      if (minor === 'secret') throw newForbidden({ group: '', resource: '' }, '', 'cannot get path "/version"');
      return {
        status: 200,
        headers: {},
        body: Readable.from([Buffer.from(JSON.stringify({ major: '1', minor }))]),
      };
    };
    client.intercept((call) => {
      if (call.verb !== 'get') return undefined;
      const next = statuses.length > 1 ? statuses.shift() : statuses[0];
      if (next instanceof Error) throw next;
      const created = client.writes('create')[0]?.object as { spec?: { request?: string } } | undefined;
      const csr = parseCsr(Buffer.from(created?.spec?.request ?? '', 'base64').toString());
      return { metadata: {}, status: typeof next === 'function' ? next(csr) : next } as never;
    });
    const signing = Object.assign(client, { raw });
    const result = requestCertificate(
      signing,
      { ...wish, signerName },
      {
        clock,
        logger: silentLogger,
        timeoutMs: 60_000,
        signal: new AbortController().signal,
      },
    );
    const settled = result.then(
      (pair) => pair.certificatePem,
      (error: Error) => error.message,
    );
    let done = false;
    void settled.then(() => (done = true));
    while (!done) await clock.advance(500);
    return { answer: await settled, client };
  }

  it('stays pending while the API server is unreachable, and provides the certificate when it is signed', async () => {
    const { answer, client } = await ask([{}, new Error('away'), signed()]);
    assert.match(answer, /^-----BEGIN CERTIFICATE-----/);
    assert.equal(client.writes('create').length, 1);
  });

  it('of a node has the usage that control planes before 1.25 insist on, and newer ones without', async () => {
    const usages = async (signerName: string, minor: string): Promise<unknown> => {
      const { client } = await ask([signed()], { signerName, minor });
      return (client.writes('create')[0]?.object as { spec?: { usages?: string[] } } | undefined)?.spec?.usages;
    };
    for (const signerName of ['kubernetes.io/kube-apiserver-client-kubelet', 'kubernetes.io/kubelet-serving']) {
      assert.deepEqual(await usages(signerName, '24+'), ['key encipherment', 'client auth']);
      assert.deepEqual(await usages(signerName, '25'), ['client auth']);
      assert.deepEqual(await usages(signerName, 'secret'), ['key encipherment', 'client auth']);
    }
    assert.deepEqual(await usages('example.org/s', '20'), ['client auth']);
  });

  it('takes no certificate for another key, and no key, from the signer', async () => {
    const { answer } = await ask([signed('', (await generateKey('ecdsa')).publicKey)]);
    assert.equal(answer, 'the signer issued a certificate for another key');
    const none = { certificate: Buffer.from(privateKeyPem(authority.privateKey)).toString('base64') };
    assert.equal((await ask([none])).answer, 'the signer issued no certificate');
    const both = (await ask([signed(privateKeyPem(authority.privateKey))])).answer;
    assert.match(both, /^-----BEGIN CERTIFICATE-----/);
    assert.doesNotMatch(both, /PRIVATE KEY/);
  });

  it('reports why it was denied, and how to approve a pending request', async () => {
    const denied = await ask([{ conditions: [{ type: 'Denied', reason: 'No', message: 'not you' }] }]);
    assert.match(denied.answer, /was denied: No not you$/);
    assert.match((await ask([{}])).answer, /kubectl certificate approve csr-/);
  });
});
