/**
 * Compares the metrics of the control plane with those of kube-apiserver 1.36. A metric with the same name has the same type
 * and labels, and every missing metric is listed with a reason.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { get, request } from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { keepAlive } from '../../../../api/machinery/clock.ts';
import { until } from '../../../until.ts';
import { type ControlPlane, startControlPlane } from '../../../../controlplane/main.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

/** The recorded metrics that the control plane does not have, and why. */
const ABSENT: readonly (readonly [pattern: RegExp, why: string])[] = [
  [/^aggregator_discovery_/, 'discovery documents are built from the catalog, not aggregated from caches of peers'],
  [/^apiextensions_apiserver_validation_ratcheting/, 'validation is not timed by itself'],
  [
    /^apiserver_admission_step_admission_duration_seconds_summary$/,
    'the histogram of the same name has the same facts',
  ],
  [
    /^apiserver_(cache|storage)_list_|^apiserver_watch_list_|^watch_cache_|^apiserver_watch_cache_|^apiserver_init_events/,
    'the watch cache reads the maps of the storage: it fetches, fills and waits for nothing',
  ],
  [/^apiserver_storage_(events_received|consistency_checks)_total$/, 'the watch cache reads the maps of the storage'],
  [/^apiserver_cel_/, 'expressions are not timed by themselves'],
  [
    /^apiserver_envelope_|^apiserver_storage_(data_key|envelope)_/,
    'the keys of a KMS are derived from one seed and not cached one by one',
  ],
  [
    /^apiserver_flowcontrol_(latest_s|next_)/,
    "bounds of the fair queues' virtual time, for debugging kube-apiserver alone",
  ],
  [/^apiserver_flowcontrol_watch_count_samples$/, 'watches take no seats for writes'],
  [/^apiserver_(kube_aggregator|webhooks)_x509_/, 'certificates without alternative names and with SHA-1 are refused'],
  [/^apiserver_nodeport_repair_/, 'ports belong to the transaction of their service, so that nothing is repaired'],
  [
    /^kube_apiserver_clusterip_allocator_allocation_/,
    'an address is allocated in memory by the write of its service, which is timed itself',
  ],
  [/^apiserver_request_(filter_duration_seconds|timestamp_comparison_time)$/, 'not measured by itself'],
  [/^apiserver_resource_size_estimate_bytes$/, 'the cost of a list is computed from the objects, not estimated'],
  [/^apiserver_selfrequest_total$/, 'the parts of the control plane call each other in the process'],
  [/^apiserver_validation_/, 'there is one validation, nothing to compare it with'],
  [/^cardinality_enforcement|^(disabled|hidden|registered)_metrics_total$/, "of the library of Kubernetes' metrics"],
  [/^etcd_(request|lease)/, 'the storage of this test is no etcd: etcd-metrics.test.ts compares them'],
  [/^etcd_bookmark_total$|^grpc_client_/, 'one watch of etcd without progress notifications feeds all caches'],
  [/^kubernetes_feature_enabled$/, 'the control plane has no feature gates'],
  [/^rest_client_(exec_plugin|transport)_/, "of credential plugins and the transport cache of Kubernetes' Go client"],
];

const recorded = new Map(
  readFileSync(join(import.meta.dirname, 'upstream', 'metrics-apiserver.tsv'), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [name = '', type = '', labels = ''] = line.split('\t');
      const isSplit = type === 'histogram' || type === 'summary';
      const list = labels.split(',').filter((label) => label !== '' && label !== 'le' && label !== 'quantile');
      return [isSplit ? name.replace(/_(bucket|count|sum)$/, '') : name, `${type} ${list.toSorted().join(',')}`.trim()];
    }),
);

let plane: ControlPlane;
const alive = keepAlive();
let directory = '';
before(async () => {
  directory = temporaryFolder();
  const tokenAuthFile = join(directory, 'tokens.csv');
  await writeFile(tokenAuthFile, 'token,ann,1,"system:masters"\n');
  plane = await startControlPlane({ memory: true, flags: { tokenAuthFile } });
});
after(async () => {
  alive.cancel();
  await plane.close();
  await rm(directory, { recursive: true, force: true });
});

const families = (): Map<string, string> =>
  new Map(
    plane.metrics.families().map(({ name, kind, labels }) => [name, `${kind} ${labels.toSorted().join(',')}`.trim()]),
  );

test('a metric that kube-apiserver shows as well has its type and labels', () => {
  const differing = [...families()].filter(([name, form]) => recorded.has(name) && recorded.get(name) !== form);
  assert.deepEqual(
    differing.map(([name, form]) => `${name}: ${form} instead of ${recorded.get(name)}`),
    [],
  );
});

test('every metric of kube-apiserver exists, or is listed with a reason', () => {
  const shown = families();
  const missing = [...recorded.keys()].filter(
    (name) => !shown.has(name) && !ABSENT.some(([pattern]) => pattern.test(name)),
  );
  assert.deepEqual(missing, []);
});

test('no metric that exists is listed as missing', () =>
  assert.deepEqual(
    [...families().keys()].filter((name) => recorded.has(name) && ABSENT.some(([pattern]) => pattern.test(name))),
    [],
  ));

