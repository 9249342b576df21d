/** The text in which metrics are exposed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';

test('text of counters, gauges and histograms with labels', () => {
  const registry = new MetricsRegistry();
  registry
    .counter({ name: 'c_total', help: 'C.', labels: ['code'] })
    .with('2"0')
    .inc(2);
  const histogram = registry.histogram({ name: 'h', help: 'H.', buckets: [1, 2] }).with();
  for (const value of [0.5, 1.5, 9]) histogram.observe(value);
  assert.equal(
    registry.text(),
    '# HELP c_total C.\n# TYPE c_total counter\nc_total{code="2\\"0"} 2\n' +
      '# HELP h H.\n# TYPE h histogram\nh_bucket{le="1"} 1\nh_bucket{le="2"} 2\nh_bucket{le="+Inf"} 3\nh_sum 11\nh_count 3\n',
  );
});
