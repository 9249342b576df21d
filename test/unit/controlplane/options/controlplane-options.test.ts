/** Compares the flags of the control plane with those of kube-apiserver, kube-controller-manager and kube-scheduler 1.36. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type AnyFlag, formatDefault } from '../../../../api/component/flags.ts';
import { PLUGINS } from '../../../../controlplane/security/admission/plugins.ts';
import { AUTHORIZERS } from '../../../../controlplane/security/authorization/authorizers.ts';
import { controlPlaneFlags } from '../../../../controlplane/options/controlplane-options.ts';

const own = new Map(Object.values<AnyFlag>(controlPlaneFlags).map((flag) => [flag.name, flag]));

function upstream(component: string): string[][] {
  return readFileSync(join(import.meta.dirname, 'upstream', `flags-${component}.tsv`), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split('\t'));
}

/** The flags whose default differs, and the reason. */
const OTHER_DEFAULTS: Readonly<Record<string, string>> = {
  'allow-privileged': 'pods of clusters that kubeadm makes may be privileged',
  'authorization-mode': 'Node and RBAC, as kubeadm sets it',
  'cluster-cidr': 'the addresses that kubeadm users pick most',
  'enable-bootstrap-token-auth': 'as kubeadm sets it',
  'kubelet-preferred-address-types':
    'agents have addresses, and their host names are seldom resolvable, as kubeadm sets it',
  'leader-elect': 'depends on the storage',
  'node-cidr-mask-size-ipv4': 'the controller has this default in its code',
  'node-cidr-mask-size-ipv6': 'the controller has this default in its code',
  'requestheader-allowed-names': 'the certificate that the control plane makes for itself',
  'requestheader-extra-headers-prefix': 'as kubeadm sets it',
  'requestheader-group-headers': 'as kubeadm sets it',
  'requestheader-uid-headers': 'as kubeadm sets it',
  'requestheader-username-headers': 'as kubeadm sets it',
  'service-account-issuer': 'as kubeadm sets it',
  'service-cluster-ip-range': 'the range that kube-apiserver takes without the flag is deprecated',
  'tls-min-version': 'kube-apiserver takes this one without the flag',
};

/** All components share the flags of the API server with these names, because they have one port with one certificate. */
const components = ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler'] as const;
const first = new Map<string, string[]>();
for (const component of components)
  for (const row of upstream(component)) if (!first.has(row[0] ?? '')) first.set(row[0] ?? '', row);

const TYPES: Readonly<Record<string, string>> = {
  '': 'boolean',
  duration: 'duration',
  float: 'number',
  float32: 'number',
  int: 'integer',
  int32: 'integer',
  ip: 'string',
  Level: 'integer',
  mapStringString: 'map',
  portRange: 'string',
  string: 'string',
  stringArray: 'array',
  strings: 'list',
};

test('every flag that Kubernetes has as well has its type', () => {
  const wrong = [...first].flatMap(([name, [, , type = '']]) => {
    const flag = own.get(name);
    return flag === undefined || flag.type === TYPES[type] ? [] : [`${name}: ${flag.type}, ${type}`];
  });
  // The ranges of both address families are one list, and leader election depends on the storage unless it is set.
  assert.deepEqual(wrong, [
    'service-cluster-ip-range: list, string',
    'cluster-cidr: list, string',
    'leader-elect: string, ',
  ]);
});

test('every flag that Kubernetes has as well has its default, except for known differences', () => {
  const differing = [...first].flatMap(([name, [, , , wanted = '']]) => {
    const flag = own.get(name);
    if (flag === undefined) return [];
    const shown = formatDefault(flag);
    const isEmpty = wanted === '' && ['', 'false', '0', '0s'].includes(shown);
    return isEmpty || shown === wanted.replace(/^\[(.*)\]$/, '$1') ? [] : [name];
  });
  assert.deepEqual(differing.toSorted(), Object.keys(OTHER_DEFAULTS));
});

test('flags that Kubernetes does not have are few and known', () =>
  assert.deepEqual([...own.keys()].filter((name) => !first.has(name)).toSorted(), [
    'backup-dir',
    'backup-keep',
    'backup-s3-endpoint',
    'backup-s3-region',
    'backup-schedule',
    'data-dir',
    'disable',
    'etcd',
    'etcd-address',
    'etcd-binary',
    'etcd-client-port',
    'etcd-join',
    'etcd-peer-port',
    'loopback-targets',
    'manifests-dir',
    'node-services',
    'pod-network',
    'scheduler',
    'service-lb-reserved-ports',
    'standby-of',
  ]));

/** The flags of which the check accepts nothing that changes the program, and what it refuses. */
const CHECKED_ALONE: ReadonlyMap<string, string> = new Map([
  ['showHiddenMetricsForVersion', 'versions other than the previous one, in which no metric is hidden'],
  ['allowPrivileged', 'false'],
]);

test('every flag is read by the control plane or its commands, or documents why it has no effect', () => {
  const root = join(import.meta.dirname, '../../../..');
  // A flag is read as a member of its object, or taken out of it by name.
  const read = new Set(
    globSync('{controlplane,cli}/**/*.ts', { cwd: root })
      .map((path) => readFileSync(join(root, path), 'utf8'))
      .flatMap((text) => [...text.matchAll(/\.(\w+)|(?<=[{,]\s*)(\w+)(?=\s*[,}])/g)])
      .map(([, member, taken]) => member ?? taken),
  );
  const ignored = Object.entries<AnyFlag>(controlPlaneFlags)
    .filter(([key, row]) => row.noEffect === undefined && row.choices?.length !== 1 && !read.has(key))
    .map(([key]) => key)
    .filter((key) => !CHECKED_ALONE.has(key));
  assert.deepEqual(
    ignored.map(
      (key) => `no file of controlplane/ and cli/ reads ${key}: read it, or say in noEffect why nothing does`,
    ),
    [],
  );
  assert.deepEqual(
    [...CHECKED_ALONE.keys()].filter((key) => read.has(key)),
    [],
  );
});

test('the choices of the flags are the admission plugins and the authorizers that exist', () => {
  const choicesOf = (name: string): readonly string[] => own.get(name)?.choices?.toSorted() ?? [];
  const plugins = PLUGINS.map(({ name }) => name).toSorted();
  assert.deepEqual(choicesOf('enable-admission-plugins'), plugins);
  assert.deepEqual(choicesOf('disable-admission-plugins'), plugins);
  assert.deepEqual(choicesOf('authorization-mode'), AUTHORIZERS.map(({ name }) => name).toSorted());
});
