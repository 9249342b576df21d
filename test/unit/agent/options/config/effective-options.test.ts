/** Tests configuration files: precedence, rejected files with their positions, feature gates, and `/configz`. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { before, test } from 'node:test';
import { configz } from '../../../../../agent/options/config/configz.ts';
import {
  type EffectiveOptions,
  effectiveOptions,
  preferFileWarnings,
} from '../../../../../agent/options/config/effective-options.ts';
import { agentFlags, agentOptions } from '../../../../../agent/options/agent-options.ts';
import type { AnyOption } from '../../../../../agent/options/option.ts';
import { parseFlags } from '../../../../../api/component/flags.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

let directory = '';
before(async () => {
  directory = temporaryFolder();
});

const HEADER = 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n';
/** Options of an agent without an API server, which cannot use the stricter webhook defaults of a file. */
const ALONE = 'authentication:\n  webhook:\n    enabled: false\nauthorization:\n  mode: AlwaysAllow\n';

async function file(name: string, text: string): Promise<string> {
  const path = join(directory, name);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, text);
  return path;
}

async function load(...argv: string[]): Promise<EffectiveOptions> {
  const { values, given } = parseFlags(agentFlags, argv);
  return effectiveOptions({ values, given });
}

async function refusal(text: string): Promise<string> {
  const path = await file(`bad-${Math.abs(hash(text))}.yaml`, text);
  const error = await load('--config', path).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof Error && error.name === 'ConfigurationError', 'the file must be refused');
  return error.message.replaceAll(path, 'FILE');
}

function hash(text: string): number {
  return [...text].reduce((sum, letter) => (sum * 31 + (letter.codePointAt(0) ?? 0)) | 0, 7);
}

test('flags go before drop-ins, drop-ins before the file, the file before defaults', async () => {
  const config = await file(
    'order/config.yaml',
    `${HEADER}${ALONE}maxPods: 10\npodsPerCore: 5\nsyncFrequency: 30s\nclusterDomain: file\n`,
  );
  await file('order/drop/20-second.conf', `${HEADER}maxPods: 30\n`);
  await file('order/drop/10-first.conf', `${HEADER}maxPods: 20\nclusterDomain: dropped\n`);
  await file('order/drop/ignored.yaml', `${HEADER}maxPods: 99\n`);
  const options = await load(
    '--config',
    config,
    '--config-dir',
    join(directory, 'order/drop'),
    '--cluster-domain=flag',
  );
  const { flags, origins } = options;
  assert.deepEqual(
    [flags.maxPods, flags.podsPerCore, flags.syncFrequency, flags.clusterDomain, flags.port],
    [30, 5, 30_000, 'flag', 10_250],
  );
  assert.equal(origins.get('maxPods'), join(directory, 'order/drop/20-second.conf'));
  assert.equal(origins.get('podsPerCore'), config);
  assert.equal(origins.get('clusterDomain'), 'flag');
  assert.equal(origins.get('port'), 'default');
});

test('drop-ins merge maps, replace lists, and null takes back the value of a drop-in, not that of the file', async () => {
  const config = await file(
    'merge/config.yaml',
    `${HEADER}${ALONE}kubeReserved:\n  cpu: 100m\n  memory: 1Gi\nclusterDNS: [10.0.0.10]\nmaxPods: 7\n`,
  );
  await file(
    'merge/drop/a.conf',
    `${HEADER}kubeReserved:\n  cpu: 200m\nclusterDNS: [10.0.0.11]\nmaxPods: null\npodsPerCore: 3\n`,
  );
  await file('merge/drop/b.conf', `${HEADER}podsPerCore: null\n`);
  const { flags } = await load('--config', config, '--config-dir', join(directory, 'merge/drop'));
  assert.deepEqual(flags.kubeReserved, { cpu: '200m', memory: '1Gi' });
  assert.deepEqual(flags.clusterDns, ['10.0.0.11']);
  assert.deepEqual([flags.maxPods, flags.podsPerCore], [7, 0]);
});

test('zero in a drop-in is zero, because drop-ins are merged after the defaults are set', async () => {
  const config = await file('zeros/config.yaml', `${HEADER}${ALONE}maxPods: 7\n`);
  const all = 'maxPods: 0\nkubeAPIBurst: 0\nevictionPressureTransitionPeriod: 0s\nclusterDomain: ""\n';
  await file('zeros/drop/a.conf', `${HEADER}${all}`);
  const options = await load('--config', config, '--config-dir', join(directory, 'zeros/drop'));
  const { maxPods, kubeApiBurst, evictionPressureTransitionPeriod } = options.flags;
  assert.deepEqual([maxPods, kubeApiBurst, evictionPressureTransitionPeriod], [0, 0, 0]);
  await file('zeros/drop/b.conf', `${HEADER}syncFrequency: 0s\n`);
  await assert.rejects(
    load('--config', config, '--config-dir', join(directory, 'zeros/drop')),
    /the field syncFrequency must be longer than 0/,
  );
});

