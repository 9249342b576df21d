/** The metrics of requests to other servers have the names, labels and values of Kubernetes' Go client. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { clientMetrics } from '../../../../api/client/client-metrics.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { HttpClient } from '../../../../api/client/http-client.ts';
import { pods } from '../../../../api/client/resources.ts';
import { WebhookClient } from '../../../../controlplane/security/webhooks/webhook-client.ts';

function registry() {
  const metrics = new MetricsRegistry();
  const value = (series: string): number => {
    const line = metrics
      .text()
      .split('\n')
      .find((each) => each.startsWith(`${series} `));
    return Number(line?.slice(series.length + 1));
  };
  return { metrics, observer: clientMetrics(metrics), value };
}

/** Runs the work with a server that returns 429 once. */
async function withServer(work: (host: string) => Promise<void>): Promise<void> {
  let isBusy = true;
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      if (!isBusy) return response.end('{"metadata":{"name":"a"}}');
      isBusy = false;
      return response.writeHead(429, { 'retry-after': '0' }).end('{}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    await work(`127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test('requests to the API server are counted with their sizes, retries and waits', async () => {
  const { observer, value } = registry();
  await withServer(async (host) => {
    const client = new HttpClient({ server: `http://${host}`, clock: systemClock, observe: observer });
    const body = { metadata: { name: 'a', namespace: 'n' } };
    await client.create(pods, 'n', body as never);
    client.close();
    const of = `{host="${host}",verb="POST"}`;
    assert.equal(value(`rest_client_requests_total{code="429",host="${host}",method="POST"}`), 1);
    assert.equal(value(`rest_client_requests_total{code="200",host="${host}",method="POST"}`), 1);
    assert.equal(value(`rest_client_request_retries_total{code="200",host="${host}",verb="POST"}`), 1);
    assert.equal(value(`rest_client_request_size_bytes_sum${of}`), 2 * JSON.stringify(body).length);
    assert.equal(value(`rest_client_response_size_bytes_sum${of}`), '{"metadata":{"name":"a"}}'.length);
    assert.equal(value(`rest_client_request_duration_seconds_count${of}`), 2);
    assert.equal(value(`rest_client_rate_limiter_duration_seconds_count${of}`), 2);
  });
});

test('calls of webhooks are counted by the host of their URL, also those without an answer', async () => {
  const { observer, value } = registry();
  const client = new WebhookClient('test', { measured: { observer, clock: systemClock } });
  const call = (host: string) =>
    client.call(
      { url: new URL(`http://${host}/hook`), purpose: 'webhook-url' },
      { method: 'POST', body: '{}', signal: AbortSignal.timeout(60_000) },
    );
  let gone = '';
  await withServer(async (host) => {
    gone = host;
    await call(host);
    assert.equal(value(`rest_client_requests_total{code="429",host="${host}",method="POST"}`), 1);
    assert.equal(value(`rest_client_request_size_bytes_sum{host="${host}",verb="POST"}`), 2);
    assert.equal(value(`rest_client_response_size_bytes_sum{host="${host}",verb="POST"}`), 2);
  });
  await assert.rejects(call(gone), { code: 'unreachable' });
  assert.equal(value(`rest_client_requests_total{code="<error>",host="${gone}",method="POST"}`), 1);
  client.close();
});

test('hosts that clients choose do not add series without end', () => {
  const { metrics, observer, value } = registry();
  for (let each = 0; each < 1_000; each++)
    observer.sent(
      { method: 'POST', server: `hook-${each}.example:443` },
      { status: 200, tookMs: 1, bytes: 1, isRetry: false },
    );
  const series = metrics.text().match(/^rest_client_requests_total\{/gm) ?? [];
  assert.equal(series.length, 257);
  assert.equal(value('rest_client_requests_total{code="200",host="<other>",method="POST"}'), 1_000 - 256);
});
