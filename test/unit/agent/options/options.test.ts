/** Tests that the option table is complete and that no option is silently ignored. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { formatDefault, formatFlags, parseFlags } from '../../../../api/component/flags.ts';
import { agentFlags, agentOptions } from '../../../../agent/options/agent-options.ts';
import { activeGates, featureGates } from '../../../../agent/options/feature-gates.ts';
import type { AnyOption } from '../../../../agent/options/option.ts';

const ROOT = join(import.meta.dirname, '../../../..');
const options = Object.entries<AnyOption>(agentOptions);

function upstream(file: string): string[][] {
  const text = readFileSync(join(import.meta.dirname, 'upstream', file), 'utf8');
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split('\t'));
}

/**
 * The files that read option values: the agent and its commands, without the table and code that only copies or
 * compares values.
 */
const readers = globSync(['agent/**/*.ts', 'cli/commands/agent.ts'], { cwd: ROOT })
  .filter(
    (path) =>
      (!path.startsWith('agent/options/') || path.startsWith('agent/options/config/')) &&
      !/config\/(configz|validate-options)\.ts$/.test(path),
  )
  .map((path) => readFileSync(join(ROOT, path), 'utf8'))
  .join('\n');

test('every option is read by the agent, or documents why it has no effect', () => {
  const ignored = options.filter(
    ([key, row]) => row.noEffect === undefined && !new RegExp(`\\b(flags|values)\\.${key}\\b`).test(readers),
  );
  assert.deepEqual(
    ignored.map(([key]) => `no file below agent/ reads flags.${key}: read it, or say in noEffect why nothing does`),
    [],
  );
});

test('no option that is read claims to have no effect', () => {
  const wrong = options.filter(
    ([key, row]) => row.noEffect !== undefined && new RegExp(`\\bflags\\.${key}\\b`).test(readers),
  );
  assert.deepEqual(
    wrong.map(([key]) => key),
    [],
  );
});

test('every feature gate with an effect is read', () => {
  const unasked = Object.keys(activeGates).filter(
    (gate) =>
      !new RegExp(`enabled\\('${gate}'\\)`).test(
        `${readers}${readFileSync(join(ROOT, 'agent/options/config/validate-options.ts'), 'utf8')}`,
      ),
  );
  assert.deepEqual(unasked, []);
});

test('every flag of the kubelet exists, with its type', () => {
  const names = new Map(options.map(([, row]) => [row.name, row]));
  const types: Readonly<Record<string, string>> = {
    ip: 'string',
    int: 'integer',
    int32: 'integer',
    Level: 'integer',
    mapStringString: 'map',
    mapStringBool: 'map',
    strings: 'list',
    duration: 'duration',
    string: 'string',
    quantity: 'string',
  };
  const wrong = upstream('flags-kubelet.tsv')
    .filter(
      ([name = '', , type = '']) =>
        name !== 'help' &&
        (names.get(name) === undefined || (types[type] !== undefined && names.get(name)?.type !== types[type])),
    )
    .map(([name]) => name);
  // The kubelet's type of an address list is comma-separated text.
  assert.deepEqual(wrong, ['node-ip']);
});

/** The flags whose default differs from the kubelet's, and the reason. */
const OTHER_DEFAULTS: Readonly<Record<string, string>> = {
  'container-runtime-endpoint': 'the socket that answers is taken',
  'eviction-hard': 'the thresholds that the documentation of the kubelet 1.24 states',
  'experimental-mounter-path': 'the value that the documentation of the kubelet 1.24 states',
  'fail-cgroupv1': 'both versions are supported',
  'rotate-certificates': 'a node that was bootstrapped keeps its identity',
};

test("every flag has the kubelet's default, except for known differences", () => {
  const names = new Map(options.map(([, row]) => [row.name, row]));
  const differing = upstream('flags-kubelet.tsv').flatMap(([name = '', , , wanted = '']) => {
    const row = names.get(name);
    if (row === undefined) return [];
    const shown = formatDefault(row);
    const isEmpty = wanted === '' && ['false', '0', '0s'].includes(shown);
    return isEmpty || shown === wanted.replace(/^\[(.*)\]$/, '$1') ? [] : [name];
  });
  assert.deepEqual(differing, Object.keys(OTHER_DEFAULTS));
});

test('every field of the configuration file exists', () => {
  const rows = upstream('kubelet-config-v1beta1.tsv').map(([type = '', field = '', goType = '']) => ({
    type,
    field,
    goType,
  }));
  const own = new Set(rows.map(({ type }) => type));
  const paths = (type: string, prefix: string): string[] =>
    rows
      .filter((row) => row.type === type)
      .flatMap(({ field, goType }) => {
        const inner = goType.replace(/^\*/, '').replace(/^(\w+Configuration|\w+)$/, '$1');
        return own.has(inner) && !goType.startsWith('[]') ? paths(inner, `${prefix}${field}.`) : [`${prefix}${field}`];
      });
  const known = new Set(options.map(([, row]) => row.config?.path ?? ''));
  const isKnown = (path: string): boolean =>
    known.has(path) || [...known].some((other) => other.startsWith(`${path}.`));
  assert.deepEqual(
    paths('KubeletConfiguration', '').filter((path) => !isKnown(path)),
    [],
  );
});

test('names, keys and paths are unique', () => {
  const names = options.map(([, row]) => row.name).filter((name) => name !== '');
  const paths = options.flatMap(([, row]) => row.config?.path ?? []);
  assert.equal(new Set(names).size, names.length);
  assert.equal(new Set(paths).size, paths.length);
});

