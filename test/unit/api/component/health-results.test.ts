import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HealthResults } from '../../../../api/component/health-results.ts';

test('results of health checks are counted by check, path and outcome, and the last outcome is a gauge', () => {
  const results = new HealthResults();
  for (const succeeded of [true, true, false]) results.observe('etcd', 'readyz', succeeded);
  results.observe('etcd', 'livez', true);
  const lines = results.text().split('\n');
  for (const line of [
    'kubernetes_healthcheck{name="etcd",type="readyz"} 0',
    'kubernetes_healthcheck{name="etcd",type="livez"} 1',
    'kubernetes_healthchecks_total{name="etcd",status="success",type="readyz"} 2',
    'kubernetes_healthchecks_total{name="etcd",status="error",type="readyz"} 1',
  ])
    assert.ok(lines.includes(line), line);
  assert.match(results.text(), /\nprocess_start_time_seconds [\d.e+]+\n$/);
  results.reset();
  assert.equal(results.text(), '');
});
