/**
 * Tests that metrics have the names, types and labels that were recorded from the kubelet, so that existing dashboards
 * work.
 */
import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { request } from 'node:https';
import { after, before, test } from 'node:test';
import type { Agent } from '../../../../../agent/main.ts';
import { keepAlive } from '../../../../../api/machinery/clock.ts';
import { startAgentInMemory } from '../../../../fakes/agent-in-memory.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

type Page = 'metrics' | 'resource' | 'probes' | 'cadvisor';

/** The recorded names with their types and labels, without the metrics of the Go runtime and of libraries. */
const recorded = JSON.parse(await readFile(join(import.meta.dirname, 'reference-metrics.json'), 'utf8')) as Record<
  Page,
  Record<string, string>
>;

/** The recorded metrics that this agent does not have, and why. */
const ABSENT: readonly (readonly [pattern: RegExp, why: string])[] = [
  [
    /^force_cleaned_failed_volume|^reconstruct_volume/,
    'volumes are found on the host itself, not rebuilt from directories',
  ],
  [/^kubelet_volume_metric/, 'what volumes hold is measured for the whole node'],
  [/^kubelet_cri_losing_support/, 'the runtime interface has one version'],
  [
    /^kubelet_evented_pleg|^kubelet_pleg_discard|^kubelet_pleg_pod_relist/,
    'the PLEG has one way, and no buffer that overflows',
  ],
  [/^kubelet_graceful_shutdown/, 'set only by a shutdown of the host'],
  [/^kubelet_imagemanager_inmemory/, 'the records in memory have no limit to be a part of'],
  [/^kubelet_pod_watch_events/, 'other metrics count the same events'],
  [
    /^rest_client_exec_plugin|^rest_client_transport/,
    'metrics of credential plugins and of the transport cache of client-go',
  ],
  [/^process_network_/, 'the process has no network of its own'],
];

let directory = '';
let agent: Agent;
const alive = keepAlive();

before(async () => {
  directory = temporaryFolder();
  const podManifestPath = join(directory, 'manifests');
  await mkdir(podManifestPath);
  await writeFile(
    join(podManifestPath, 'a.yaml'),
    'apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: "shell:1", imagePullPolicy: Never, command: [sleep, "1000"], readinessProbe: {exec: {command: [echo]}, periodSeconds: 1}}], volumes: [{name: v, emptyDir: {}}]}\n',
  );
  agent = await startAgentInMemory(directory, { podManifestPath, authorizationMode: 'AlwaysAllow' });
});
after(async () => {
  alive.cancel();
  await agent.close();
});

function page(path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    request({ host: '127.0.0.1', port: agent.port, path, rejectUnauthorized: false, agent: false }, (response) => {
      let text = '';
      response.on('data', (part: Buffer) => (text += part.toString('utf8')));
      response.on('end', () => resolve(text));
    })
      .on('error', reject)
      .end();
  });
}

/** Returns the type and labels by name. A histogram counts once. */
function shown(text: string): Map<string, string> {
  const types = new Map([...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = '', type = '']) => [name, type]));
  const found = new Map<string, string>();
  for (const [, full = '', list = ''] of text.matchAll(/^([a-z_][a-z0-9_]*)(?:\{(.*)\})? \S+/gim)) {
    const base = full.replace(/_(bucket|count|sum)$/, '');
    const name = types.get(base) === 'histogram' ? base : full;
    const labels = [...list.matchAll(/(\w+)="/g)]
      .map(([, label = '']) => label)
      .filter((label) => label !== 'le' || types.get(name) !== 'histogram');
    found.set(name, `${types.get(name) ?? '?'} ${labels.toSorted().join(',')}`.trim());
  }
  return found;
}

for (const [name, path] of [
  ['metrics', '/metrics'],
  ['resource', '/metrics/resource'],
  ['probes', '/metrics/probes'],
  ['cadvisor', '/metrics/cadvisor'],
] as const) {
  test(`${path}: what is shown has the recorded type and labels`, async () => {
    const found = shown(await page(path));
    assert.ok(name === 'probes' || found.size > 2, `${path} shows something`);
    const differing = [...found].filter(
      ([metric, form]) => recorded[name][metric] !== undefined && recorded[name][metric] !== form,
    );
    assert.deepEqual(
      differing.map(([metric, form]) => `${metric}: ${form} instead of ${recorded[name][metric]}`),
      [],
    );
  });
}

test('/metrics: dashboards find the build, the certificates and the gates', async () => {
  const found = shown(await page('/metrics'));
  assert.deepEqual(
    [
      'kubernetes_build_info',
      'kubernetes_feature_enabled',
      'kubelet_certificate_manager_client_ttl_seconds',
      'kubelet_certificate_manager_server_ttl_seconds',
      'kubelet_node_name',
    ].map((name) => found.get(name)),
    [
      'gauge build_date,compiler,git_commit,git_tree_state,git_version,go_version,major,minor,platform',
      'gauge name,stage',
      'gauge',
      'gauge',
      'gauge node',
    ],
  );
  assert.match(await page('/metrics'), /^kubernetes_build_info\{.*git_version="v1\.36\.2",.*major="1",minor="36",/m);
});

test('/metrics: every recorded metric exists, or is listed with a reason', () => {
  const families = new Map(
    agent.metrics.families().map(({ name, kind, labels }) => [name, `${kind} ${labels.toSorted().join(',')}`.trim()]),
  );
  const missing: string[] = [];
  for (const [name, form] of Object.entries(recorded.metrics)) {
    if (ABSENT.some(([pattern]) => pattern.test(name))) continue;
    if (families.get(name) !== form) missing.push(`${name}: ${families.get(name) ?? 'absent'} instead of ${form}`);
  }
  assert.deepEqual(missing, []);
});