test('every feature gate of Kubernetes 1.36 exists, with the stage and the default of 1.24 if that release has it', () => {
  const missing = upstream('feature-gates-1.36.tsv').filter(([name = '']) => !featureGates.has(name));
  assert.deepEqual(missing, []);
  const differing = upstream('feature-gates-1.36.tsv').filter(([name = '', stage = '', on = '']) => {
    const gate = featureGates.get(name);
    return gate?.releases === '1.36' && (gate.stage.toUpperCase() !== stage || String(gate.default) !== on);
  });
  assert.deepEqual(differing, []);
  assert.deepEqual(featureGates.get('GracefulNodeShutdown'), {
    stage: 'beta',
    default: true,
    locked: false,
    releases: '1.24 and 1.36',
  });
  assert.deepEqual(featureGates.get('ContextualLogging'), {
    stage: 'alpha',
    default: false,
    locked: false,
    releases: '1.24 and 1.36',
  });
  assert.deepEqual(featureGates.get('EphemeralContainers'), {
    stage: 'beta',
    default: true,
    locked: false,
    releases: '1.24',
  });
  assert.deepEqual(featureGates.get('WatchList'), { stage: 'beta', default: true, locked: false, releases: '1.36' });
});

test('help stays within 80 columns', () => {
  const long = formatFlags(agentFlags, 80)
    .split('\n')
    .filter((line) => line.length > 80);
  assert.deepEqual(long, []);
});

test('defaults that matter most are as documented', () => {
  const { values } = parseFlags(agentFlags, []);
  assert.deepEqual(
    [
      values.kubeApiQps,
      values.kubeApiBurst,
      values.eventQps,
      values.eventBurst,
      values.readOnlyPort,
      values.anonymousAuth,
      values.authorizationMode,
      values.failSwapOn,
    ],
    [50, 100, 50, 100, 10_255, true, 'AlwaysAllow', true],
  );
});

test('every default passes its own check', () => {
  const wrong = options.filter(
    ([, row]) => (row.check as ((value: unknown) => string | undefined) | undefined)?.(row.default) !== undefined,
  );
  assert.deepEqual(
    wrong.map(([key]) => key),
    [],
  );
});

test('flags accept the values that the kubelet accepts', () => {
  const parse = (...words: string[]): ReturnType<typeof parseFlags<typeof agentFlags>>['values'] =>
    parseFlags(agentFlags, words).values;
  assert.equal(parse('--max-pods', '20').maxPods, 20);
  assert.equal(parse('--max_pods=21').maxPods, 21);
  assert.equal(parse('--anonymous-auth=false').anonymousAuth, false);
  assert.equal(parse('--runonce').runonce, true);
  assert.equal(parse('-v=4').verbosity, 4);
  assert.equal(parse('-v4').verbosity, 4);
  assert.equal(parse('--v', '0x10').verbosity, 16);
  assert.equal(parse('--max-pods=010').maxPods, 8);
  assert.equal(parse('--oom-score-adj=-0b11').oomScoreAdj, -3);
  assert.equal(parse('--sync-frequency=1h1.5m').syncFrequency, 3_690_000);
  assert.deepEqual(parse('--kube-reserved', 'cpu=100m, memory=1Gi', '--kube-reserved=pid=10').kubeReserved, {
    cpu: '100m',
    memory: '1Gi',
    pid: '10',
  });
  assert.deepEqual(parse('--enforce-node-allocatable=').enforceNodeAllocatable, []);
  assert.equal(parse('--version').version, 'true');
  assert.equal(parse('--version=raw').version, 'raw');
  assert.deepEqual(parse('--eviction-hard', 'memory.available<1Gi,nodefs.available<10%').evictionHard, {
    'memory.available': '<1Gi',
    'nodefs.available': '<10%',
  });
  assert.deepEqual(parse('--node-ip', '10.0.0.1,fd00::1').nodeIp, ['10.0.0.1', 'fd00::1']);
  assert.deepEqual(parse('--cluster-dns=10.0.0.10', '--cluster-dns=10.0.0.11').clusterDns, ['10.0.0.10', '10.0.0.11']);
});

const refused: readonly (readonly [flag: string, why: RegExp])[] = [
  ['--port=70000', /invalid argument "70000" for "--port" flag: must be between 0 and 65535, inclusive/],
  ['--node-ip=10.0.0.1,10.0.0.2', /one IPv4 and one IPv6/],
  ['--node-ip=::,10.0.0.1', /dual-stack must not include '0.0.0.0' or '::'/],
  [
    '--node-labels=node-role.kubernetes.io/worker=',
    /unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: \[node-role.kubernetes.io\/worker\]/,
  ],
  ['--register-with-taints=a=b', /invalid taint spec: a=b/],
  ['--register-with-taints=a=b:Never', /unsupported taint effect/],
  ['--kube-reserved=disk=1Gi', /cannot reserve "disk" resource/],
  ['--eviction-hard=disk.available<5%', /unsupported eviction signal disk.available/],
  ['--tls-cipher-suites=TLS_NULL', /Cipher suite TLS_NULL not supported or doesn't exist/],
  ['--container-log-max-size=large', /is not a quantity/],
  ['--pod-cidr=10.0.0.0/8,10.1.0.0/16', /must be a range such as/],
  ['--pod-cidr=10.0.0.0/33', /must be a range such as/],
  ['--max-pods=08', /must be a whole number/],
  ['--max-pods=1e3', /must be a whole number/],
  ['--sync-frequency=10', /must be a duration such as/],
  ['--anonymous-auth=yes', /must be true or false/],
  ['--anonymous-auth=', /must be true or false/],
  ['--port', /flag needs an argument: --port/],
  ['--max-pod=1', /unknown flag: --max-pod \(did you mean --max-pods\?\)/],
];
for (const [flag, why] of refused)
  test(`${flag} is refused`, () => assert.throws(() => parseFlags(agentFlags, [flag]), why));