/** Returns the value of a series on the page. */
function valueOf(series: string): number {
  const line = plane.metrics
    .text()
    .split('\n')
    .find((each) => each.startsWith(`${series} `));
  return Number(line?.slice(series.length + 1) ?? 0);
}

test('stored objects are counted by resource', () => {
  assert.ok(valueOf('apiserver_storage_objects{resource="namespaces"}') >= 4);
  assert.ok(valueOf('apiserver_resource_objects{group="rbac.authorization.k8s.io",resource="clusterroles"}') > 20);
});

test('the compatible release is the minor release before, as on /version', () => {
  assert.equal(valueOf('version_info{binary="1.36",component="kube",emulation="1.36",min_compat="1.35"}'), 1);
});

test('the queues of controllers are shown under the names of kube-controller-manager', async () => {
  await until('a key of the queue', () => valueOf('workqueue_adds_total{name="root_ca_cert_publisher"}') > 0);
});

test('a watch counts as long-running request until it ends', async () => {
  const series =
    'apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="WATCH",version="v1"}';
  const before = valueOf(series);
  await new Promise<void>((resolve, reject) => {
    const request = get(
      `${plane.url}/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1`,
      { ca: plane.ca, headers: { authorization: 'Bearer token' } },
      (response) => {
        assert.equal(valueOf(series), before + 1);
        response.resume().once('end', resolve);
      },
    );
    request.once('error', reject);
  });
  await until('the end of the watch', () => valueOf(series) === before);
});

/** Sends a request as a member of system:masters. Resolves to the status code. */
function send(method: string, path: string, body: object): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: 'Bearer token', 'content-type': 'application/json' };
    request(`${plane.url}${path}`, { method, ca: plane.ca, headers }, (response) =>
      response.resume().once('end', () => resolve(response.statusCode)),
    )
      .once('error', reject)
      .end(JSON.stringify(body));
  });
}

test('events of watches are counted with their sizes for each watch', async () => {
  const series = '{group="",resource="configmaps",version="v1"}';
  const received: Promise<number>[] = [0, 1].map(
    () =>
      new Promise((resolve, reject) => {
        const path =
          '/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=2&fieldSelector=metadata.name%3Dseen';
        get(`${plane.url}${path}`, { ca: plane.ca, headers: { authorization: 'Bearer token' } }, (response) => {
          let bytes = 0;
          response.on('data', (part: Buffer) => (bytes += part.length)).once('end', () => resolve(bytes));
        }).once('error', reject);
      }),
  );
  const [events, bytes] = [`apiserver_watch_events_total${series}`, `apiserver_watch_events_sizes_sum${series}`];
  const before = [valueOf(events), valueOf(bytes)];
  assert.equal(await send('POST', '/api/v1/namespaces/default/configmaps', { metadata: { name: 'seen' } }), 201);
  const sizes = await Promise.all(received);
  assert.equal(valueOf(events) - (before[0] ?? 0), 2);
  assert.ok((sizes[0] ?? 0) > 100);
  assert.equal(valueOf(bytes) - (before[1] ?? 0), (sizes[0] ?? 0) + (sizes[1] ?? 0));
});

test('bodies are measured, and writes by their field validation', async () => {
  const of = '{group="",resource="configmaps",verb="create"}';
  const body = { metadata: { name: 'sized' } };
  const before = valueOf(`apiserver_request_body_size_bytes_sum${of}`);
  const path = '/api/v1/namespaces/default/configmaps?fieldValidation=Strict';
  assert.equal(await send('POST', path, body), 201);
  assert.equal(valueOf(`apiserver_request_body_size_bytes_sum${of}`) - before, JSON.stringify(body).length);
  assert.ok(valueOf('field_validation_request_duration_seconds_count{field_validation="Strict"}') >= 1);
});

test('allocated addresses and node ports of services are shown with what is left', async () => {
  const cidr = '{cidr="10.96.0.0/16"}';
  const names = ['allocated', 'available'].flatMap((state) => [
    `kube_apiserver_clusterip_allocator_${state}_ips${cidr}`,
    `kube_apiserver_nodeport_allocator_${state}_ports`,
  ]);
  const before = names.map(valueOf);
  assert.equal((before[0] ?? 0) + (before[2] ?? 0), 2 ** 16 - 2);
  assert.equal((before[1] ?? 0) + (before[3] ?? 0), 32_767 - 30_000 + 1);
  const ports = [80, 81].map((port) => ({ name: `p${port}`, port }));
  const service = { metadata: { name: 'counted' }, spec: { type: 'NodePort', ports } };
  assert.equal(await send('POST', '/api/v1/namespaces/default/services', service), 201);
  assert.deepEqual(
    names.map((name, index) => valueOf(name) - (before[index] ?? 0)),
    [1, 2, -1, -2],
  );
});

test('a failed TLS handshake is counted', async () => {
  const before = valueOf('apiserver_tls_handshake_errors_total');
  const socket = connect(plane.port, '127.0.0.1', () => socket.end('no handshake\r\n\r\n'));
  socket.resume().on('error', () => undefined);
  await until('the failure', () => valueOf('apiserver_tls_handshake_errors_total') > before);
});
