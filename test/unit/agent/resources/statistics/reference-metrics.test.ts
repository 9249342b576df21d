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

/** The names with their types and labels, without those of the Go runtime: recorded, and from the kubelet's list of metrics. */
const recorded = JSON.parse(await readFile(join(import.meta.dirname, 'reference-metrics.json'), 'utf8')) as Record<
  Page,
  Record<string, string>
>;

/** The metrics that exist only with an option that this test does not set. */
const CONDITIONAL = /^kubelet_credential_provider_|^kubelet_cpu_manager_allocation_per_numa$/;

/** The metrics that the documentation lists as absent. A star stands for any end of a name. */
const absent = [
  ...(await readFile(join(import.meta.dirname, '../../../../../docs/operations.md'), 'utf8'))
    .replace(/^[^]*### Metrics of the kubelet that agents lack\n/, '')
    .replace(/\n##[^]*$/, '')
    .matchAll(/^\| (`.*?`) \|/gm),
]
  .flatMap(([, names = '']) => [...names.matchAll(/`([^`]+)`/g)])
  .map(([, name = '']) => new RegExp(`^${name.replaceAll('*', '.*')}$`));

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

test('/metrics: every recorded metric exists, or the documentation says why it does not', () => {
  const families = new Map(
    agent.metrics.families().map(({ name, kind, labels }) => [name, `${kind} ${labels.toSorted().join(',')}`.trim()]),
  );
  const differing = Object.entries(recorded.metrics).flatMap(([name, form]) => {
    const found = families.get(name);
    if (absent.some((pattern) => pattern.test(name))) return found === undefined ? [] : [`${name} is not absent`];
    if (found === form || (found === undefined && CONDITIONAL.test(name))) return [];
    return [`${name}: ${found ?? 'absent'} instead of ${form}`];
  });
  assert.deepEqual(differing, []);
  const names = Object.keys(recorded.metrics);
  assert.deepEqual(
    absent.filter((pattern) => !names.some((name) => pattern.test(name))),
    [],
    'the documentation lists metrics that the kubelet does not have',
  );
});
