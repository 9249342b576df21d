/** Changes of the client CA file are processed by a work queue, whose metrics count the checks. */
import assert from 'node:assert/strict';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { followClientCa } from '../../../../agent/server/client-ca.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { queueMetrics } from '../../../../api/machinery/queue-metrics.ts';
import { certificatePem, createCertificate } from '../../../../api/pki/certificate.ts';
import { generateKey } from '../../../../api/pki/signing.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

async function ca(commonName: string): Promise<string> {
  const { privateKey, publicKey } = await generateKey('ecdsa');
  const window = { notBeforeMs: Date.UTC(2026, 0, 1), notAfterMs: Date.UTC(2027, 0, 1) };
  return certificatePem(createCertificate({ subject: { commonName }, publicKey, ...window }, { privateKey }));
}

test('CAs of clients are replaced when their file changes; a check that failed is repeated sooner', async () => {
  const directory = temporaryFolder();
  const file = join(directory, 'ca.crt');
  const [one, two, three] = [await ca('one'), await ca('two'), await ca('three')];
  await writeFile(file, one);
  const clock = new FakeClock();
  const metrics = new MetricsRegistry();
  const stop = new AbortController();
  const trusted: string[] = [];
  const value = (name: string): number => {
    const series = `workqueue_${name}{name="DynamicCABundle-client-ca-bundle"} `;
    const line = metrics
      .text()
      .split('\n')
      .find((each) => each.startsWith(series));
    return Number(line?.slice(series.length));
  };
  const checked = async (times: number): Promise<void> => {
    while (!(value('work_duration_seconds_count') >= times)) await clock.settle();
  };
  const following = followClientCa(
    {
      file,
      first: one,
      server: { trustClients: (ca) => void trusted.push(ca) },
      observeQueue: queueMetrics(metrics, clock),
      clock,
      logger: silentLogger,
    },
    stop.signal,
  );
  try {
    await checked(1);
    assert.deepEqual(trusted, []);
    await writeFile(file, two);
    await clock.advance(60_000);
    await checked(2);
    assert.deepEqual(trusted, [two]);
    await rm(file);
    await clock.advance(60_000);
    await checked(3);
    assert.equal(value('retries_total'), 1);
    await writeFile(file, three);
    await clock.advance(2_000);
    await checked(4);
    assert.deepEqual(trusted, [two, three]);
    assert.equal(value('adds_total'), 4);
  } finally {
    stop.abort();
    await following;
    await rm(directory, { recursive: true, force: true });
  }
});
