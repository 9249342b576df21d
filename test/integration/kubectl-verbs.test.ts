/** Tests the verbs of the oldest and the newest installed kubectl with a control plane without nodes. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { generateKeyPairSync } from 'node:crypto';
import { stringifyYaml } from '../../api/codec/yaml.ts';
import { createCsr } from '../../api/pki/certificate-request.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { kubectls } from './kubectl.ts';
import { until } from '../until.ts';

const installed = kubectls();
const [oldest] = installed;
const newest = installed.at(-1);
const chosen = [oldest, newest].filter((one, index, all) => one !== undefined && all.indexOf(one) === index);

describe('kubectl on a control plane without nodes', () => {
  let server: ControlPlaneProcess;
  before(async () => {
    server = await ControlPlaneProcess.start([
      '--controllers',
      '*,-taint-eviction-controller,-node-lifecycle-controller,-pod-garbage-collector-controller',
    ]);
  });
  after(() => server.remove());

  for (const kubectl of chosen) {
    if (kubectl === undefined) continue;
    describe(kubectl.version, () => verbs(() => server, kubectl.path, `k${kubectl.version.replace('.', '-')}`));
  }
});

function verbs(server: () => ControlPlaneProcess, path: string, namespace: string): void {
  const kubectl = (args: readonly string[], input?: string) =>
    server().kubectl(['--namespace', namespace, ...args], { path, ...(input === undefined ? {} : { input }) });
  const run = (args: readonly string[], input?: string): string => {
    const done = kubectl(args, input);
    assert.equal(done.code, 0, `kubectl ${args.join(' ')}: ${done.stderr}${done.stdout}`);
    return done.stdout;
  };
  const configMap = (name: string, data: Readonly<Record<string, string>>): string =>
    stringifyYaml({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, data });

  before(async () => {
    run(['create', 'namespace', namespace]);
    await until(
      'the service account of pods',
      () => kubectl(['get', 'serviceaccount', 'default']).code === 0 || undefined,
    );
  });

  test('apply --server-side owns fields, refuses conflicts, and overrides them with --force-conflicts', () => {
    run(['apply', '--server-side', '-f', '-'], configMap('applied', { a: '1' }));
    const other = ['apply', '--server-side', '--field-manager', 'other', '-f', '-'];
    const refused = kubectl(other, configMap('applied', { a: '2' }));
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /conflict with "kubectl"/);
    run([...other.slice(0, 2), '--force-conflicts', ...other.slice(2)], configMap('applied', { a: '2' }));
    assert.equal(run(['get', 'configmap', 'applied', '-o', 'jsonpath={.data.a}']), '2');
  });

  test('diff reports a difference by its exit code', () => {
    run(['apply', '-f', '-'], configMap('compared', { a: '1' }));
    assert.equal(kubectl(['diff', '-f', '-'], configMap('compared', { a: '1' })).code, 0);
    const differs = kubectl(['diff', '-f', '-'], configMap('compared', { a: '2' }));
    assert.equal(differs.code, 1, differs.stderr);
    assert.match(differs.stdout, /^-\s+a: "?1"?$/m);
    assert.match(differs.stdout, /^\+\s+a: "?2"?$/m);
  });

  test('explain shows nested types', () => {
    const explanation = run(['explain', 'pods', '--recursive']);
    assert.match(explanation, /ephemeralContainers/);
    assert.match(explanation, /terminationGracePeriodSeconds/);
    assert.match(run(['explain', 'deployment.spec.strategy.rollingUpdate']), /maxSurge/);
  });

  test('get reads 300 objects in chunks', () => {
    const items = Array.from({ length: 300 }, (_, index) => ({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: `chunk-${String(index).padStart(3, '0')}`, namespace, labels: { chunk: 'yes' } },
    }));
    for (let from = 0; from < items.length; from += 150) {
      const list = JSON.stringify({ apiVersion: 'v1', kind: 'List', items: items.slice(from, from + 150) });
      run(['create', '-f', '-'], list);
    }
    const names = run(['get', 'configmaps', '-l', 'chunk=yes', '--chunk-size', '50', '-o', 'name']).trim().split('\n');
    assert.deepEqual(
      names,
      items.map(({ metadata }) => `configmap/${metadata.name}`),
    );
    const { stderr } = kubectl(['get', 'configmaps', '-l', 'chunk=yes', '--chunk-size', '50', '-v', '6']);
    // Another config map comes after them, so the sixth page has a token, as in Kubernetes.
    assert.equal([...stderr.matchAll(/limit=50/g)].length, 7, stderr);
  });

  test('patch works with each of the three types', () => {
    run(['create', '-f', '-'], configMap('patched', { a: '1', b: '2' }));
    const patch = (type: string, body: unknown): string =>
      run(['patch', 'configmap', 'patched', '--type', type, '-p', JSON.stringify(body)]);
    patch('json', [{ op: 'replace', path: '/data/a', value: 'json' }]);
    patch('merge', { data: { b: null, c: 'merge' } });
    patch('strategic', { metadata: { finalizers: ['example.com/a'] } });
    patch('strategic', { metadata: { finalizers: ['example.com/b'] } });
    const found = JSON.parse(run(['get', 'configmap', 'patched', '-o', 'json']));
    assert.deepEqual(found.data, { a: 'json', c: 'merge' });
    assert.deepEqual([...found.metadata.finalizers].sort(), ['example.com/a', 'example.com/b']);
    patch('merge', { metadata: { finalizers: null } });
  });

  test('replace --force recreates the object', () => {
    run(['create', '-f', '-'], configMap('replaced', { a: '1' }));
    const uid = run(['get', 'configmap', 'replaced', '-o', 'jsonpath={.metadata.uid}']);
    run(['replace', '--force', '-f', '-'], configMap('replaced', { a: '2' }));
    assert.equal(run(['get', 'configmap', 'replaced', '-o', 'jsonpath={.data.a}']), '2');
    assert.notEqual(run(['get', 'configmap', 'replaced', '-o', 'jsonpath={.metadata.uid}']), uid);
  });

  test('create --dry-run=server stores nothing', () => {
    const shown = run(['create', '--dry-run=server', '-o', 'json', '-f', '-'], configMap('dry', {}));
    assert.ok(JSON.parse(shown).metadata.uid);
    assert.match(kubectl(['get', 'configmap', 'dry']).stderr, /\(NotFound\): configmaps "dry" not found/);
  });

  test('get prints every output format', () => {
    run(['create', '-f', '-'], configMap('printed', { a: '1', b: '2' }));
    const as = (form: string): string => run(['get', 'configmap', 'printed', '-o', form]);
    assert.match(as('yaml'), /^kind: ConfigMap$/m);
    assert.equal(JSON.parse(as('json')).data.a, '1');
    assert.match(as('wide'), /^NAME +DATA +AGE\nprinted +2 /);
    assert.equal(as('name'), 'configmap/printed\n');
    assert.match(as('custom-columns=N:.metadata.name,A:.data.a'), /^N +A\nprinted +1\n$/);
    assert.equal(as('jsonpath={.data.b}'), '2');
    assert.equal(JSON.parse(run(['get', '--raw', '/version'])).minor, '36');
  });

  test('wait returns when a condition becomes true', () => {
    run(['create', '-f', '-'], configMap('awaited', { a: '1' }));
    run(['wait', 'configmap/awaited', '--for', 'jsonpath={.data.a}=1', '--timeout', '30s']);
    run(['delete', 'configmap', 'awaited', '--wait=false']);
    run(['wait', 'configmap/awaited', '--for', 'delete', '--timeout', '30s']);
    const late = kubectl(['wait', 'configmap/printed', '--for', 'jsonpath={.data.a}=2', '--timeout', '1s']);
    assert.equal(late.code, 1);
    assert.match(late.stderr, /timed out waiting for the condition/);
  });

  test('drain empties a node', () => {
    const node = `node-${namespace}`;
    const pod = (name: string) => ({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, namespace },
      spec: { nodeName: node, terminationGracePeriodSeconds: 0, containers: [{ name: 'c', image: 'none' }] },
    });
    const nodeObject = { apiVersion: 'v1', kind: 'Node', metadata: { name: node } };
    run(
      ['create', '-f', '-'],
      JSON.stringify({ apiVersion: 'v1', kind: 'List', items: [nodeObject, pod('p1'), pod('p2')] }),
    );
    run(['drain', node, '--force', '--ignore-daemonsets', '--timeout', '40s']);
    assert.equal(run(['get', 'pods', '-o', 'name']), '');
    assert.equal(run(['get', 'node', node, '-o', 'jsonpath={.spec.unschedulable}']), 'true');
    run(['uncordon', node]);
    run(['delete', 'node', node]);
  });

  test('certificates are approved and signed', () => {
    const name = `csr-${namespace}`;
    const request = createCsr(
      { subject: { commonName: 'a-user' } },
      generateKeyPairSync('ec', { namedCurve: 'P-256' }),
    );
    const object = {
      apiVersion: 'certificates.k8s.io/v1',
      kind: 'CertificateSigningRequest',
      metadata: { name },
      spec: {
        request: Buffer.from(request).toString('base64'),
        signerName: 'kubernetes.io/kube-apiserver-client',
        usages: ['client auth'],
      },
    };
    run(['create', '-f', '-'], JSON.stringify(object));
    run(['certificate', 'approve', name]);
    run(['wait', 'csr', name, '--for', 'jsonpath={.status.conditions[0].type}=Approved', '--timeout', '30s']);
    run(['delete', 'csr', name]);
  });

  test('the other commands succeed', () => {
    assert.match(run(['auth', 'can-i', '--list']), /\*\.\* /);
    assert.match(run(['cluster-info']), /control plane.* is running at .*https:\/\//);
    assert.match(run(['api-versions']), /^apps\/v1$/m);
    const top = kubectl(['top', 'pods']);
    assert.doesNotMatch(top.stdout + top.stderr, /panic|goroutine/);
    assert.equal(kubectl(['top', 'node', 'no-such-node']).code, 1);
  });
}
