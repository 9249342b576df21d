/**
 * Tests charts with an unmodified Helm 4: install, test, upgrade, rollback and uninstall, with hooks, a definition and
 * `--wait`, by server-side and client-side apply. ORCHLET_TEST_HELM names the program, if it is not on PATH.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { skipWithoutDocker } from './container-runtimes.ts';
import { RunningCluster } from './running-cluster.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const HELM = process.env['ORCHLET_TEST_HELM'] ?? 'helm';
const version = spawnSync(HELM, ['version', '--short'], { encoding: 'utf8' }).stdout ?? '';
const skip = skipWithoutDocker !== false ? skipWithoutDocker : version.startsWith('v4') ? false : 'there is no Helm 4';

const job = (name: string, hook: string): string => `apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-${name}
  annotations: {"helm.sh/hook": "${hook}", "helm.sh/hook-delete-policy": "before-hook-creation"}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: "${DEMO_IMAGE}", command: [sh, -c, "exit {{ .Values.${name} }}"]}]
`;

const CHART: Readonly<Record<string, string>> = {
  'Chart.yaml': 'apiVersion: v2\nname: paint\nversion: 0.1.0\n',
  'values.yaml': 'color: red\nreplicas: 1\npre: 0\ncheck: 0\n',
  'crds/paints.yaml': `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: paints.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: paints, singular: paint, kind: Paint}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string}}}}}}
`,
  'templates/pre.yaml': job('pre', 'pre-install,pre-upgrade'),
  'templates/check.yaml': job('check', 'test'),
  'templates/all.yaml': `apiVersion: example.com/v1
kind: Paint
metadata: {name: {{ .Release.Name }}}
spec: {color: {{ .Values.color }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {found: {{ (lookup "v1" "Namespace" "" "kube-system").metadata.name | quote }}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "${DEMO_IMAGE}", command: [sleep, "1000"]}]
`,
  // The part of a chart of metrics-server that orchlet's own would be in the way of.
  'templates/metrics.yaml': `apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
`,
};

describe('charts with Helm 4', { skip, timeout: 240_000 }, () => {
  const directory = temporaryFolder();
  const chart = join(directory, 'chart');
  let cluster: RunningCluster;

  const helm = (...args: readonly string[]): { readonly code: number | null; readonly text: string } => {
    const homes = { HELM_CACHE_HOME: directory, HELM_CONFIG_HOME: directory, HELM_DATA_HOME: directory };
    const env = { ...process.env, ...homes, KUBECONFIG: cluster.kubeconfig };
    const done = spawnSync(HELM, args, { encoding: 'utf8', env, timeout: 120_000 });
    return { code: done.status, text: `${done.stdout}${done.stderr}` };
  };
  const succeeds = (...args: readonly string[]): string => {
    const { code, text } = helm(...args);
    assert.equal(code, 0, `helm ${args.join(' ')}: ${text}`);
    return text;
  };
  const color = (): string => cluster.run(['get', 'paint', 'r', '-o', 'jsonpath={.spec.color}']);

  before(async () => {
    for (const [path, content] of Object.entries(CHART)) {
      mkdirSync(dirname(join(chart, path)), { recursive: true });
      writeFileSync(join(chart, path), content);
    }
    cluster = await RunningCluster.start([
      ...['--service-proxy', 'none', '--cluster-cidr', '10.226.0.0/16', '--disable', 'metrics-server'],
    ]);
  });
  after(async () => {
    await cluster?.remove();
    rmSync(directory, { recursive: true, force: true });
  });

  for (const serverSide of ['true', 'false'])
    test(`go through their life, with --server-side=${serverSide}`, () => {
      const wait = ['--wait', '--timeout', '60s'];
      succeeds('install', 'r', chart, ...wait, `--server-side=${serverSide}`);
      assert.equal(cluster.run(['get', 'configmap', 'r', '-o', 'jsonpath={.data.found}']), 'kube-system');
      assert.equal(cluster.run(['get', 'deployment', 'r', '-o', 'jsonpath={.status.readyReplicas}']), '1');
      const service = ['get', 'apiservice', 'v1beta1.metrics.k8s.io', '-o', 'jsonpath={.spec.service.name}'];
      assert.equal(cluster.run(service), 'r');
      assert.match(succeeds('test', 'r', '--timeout', '60s'), /Succeeded/);
      succeeds('upgrade', 'r', chart, '--set', 'color=blue,replicas=2', ...wait);
      assert.equal(color(), 'blue');
      const refused = helm('upgrade', 'r', chart, '--set', 'color=green,pre=1', ...wait);
      assert.equal(refused.code, 1);
      assert.match(refused.text, /pre-upgrade hooks failed/);
      assert.equal(color(), 'blue');
      succeeds('rollback', 'r', '1', ...wait);
      assert.equal(color(), 'red');
      assert.equal(cluster.run(['get', 'deployment', 'r', '-o', 'jsonpath={.spec.replicas}']), '1');
      succeeds('uninstall', 'r', ...wait);
      assert.notEqual(cluster.kubectl(['get', 'deployment', 'r']).code, 0);
    });
});