test('a field of the configuration file for which zero differs from absent keeps zero', () => {
  const types = new Map<string, (readonly [name: string, type: string])[]>();
  const recorded = readFileSync(join(import.meta.dirname, '../upstream/kubelet-config-v1beta1.tsv'), 'utf8');
  for (const line of recorded.split('\n')) {
    const [owner = '', name = '', type = ''] = line.split('\t');
    types.set(owner, [...(types.get(owner) ?? []), [name, type]]);
  }
  const pointers = new Set<string>();
  const walk = (owner: string, prefix: string): void => {
    for (const [name, type] of types.get(owner) ?? []) {
      if (type.startsWith('*')) pointers.add(`${prefix}${name}`);
      walk(type.replace('*', ''), `${prefix}${name}.`);
    }
  };
  walk('KubeletConfiguration', '');
  const losing = Object.values<AnyOption>(agentOptions)
    .filter(({ config }) => config !== undefined && pointers.has(config.path) && config.keepsZero !== true)
    .map(({ config }) => config?.path);
  assert.deepEqual(losing, []);
  assert.ok(pointers.size > 30);
});

test('drop-ins are those that end in .conf, folder by folder in the order of their names', async () => {
  const config = await file('walk/config.yaml', `${HEADER}${ALONE}maxPods: 1\n`);
  await file('walk/drop/10.conf', `${HEADER}maxPods: 10\nport: 1010\n`);
  await file('walk/drop/10/99.conf', `${HEADER}maxPods: 99\nport: 1099\nreadOnlyPort: 99\n`);
  await file('walk/drop/20.yaml', 'this is no configuration');
  const { flags, origins } = await load('--config', config, '--config-dir', join(directory, 'walk/drop'));
  assert.deepEqual([flags.maxPods, flags.port, flags.readOnlyPort], [10, 1010, 99]);
  assert.equal(origins.get('readOnlyPort'), join(directory, 'walk/drop/10/99.conf'));
});

test('a configuration file brings the stricter defaults of the file', async () => {
  const config = await file('strict.yaml', HEADER);
  const { flags } = await load('--config', config, '--kubeconfig', '/nowhere');
  assert.deepEqual(
    [flags.anonymousAuth, flags.authenticationTokenWebhook, flags.authorizationMode, flags.readOnlyPort],
    [false, true, 'Webhook', 0],
  );
  await assert.rejects(
    load('--config', config),
    /authorization.mode \(--authorization-mode\) Webhook needs an API server/,
  );
});

test('zero in the file is the default, except where zero is a value', async () => {
  const config = await file(
    'zero.yaml',
    `${HEADER}${ALONE}maxPods: 0\nhealthzPort: 0\nregistryPullQPS: 0\nkubeAPIQPS: 0\nenableServer: false\n`,
  );
  const { flags } = await load('--config', config);
  assert.deepEqual(
    [flags.maxPods, flags.healthzPort, flags.registryQps, flags.kubeApiQps, flags.enableServer],
    [110, 0, 0, 0, false],
  );
});

test('paths in a file are relative to it', async () => {
  const config = await file(
    'paths/config.yaml',
    `${HEADER}${ALONE}staticPodPath: manifests\ntlsCertFile: /etc/x.crt\n`,
  );
  const { flags } = await load('--config', config);
  assert.deepEqual([flags.podManifestPath, flags.tlsCertFile], [join(directory, 'paths/manifests'), '/etc/x.crt']);
});

