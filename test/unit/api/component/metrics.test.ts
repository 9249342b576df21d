/** Tests the text in which metrics are exposed. */
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
    '# HELP c_total [ALPHA] C.\n# TYPE c_total counter\nc_total{code="2\\"0"} 2\n' +
      '# HELP h [ALPHA] H.\n# TYPE h histogram\nh_bucket{le="1"} 1\nh_bucket{le="2"} 2\nh_bucket{le="+Inf"} 3\nh_sum 11\nh_count 3\n',
  );
});

test("families are sorted by name, labels by name and series by labels, as by Prometheus' client for Go", () => {
  const registry = new MetricsRegistry();
  const later = registry.gauge({ name: 'b', help: 'B.', labels: ['zone', 'kind'] });
  later.with('2', 'x').set(1);
  later.with('1', 'x').set(2);
  assert.match(registry.text(), /^b\{kind="x",zone="1"\} 2\nb\{kind="x",zone="2"\} 1$/m);
  later.with('3', 'a').set(3);
  registry.gauge({ name: 'a', help: 'A.' }).with().set(0);
  const lines = registry
    .text()
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  assert.deepEqual(lines, ['a 0', 'b{kind="a",zone="3"} 3', 'b{kind="x",zone="1"} 2', 'b{kind="x",zone="2"} 1']);
});

test('the help begins with the level of stability, except for metrics that are not of Kubernetes', () => {
  const registry = new MetricsRegistry();
  for (const name of [
    'apiserver_request_total',
    'kubernetes_build_info',
    'kubelet_node_name',
    'orchlet_events_total',
    'process_max_fds',
    'process_start_time_seconds',
  ])
    registry.gauge({ name, help: 'Help.' }).with().set(1);
  assert.deepEqual(registry.text().match(/^# HELP .*$/gm), [
    '# HELP apiserver_request_total [STABLE] Help.',
    '# HELP kubelet_node_name [ALPHA] Help.',
    '# HELP kubernetes_build_info [BETA] Help.',
    '# HELP orchlet_events_total Help.',
    '# HELP process_max_fds Help.',
    '# HELP process_start_time_seconds [ALPHA] Help.',
  ]);
});

for (const [value, text] of [
  [999_999, '999999'],
  [1_000_000, '1e+06'],
  [2_124_633, '2.124633e+06'],
  [15_552_000, '1.5552e+07'],
  [270_553_174_016, '2.70553174016e+11'],
  [1_767_322_801.5, '1.7673228015e+09'],
  [0.0001, '0.0001'],
  [0.00001, '1e-05'],
  [-1_234_567, '-1.234567e+06'],
] as const)
  test(`${value} is written as ${text}, as by Prometheus' client for Go`, () => {
    const registry = new MetricsRegistry();
    registry.gauge({ name: 'g', help: 'G.' }).with().set(value);
    assert.ok(registry.text().endsWith(`\ng ${text}\n`));
  });

test('bounds of buckets have the form of other numbers', () => {
  const registry = new MetricsRegistry();
  registry
    .histogram({ name: 'h', help: 'H.', buckets: [604_800, 2_592_000] })
    .with()
    .observe(1);
  assert.deepEqual(
    [...registry.text().matchAll(/le="([^"]+)"/g)].map(([, bound]) => bound),
    ['604800', '2.592e+06', '+Inf'],
  );
});
