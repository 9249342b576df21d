import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { createHttpObserver } from '../../../../agent/resources/statistics/http-metrics.ts';
import type { PodHost } from '../../../../agent/server/pod-host.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { until } from '../../../until.ts';
import { startServerUnderTest } from './server-under-test.ts';

const host = {
  syncLoopHealth: () => '',
  devicePluginHealth: () => '',
  pods: () => [],
  runningContainer: async () => 'id',
  exec: async () => 0,
} as unknown as PodHost;

test('requests that upgrade their connection are counted as others are, and WebSockets by what they open', async () => {
  const metrics = new MetricsRegistry();
  const server = await startServerUnderTest({ host, observe: createHttpObserver(metrics, systemClock) });
  try {
    const url = `wss://127.0.0.1:${server.port}/exec/ns/p/c?command=id&output=1`;
    const socket = new WebSocket(url, 'v5.channel.k8s.io', { rejectUnauthorized: false });
    await once(socket, 'close');
    const series = (name: string): string[] =>
      metrics
        .text()
        .split('\n')
        .filter((line) => line.startsWith(name));
    const labels = '{long_running="true",method="GET",path="exec",server_type="readwrite"}';
    assert.deepEqual(series('kubelet_http_requests_total'), [`kubelet_http_requests_total${labels} 1`]);
    assert.deepEqual(series('kubelet_websocket_streaming_requests_total'), [
      'kubelet_websocket_streaming_requests_total{subresource="exec"} 1',
    ]);
    await until('the end', () => series('kubelet_http_inflight_requests')[0]?.endsWith(' 0') === true);
    assert.equal(series('kubelet_http_requests_duration_seconds_count')[0]?.endsWith(' 1'), true);
  } finally {
    await server.close();
  }
});