test('JSON is accepted, and special forms become the values of flags', async () => {
  const config = await file(
    'special.json',
    JSON.stringify({
      apiVersion: 'kubelet.config.k8s.io/v1beta1',
      kind: 'KubeletConfiguration',
      authentication: { webhook: { enabled: false } },
      authorization: { mode: 'AlwaysAllow' },
      registerWithTaints: [
        { key: 'a', value: 'b', effect: 'NoSchedule' },
        { key: 'c', effect: 'NoExecute' },
      ],
      staticPodURLHeader: { 'X-Token': ['one', 'two'] },
      evictionHard: { 'memory.available': '5%' },
      featureGates: { AllAlpha: false },
      logging: { verbosity: 3, format: 'json', flushFrequency: 5_000_000_000 },
      tlsCurvePreferences: [29, 23],
      crashLoopBackOff: { maxContainerRestartPeriod: '30s' },
    }),
  );
  const { flags } = await load('--config', config);
  assert.deepEqual(flags.registerWithTaints, ['a=b:NoSchedule', 'c:NoExecute']);
  assert.deepEqual(flags.manifestUrlHeader, ['X-Token:one', 'X-Token:two']);
  assert.deepEqual(flags.evictionHard, { 'memory.available': '5%' });
  assert.deepEqual(flags.tlsCurvePreferences, ['29', '23']);
  assert.deepEqual([flags.verbosity, flags.loggingFormat, flags.maxContainerRestartPeriod], [3, 'json', 30_000]);
});

test('thresholds of a drop-in are merged with the defaults; those of a file replace them, unless it requests a merge', async () => {
  await file('hard/drop/a.conf', `${HEADER}evictionHard:\n  memory.available: 1Gi\n`);
  const dropped = await load('--config-dir', join(directory, 'hard/drop'));
  assert.equal(dropped.flags.evictionHard['nodefs.available'], '10%');
  assert.equal(dropped.flags.evictionHard['memory.available'], '1Gi');
  const alone = await load(
    '--config',
    await file('hard/alone.yaml', `${HEADER}${ALONE}evictionHard:\n  memory.available: 1Gi\n`),
  );
  assert.deepEqual(alone.flags.evictionHard, { 'memory.available': '1Gi' });
  const merged = await load(
    '--config',
    await file(
      'hard/merged.yaml',
      `${HEADER}${ALONE}mergeDefaultEvictionSettings: true\nevictionHard:\n  memory.available: 1Gi\n`,
    ),
  );
  assert.equal(Object.keys(merged.flags.evictionHard).length, 4);
});

