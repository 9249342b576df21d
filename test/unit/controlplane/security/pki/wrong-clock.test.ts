/** Tests certificates on hosts whose clock is wrong at the start, and set later: such hosts have no battery-backed clock. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { Logger } from '../../../../../api/component/logger.ts';
import { parseCertificates, type Certificate } from '../../../../../api/pki/certificate.ts';
import { ensurePki, type Pki } from '../../../../../controlplane/security/pki/pki.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';
import { until } from '../../../../until.ts';

const BOOT = Date.UTC(1970, 0, 1, 0, 1);
const PRESENT = Date.UTC(2026, 5, 1);
const YEAR_MS = 365 * 86_400_000;

interface Opened {
  readonly pki: Pki;
  readonly clock: FakeClock;
  /** The messages of logged errors. */
  readonly errors: string[];
  /** The certificate of the administrator's kubeconfig. */
  readonly admin: () => Certificate;
}

async function open(directory: string, startMs: number): Promise<Opened> {
  const clock = new FakeClock(startMs);
  const errors: string[] = [];
  const ignore = (): void => undefined;
  const logger = {
    info: ignore,
    warn: ignore,
    error: (_fields: object, message: string) => void errors.push(message),
  } as unknown as Logger;
  const path = join(directory, 'admin.kubeconfig');
  const pki = await ensurePki({
    directory: join(directory, 'pki'),
    clock,
    logger,
    hosts: [],
    addresses: () => [],
    serviceIp: undefined,
  });
  await pki.keepAdminKubeconfig({ path, server: 'https://127.0.0.1:6443' });
  const admin = (): Certificate => {
    const encoded = /client-certificate-data: (\S+)/.exec(readFileSync(path, 'utf8'))?.[1] ?? '';
    const [certificate] = parseCertificates(Buffer.from(encoded, 'base64').toString());
    assert.ok(certificate);
    return certificate;
  };
  return { pki, clock, errors, admin };
}

const isValidAt = ({ notBeforeMs, notAfterMs }: Certificate, timeMs: number): boolean =>
  timeMs >= notBeforeMs && timeMs <= notAfterMs;

describe('a first start with a clock of 1970', () => {
  test('issues certificates that are valid then, and when the clock is right', async () => {
    const { pki, admin, errors } = await open(temporaryFolder(), BOOT);
    const { ca, frontProxyCa, apiserver, kubeletClient, frontProxyClient } = pki.material();
    for (const { certificate } of [
      ca,
      frontProxyCa,
      apiserver,
      kubeletClient,
      frontProxyClient,
      { certificate: admin() },
    ])
      for (const timeMs of [BOOT, PRESENT]) assert.ok(isValidAt(certificate, timeMs), certificate.subject.commonName);
    assert.ok(isValidAt(ca.certificate, PRESENT + 5 * YEAR_MS));
    assert.deepEqual(errors, []);
  });

  test('renews them within a minute after the clock was set', async () => {
    const { pki, clock, admin } = await open(temporaryFolder(), BOOT);
    const stop = new AbortController();
    pki.watch(stop.signal);
    await clock.advance(10 * 60_000);
    assert.ok(admin().notBeforeMs < BOOT, 'nothing is issued without a reason');
    clock.set(PRESENT - clock.now());
    await clock.advance(60_000);
    await until('a new certificate', () => (admin().notBeforeMs > BOOT + YEAR_MS ? true : undefined));
    for (const { certificate } of [pki.material().apiserver, { certificate: admin() }])
      assert.ok(isValidAt(certificate, PRESENT + YEAR_MS / 2), certificate.subject.commonName);
    stop.abort();
  });
});

test('an expired CA, and one that is not valid yet, are errors in the log with the remedy', async () => {
  const directory = temporaryFolder();
  await open(directory, PRESENT);
  assert.match((await open(directory, PRESENT + 11 * YEAR_MS)).errors[0] ?? '', /A CA has expired: .*rotate-ca/);
  assert.match(
    (await open(directory, PRESENT - YEAR_MS)).errors[0] ?? '',
    /not valid yet: the clock of the host is wrong/,
  );
});