const bad: readonly (readonly [what: string, text: string, message: RegExp])[] = [
  ['an unknown field', `${HEADER}maxPodz: 3\n`, /^FILE:3:1: unknown field "maxPodz" \(did you mean maxPods\?\)$/],
  [
    'an unknown field further in',
    `${HEADER}authentication:\n  x509:\n    caFile: a\n`,
    /^FILE:5:5: unknown field "authentication.x509.caFile"/,
  ],
  [
    'an unknown version',
    'kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1\n',
    /^FILE:2:13: unknown version "kubelet.config.k8s.io\/v1": only kubelet.config.k8s.io\/v1beta1 is read$/,
  ],
  ['an unknown kind', 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Pod\n', /^FILE:2:7: unknown kind "Pod"/],
  ['no kind', 'apiVersion: kubelet.config.k8s.io/v1beta1\n', /^FILE:1:1: kind is missing/],
  ['a wrong type', `${HEADER}maxPods: many\n`, /^FILE:3:10: maxPods must be a whole number, not "many"$/],
  ['a wrong value', `${HEADER}port: 70000\n`, /^FILE:3:7: port must be between 0 and 65535, inclusive$/],
  [
    'a duration without unit',
    `${HEADER}syncFrequency: 10\n`,
    /^FILE:3:16: syncFrequency must be a duration such as "30s", not 10$/,
  ],
  ['an amount that is no text', `${HEADER}kubeReserved:\n  cpu: 1\n`, /^FILE:4:3: kubeReserved must be a map of text/],
  ['a map that is a list', `${HEADER}authentication: [a]\n`, /^FILE:3:17: authentication must be a map$/],
  [
    'a value that is none of the known ones',
    `${HEADER}cgroupDriver: none\n`,
    /^FILE:3:15: cgroupDriver must be one of "cgroupfs", "systemd"$/,
  ],
  ['a key that stands twice', `${HEADER}maxPods: 1\nmaxPods: 2\n`, /^FILE:4:1: the field "maxPods" is set twice$/],
  ['a file that is no YAML', `${HEADER}maxPods: [\n`, /^FILE:\d+:\d+: /],
  ['a list', '- a\n', /^FILE:1:1: must hold a KubeletConfiguration$/],
  ['an empty file', '', /^FILE:1:1: must hold a KubeletConfiguration$/],
  [
    'every mistake at once',
    `${HEADER}foo: 1\nmaxPods: x\n`,
    /^FILE:3:1: unknown field "foo"\nFILE:4:10: maxPods must be/,
  ],
];
for (const [what, text, message] of bad)
  test(`${what} is refused with line and column`, async () => assert.match(await refusal(text), message));

test('errors in JSON have positions too', async () => {
  assert.match(
    await refusal('{"apiVersion": "kubelet.config.k8s.io/v1beta1",\n "kind": "KubeletConfiguration",\n "foo": 1}'),
    /^FILE:3:3: unknown field "foo"/,
  );
});

test('aliases that unfold to too much are refused', async () => {
  const lines = ['a: &a [x,x,x,x,x,x,x,x,x,x]'];
  for (let index = 1; index < 9; index++)
    lines.push(
      `${String.fromCodePoint(97 + index)}: &${String.fromCodePoint(97 + index)} [${Array.from({ length: 10 }, () => `*${String.fromCodePoint(96 + index)}`).join(',')}]`,
    );
  assert.match(await refusal(`${HEADER}${lines.join('\n')}\n`), /excessive aliasing/);
});

test('a missing file or directory is reported by its name', async () => {
  await assert.rejects(
    load('--config', join(directory, 'none.yaml')),
    /the configuration file .*none\.yaml cannot be read/,
  );
  await assert.rejects(
    load('--config-dir', join(directory, 'none')),
    /the directory of drop-ins .*none cannot be read/,
  );
});

test('a field of the file without effect is reported once, unless it has the default', async () => {
  const config = await file(
    'noeffect.yaml',
    `${HEADER}${ALONE}memoryThrottlingFactor: 0.5\nmemoryReservationPolicy: None\n`,
  );
  const { warnings } = await load('--config', config);
  assert.deepEqual(warnings, [
    `${config}: the field memoryThrottlingFactor has no effect: the alpha feature MemoryQoS is not implemented`,
  ]);
});

test('a flag without effect and a deprecated flag cause a warning when they are set', () => {
  const { warnings } = parseFlags(agentFlags, [
    '--docker-endpoint=unix:///x',
    '--system-cgroups=/system',
    '--register-schedulable=false',
  ]);
  assert.deepEqual(warnings, [
    'Flag --system-cgroups has no effect: system processes are not moved',
    'Flag --register-schedulable has been deprecated, will be removed in a future version',
  ]);
});

test('a flag with a field in the file causes a warning that names the field', () => {
  const { given } = parseFlags(agentFlags, ['--max-pods=3', '--kubeconfig=x', '-v=2']);
  assert.deepEqual(preferFileWarnings(given), [
    "Flag --max-pods has been deprecated, This parameter should be set via the config file specified by the kubelet's --config flag. See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information.",
  ]);
});

test('feature gates: unknown and locked ones are rejected, graduated ones and those without effect cause a warning', async () => {
  await assert.rejects(load('--feature-gates=Nope=true'), /^ConfigurationError: unrecognized feature gate: Nope$/);
  await assert.rejects(
    load('--feature-gates=SidecarContainers=false'),
    /cannot set feature gate SidecarContainers to false, feature is locked to true/,
  );
  await assert.rejects(load('--feature-gates=WatchList=maybe'), /invalid value of WatchList: maybe/);
  const { warnings } = await load('--feature-gates=SidecarContainers=true,EphemeralContainers=false,WatchList=true');
  assert.equal(warnings.length, 2);
  assert.equal(warnings[0], 'Setting GA feature gate SidecarContainers=true. It will be removed in a future release.');
  assert.match(warnings[1] ?? '', /^Feature gate EphemeralContainers has no effect: /);
});

test('AllAlpha turns alpha gates on, single gates go before it; gates of flag and file are merged', async () => {
  assert.equal((await load('--feature-gates=AllAlpha=true')).gates.enabled('ReduceDefaultCrashLoopBackOffDecay'), true);
  assert.equal(
    (await load('--feature-gates=AllAlpha=true,ReduceDefaultCrashLoopBackOffDecay=false')).gates.enabled(
      'ReduceDefaultCrashLoopBackOffDecay',
    ),
    false,
  );
  const config = await file(
    'gates.yaml',
    `${HEADER}${ALONE}featureGates:\n  ReduceDefaultCrashLoopBackOffDecay: true\n  KubeletCrashLoopBackOffMax: true\n`,
  );
  const { gates, flags } = await load('--config', config, '--feature-gates=KubeletCrashLoopBackOffMax=false');
  assert.deepEqual(
    [gates.enabled('ReduceDefaultCrashLoopBackOffDecay'), gates.enabled('KubeletCrashLoopBackOffMax')],
    [true, false],
  );
  assert.deepEqual(flags.featureGates, {
    ReduceDefaultCrashLoopBackOffDecay: 'true',
    KubeletCrashLoopBackOffMax: 'false',
  });
});

const together: readonly (readonly [flags: readonly string[], message: RegExp])[] = [
  [['--image-gc-low-threshold=90'], /imageGCLowThresholdPercent \(--image-gc-low-threshold\) 90 must be less than/],
  [
    ['--eviction-soft=memory.available<1Gi'],
    /grace period must be specified for the soft eviction threshold memory.available/,
  ],
  [['--exit-on-lock-contention'], /cannot exit on lock file contention: no lock file specified/],
  [['--cgroups-per-qos=false'], /is not supported unless cgroupsPerQOS/],
  [
    ['--enforce-node-allocatable=pods,kube-reserved'],
    /kubeReservedCgroup \(--kube-reserved-cgroup\) must be specified/,
  ],
  [['--authorization-mode=Webhook'], /needs an API server to ask/],
  [
    ['--rotate-server-certificates', '--feature-gates=RotateKubeletServerCertificate=false'],
    /needs the feature gate RotateKubeletServerCertificate/,
  ],
];
for (const [flags, message] of together)
  test(`${flags.join(' ')} is refused`, async () => assert.rejects(load(...flags), message));

test('the certificates stand in the root directory that was given', async () => {
  assert.equal((await load('--root-dir=/x')).flags.certDir, '/x/pki');
  assert.equal((await load('--root-dir=/x', '--cert-dir=/y')).flags.certDir, '/y');
  assert.equal((await load()).flags.certDir, '/var/lib/kubelet/pki');
});

/** The fields in which the flags and defaults of the recorded kubelet differ from ours. */
const OTHER_DEFAULTS: Readonly<Record<string, unknown>> = {
  rotateCertificates: true,
  enforceNodeAllocatable: ['pods'],
  evictionHard: {
    'imagefs.available': '15%',
    'memory.available': '100Mi',
    'nodefs.available': '10%',
    'nodefs.inodesFree': '5%',
  },
};

test('/configz has the form of the kubelet', async () => {
  const recorded = JSON.parse(await readFile(join(import.meta.dirname, 'upstream-configz.json'), 'utf8')) as {
    kubeletconfig: object;
  };
  const options = await load(
    '--pod-manifest-path=/etc/kubernetes/manifests',
    '--file-check-frequency=1s',
    '--port=20250',
    '--read-only-port=20255',
    '--healthz-port=20248',
    '--tls-cert-file=/var/lib/kubelet/pki/kubelet.crt',
    '--tls-private-key-file=/var/lib/kubelet/pki/kubelet.key',
    '--oom-score-adj=0',
    '--cluster-dns=10.96.0.10',
    '--fail-swap-on=false',
    '--container-runtime-endpoint=unix:///run/containerd/containerd.sock',
  );
  assert.deepEqual(configz(options).kubeletconfig, { ...recorded.kubeletconfig, ...OTHER_DEFAULTS });
});

test('/configz shows the cgroup driver in effect, which the runtime determines', async () => {
  const options = await load();
  const shown = configz(options, { cgroupDriver: 'systemd' });
  assert.equal((shown.kubeletconfig as { cgroupDriver?: string }).cgroupDriver, 'systemd');
  assert.equal(shown.origins['cgroupDriver'], 'runtime');
  assert.equal((configz(options).kubeletconfig as { cgroupDriver?: string }).cgroupDriver, 'cgroupfs');
});

test('/configz shows the origin of values, and flags without a field', async () => {
  const config = await file('configz.yaml', `${HEADER}${ALONE}maxPods: 4\n`);
  const { origins, flags } = configz(await load('--config', config, '--node-ip=10.0.0.1', '--port=1'));
  assert.deepEqual(
    [origins['maxPods'], origins['port'], origins['address'], origins['--node-ip']],
    [config, 'flag', 'default', 'flag'],
  );
  assert.deepEqual(flags['node-ip'], ['10.0.0.1']);
});

test('/configz shows no password of a flag', async () => {
  const { flags } = configz(await load('--storage-driver-password=hidden'));
  assert.equal(flags['storage-driver-password'], 'CLASSIFIED');
});

test('the output of /configz is a file that results in the same options', async () => {
  const first = await load(
    '--max-pods=9',
    '--feature-gates=WatchList=false',
    '--register-with-taints=a=b:NoSchedule',
    '--reserved-memory=0:memory=1Gi',
    '--vmodule=a=2',
    '--manifest-url-header=A:b',
  );
  const config = await file('again.json', JSON.stringify(configz(first).kubeletconfig));
  const second = await load('--config', config);
  assert.deepEqual(configz(second).kubeletconfig, configz(first).kubeletconfig);
});
