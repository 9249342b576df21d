/**
 * What a container sees of its pod, its node and its host, on both runtimes at once: one control plane, one node of each
 * runtime. Volumes that change and sub-paths stand in `volumes.test.ts`, confinement in `pod-life.ts`.
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { hostMounter } from '../../agent/volumes/mounter.ts';
import { AgentProcess, type RuntimeName } from './agent-process.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { run as runOnHost, skipWithoutContainerd, skipWithoutDocker } from './running-cluster.ts';
import { until } from '../until.ts';

const IMAGE = 'orchlet.local/demo:1';
const MEBIBYTE = 1_048_576;
const HUGE_PAGES = '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages';
const RUNTIMES: readonly RuntimeName[] = ['docker', 'containerd'];
const skip = skipWithoutDocker === false ? skipWithoutContainerd : skipWithoutDocker;

interface PodOptions {
  readonly spec?: object;
  readonly container?: object;
  readonly containers?: readonly object[];
  readonly metadata?: object;
}

describe('what a container sees', { skip, timeout: 290_000 }, () => {
  let plane: ControlPlaneProcess;
  const agents = new Map<RuntimeName, AgentProcess>();
  let host = '';
  let socket: Server | undefined;
  let loop = '';
  let pagesBefore = '';

  const run = (args: readonly string[], input?: object): string => {
    const done = plane.kubectl(args, input === undefined ? {} : { input: JSON.stringify(input) });
    assert.equal(done.code, 0, `kubectl ${args.join(' ')}: ${done.stderr}${done.stdout}`);
    return done.stdout;
  };
  const apply = (...items: object[]): void => void run(['apply', '-f', '-'], { apiVersion: 'v1', kind: 'List', items });
  const field = (name: string, path: string): string => run(['get', 'pod', name, '-o', `jsonpath={${path}}`]);
  const shell = (name: string, command: string, container = 'main'): string =>
    run(['exec', name, '-c', container, '--', 'sh', '-c', command]).trim();
  const events = (name: string): string =>
    run([
      ...['get', 'events', '--field-selector', `involvedObject.name=${name}`],
      ...['-o', 'jsonpath={range .items[*]}{.reason} {.message}{"\\n"}{end}'],
    ]);
  const ready = (name: string): void => void run(['wait', '--for=condition=Ready', `pod/${name}`, '--timeout=100s']);
  /** Bound here: the agent judges it, and no scheduler. */
  const podOf = (on: RuntimeName, name: string, { spec, container, containers, metadata }: PodOptions): object => {
    const main = { name: 'main', image: IMAGE, command: ['sleep', '100000'], ...container };
    const nodeName = agents.get(on)?.nodeName;
    return {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: `${name}-${on}`, ...metadata },
      spec: { nodeName, terminationGracePeriodSeconds: 0, containers: containers ?? [main], ...spec },
    };
  };
  /** What the tests look at is made at once, before the first of them: starting takes the longest. */
  const preparations: (() => object[])[] = [];
  /** One of each runtime. */
  const prepare = (name: string, options: PodOptions | ((on: RuntimeName) => PodOptions)): void =>
    void preparations.push(() =>
      RUNTIMES.map((on) => podOf(on, name, typeof options === 'function' ? options(on) : options)),
    );
  const prepareObjects = (objects: () => object[]): void => void preparations.push(objects);
  /** Once ready, what each says. */
  const each = async (name: string, look: (pod: string, on: RuntimeName) => Promise<void> | void): Promise<void> => {
    for (const on of RUNTIMES) {
      ready(`${name}-${on}`);
      await look(`${name}-${on}`, on);
    }
  };

  before(async () => {
    plane = await ControlPlaneProcess.start(['--cluster-cidr', '10.106.0.0/16']);
    // The whole host has them: given back in the end.
    pagesBefore = readFileSync(HUGE_PAGES, 'utf8').trim();
    writeFileSync(HUGE_PAGES, String(Number(pagesBefore) + 8));
    host = mkdtempSync(join(tmpdir(), 'orchlet-host-'));
    mkdirSync(join(host, 'directory'));
    writeFileSync(join(host, 'file'), 'of the host');
    socket = createServer().listen(join(host, 'socket'));
    loop = makeLoopDevice(join(host, 'disk'));
    mkdirSync(join(host, 'tree/inner'), { recursive: true });
    await hostMounter.mount({ source: 'tmpfs', target: join(host, 'tree/inner'), type: 'tmpfs' });
    for (const on of RUNTIMES) {
      const agent = await AgentProcess.prepare(on, [
        ...['--kubeconfig', plane.kubeconfig, '--client-ca-file', join(plane.directory, 'pki', 'ca.crt')],
        ...[
          '--cluster-dns',
          '10.96.0.10',
          '--cluster-domain',
          'cluster.local',
          '--pod-max-pids',
          '200',
          '--serve-cluster-dns=false',
        ],
        '--service-proxy=none',
      ]);
      agents.set(on, agent);
      agent.launch();
    }
    await until('two Ready nodes', () => {
      for (const agent of agents.values()) agent.assertAlive();
      const path = '{.items[*].status.conditions[?(@.type=="Ready")].status}';
      return plane.kubectl(['get', 'nodes', '-o', `jsonpath=${path}`]).stdout === 'True True' ? true : undefined;
    });
    await until('the service account', () =>
      plane.kubectl(['get', 'serviceaccount', 'default']).code === 0 ? true : undefined,
    );
    apply(...preparations.flatMap((make) => make()));
  });
  after(async () => {
    try {
      await Promise.all([...agents.values()].map((agent) => agent.remove()));
    } finally {
      await plane?.remove();
      socket?.close();
      if (loop !== '') runOnHost('losetup', ['-d', loop]);
      if (pagesBefore !== '') writeFileSync(HUGE_PAGES, pagesBefore);
      if (host !== '') await hostMounter.unmount(join(host, 'tree/inner'));
      if (host !== '') rmSync(host, { recursive: true, force: true });
    }
  });

  prepareObjects(() => [
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'settings' }, data: { A: 'map', BOTH: 'map' } },
    { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'keys' }, stringData: { S: 'secret', BOTH: 'secret' } },
  ]);
  const write = 'printf "# made by another\\nFROM=\'a file\\n of lines\'\\n" > /files/app.env';
  const file = (key: string, optional: boolean): object => ({
    fileKeyRef: { volumeName: 'files', path: 'app.env', key, optional },
  });
  prepare('variables', {
    container: {
      envFrom: [
        { configMapRef: { name: 'settings' } },
        { secretRef: { name: 'keys' } },
        { prefix: 'P_', configMapRef: { name: 'settings' } },
        { secretRef: { name: 'none', optional: true } },
      ],
      env: [
        { name: 'ONE', value: '$(A)-$(P_A)-$(LATER)-$$(A)' },
        { name: 'LATER', value: '$(ONE)' },
        { name: 'S', value: 'own' },
        { name: 'FILE', valueFrom: file('FROM', false) },
        { name: 'NO_FILE', valueFrom: file('OTHER', true) },
        { name: 'NO_KEY', valueFrom: { configMapKeyRef: { name: 'settings', key: 'none', optional: true } } },
        { name: 'NODE', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } },
        { name: 'IP', valueFrom: { fieldRef: { fieldPath: 'status.podIP' } } },
        { name: 'MASTER', value: '$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT_HTTPS)' },
      ],
      args: [],
    },
    spec: {
      initContainers: [
        {
          name: 'writer',
          image: IMAGE,
          command: ['sh', '-c', write],
          volumeMounts: [{ name: 'files', mountPath: '/files' }],
        },
      ],
      volumes: [{ name: 'files', emptyDir: {} }],
    },
  });
  test('variables stand in their order, from all their sources', async () => {
    await each('variables', (pod, on) => {
      const names = ['ONE', 'LATER', 'BOTH', 'P_BOTH', 'S', 'FILE', 'NO_FILE', 'NO_KEY', 'NODE', 'IP', 'MASTER'];
      const said = shell(pod, names.map((name) => `echo "\${${name}-unset}"`).join('; echo ==; ')).split('\n==\n');
      const one = 'map-map-$(LATER)-$(A)';
      assert.deepEqual(said, [
        ...[one, one, 'secret', 'map', 'own', 'a file\n of lines', 'unset', 'unset'],
        ...[agents.get(on)?.nodeName, field(pod, '.status.podIP'), '10.96.0.1:443'],
      ]);
    });
  });

  const limits = { cpu: '200m', memory: '96Mi' };
  const tell = (name: string, resource: string, divisor: string): object => ({
    name,
    valueFrom: { resourceFieldRef: { resource, divisor } },
  });
  const main = {
    name: 'main',
    image: IMAGE,
    command: ['sleep', '100000'],
    env: [tell('CPU', 'limits.cpu', '1m'), tell('MEMORY', 'limits.memory', '1Mi')],
  };
  prepare('whole', {
    containers: [main, { ...main, name: 'small', resources: { limits: { memory: '32Mi' } } }],
    spec: { resources: { requests: { cpu: '100m', memory: '64Mi' }, limits } },
  });
  test('resources of the pod as a whole hold its containers', async () => {
    await each('whole', (pod) => {
      assert.equal(field(pod, '.status.qosClass'), 'Burstable');
      const told =
        'echo $CPU $MEMORY; cat /proc/1/oom_score_adj; cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max';
      const capacity = Number(/^MemTotal:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]) * 1024;
      // What the pod requests beyond its containers is shared by them: 32 of 64 MiB.
      const score = (mebibytes: number): number =>
        Math.min(999, 1000 - Math.floor((1000 * mebibytes * MEBIBYTE) / capacity));
      assert.equal(shell(pod, told), `200 96\n${score(16)}\n${96 * MEBIBYTE}`);
      assert.equal(shell(pod, told, 'small'), `200 32\n${score(48)}\n${32 * MEBIBYTE}`);
      const cgroup = `kubepods/burstable/pod${field(pod, '.metadata.uid')}`;
      assert.equal(ofCgroup(cgroup, ['memory', 'memory.limit_in_bytes'], 'memory.max'), String(96 * MEBIBYTE));
      assert.match(ofCgroup(cgroup, ['cpu', 'cpu.cfs_quota_us'], 'cpu.max'), /^20000\b/);
      assert.equal(ofCgroup(cgroup, ['pids', 'pids.max'], 'pids.max'), '200');
    });
  });

  prepare('resolver', {
    spec: {
      dnsPolicy: 'ClusterFirst',
      dnsConfig: {
        nameservers: ['192.0.2.1', '192.0.2.2', '192.0.2.3'],
        searches: ['more.test'],
        options: [{ name: 'ndots', value: '2' }],
      },
      hostnameOverride: 'quite.another.name',
    },
  });
  prepare('own-names', { spec: { dnsPolicy: 'None', dnsConfig: { nameservers: ['192.0.2.9'] } } });
  prepare('on-host', {
    spec: {
      hostNetwork: true,
      hostPID: true,
      hostIPC: true,
      hostAliases: [{ ip: '192.0.2.7', hostnames: ['elsewhere'] }],
    },
  });
  prepare('too-long', { spec: { hostname: 'h'.repeat(50), subdomain: 'below', setHostnameAsFQDN: true } });
  test('names are resolved as the pod says, and what does not fit is told', async () => {
    await each('resolver', async (pod) => {
      const resolver = shell(pod, 'cat /etc/resolv.conf');
      assert.match(resolver, /^search default\.svc\.cluster\.local svc\.cluster\.local cluster\.local .*more\.test$/m);
      assert.deepEqual(
        resolver.match(/^nameserver .*$/gm),
        ['10.96.0.10', '192.0.2.1', '192.0.2.2'].map((ip) => `nameserver ${ip}`),
      );
      assert.match(resolver, /^options ndots:2$/m);
      assert.equal(shell(pod, 'hostname'), 'quite.another.name');
      await until('to be told of the one too many', () =>
        events(pod).includes(
          'DNSConfigForming Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 10.96.0.10 192.0.2.1 192.0.2.2',
        ),
      );
    });
    await each('own-names', (pod) => {
      assert.equal(shell(pod, 'grep -v "^#" /etc/resolv.conf | grep -v "^$"'), 'nameserver 192.0.2.9');
      assert.match(shell(pod, 'cat /etc/hosts'), new RegExp(`^${field(pod, '.status.podIP')}\t${pod}$`, 'm'));
    });
    await each('on-host', (pod) => {
      const [first = '', ipc, ...hosts] = shell(
        pod,
        'cat /proc/1/comm; readlink /proc/self/ns/ipc; cat /etc/hosts',
      ).split('\n');
      assert.equal(first, readFileSync('/proc/1/comm', 'utf8').trim());
      assert.equal(ipc, runOnHost('readlink', ['/proc/self/ns/ipc']).trim());
      assert.equal(hosts[0], '# Kubernetes-managed hosts file (host network).');
      assert.equal(hosts.at(-1), '192.0.2.7\telsewhere');
    });
    for (const on of RUNTIMES)
      await until('the refusal of the long name', () =>
        events(`too-long-${on}`).includes(
          'FailedCreatePodSandBox Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain',
        ),
      );
  });

  const typed = (name: string, path: string, type: string): object => ({ name, hostPath: { path, type } });
  const volumesOf = (on: RuntimeName): object[] => [
    typed('directory', join(host, 'directory'), 'Directory'),
    typed('file', join(host, 'file'), 'File'),
    typed('socket', join(host, 'socket'), 'Socket'),
    typed('character', '/dev/null', 'CharDevice'),
    typed('block', loop, 'BlockDevice'),
    typed('new-directory', join(host, `new-${on}/deep`), 'DirectoryOrCreate'),
    typed('new-file', join(host, `new-file-${on}`), 'FileOrCreate'),
    typed('any', host, ''),
  ];
  const names = ['any', 'block', 'character', 'directory', 'file', 'new-directory', 'new-file', 'socket'];
  prepare('paths', (on) => ({
    container: { volumeMounts: names.map((name) => ({ name, mountPath: `/v/${name}` })) },
    spec: { volumes: volumesOf(on) },
  }));
  // How each type is refused is the agent's alone, whatever its runtime: one is seen here.
  prepare('wrong', () => ({
    container: { volumeMounts: [{ name: 'v', mountPath: '/v' }] },
    spec: { volumes: [typed('v', join(host, 'file'), 'Socket')] },
  }));
  test('a path of the host is given by its type, and refused by it', async () => {
    await each('paths', (pod, on) => {
      const kinds = 'cd /v; for name in *; do echo $name $(stat -c %F $name | tr " " -); done';
      assert.deepEqual(shell(pod, kinds).split('\n'), [
        'any directory',
        'block block-special-file',
        'character character-special-file',
        'directory directory',
        'file regular-file',
        'new-directory directory',
        'new-file regular-empty-file',
        'socket socket',
      ]);
      shell(pod, 'echo here > /v/new-file; echo there > /v/new-directory/file');
      assert.equal(readFileSync(join(host, `new-file-${on}`), 'utf8'), 'here\n');
      assert.equal(readFileSync(join(host, `new-${on}/deep/file`), 'utf8'), 'there\n');
    });
    const refused = `FailedMount MountVolume.SetUp failed for volume "v" : hostPath type check failed: ${host}/file is not a socket file`;
    for (const on of RUNTIMES) await until('the refusal', () => events(`wrong-${on}`).includes(refused));
  });

  const claimed = (on: RuntimeName, name: string, path: string, volumeMode: string): object[] => {
    const shared = { accessModes: ['ReadWriteOnce'], volumeMode, storageClassName: `of-${name}-${on}` };
    const terms = [
      { matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: [agents.get(on)?.nodeName] }] },
    ];
    return [
      {
        apiVersion: 'v1',
        kind: 'PersistentVolume',
        metadata: { name: `${name}-${on}`, annotations: { 'pv.beta.kubernetes.io/gid': '4321' } },
        spec: {
          ...shared,
          capacity: { storage: '8Mi' },
          local: { path },
          nodeAffinity: { required: { nodeSelectorTerms: terms } },
        },
      },
      {
        apiVersion: 'v1',
        kind: 'PersistentVolumeClaim',
        metadata: { name: `${name}-${on}` },
        spec: { ...shared, resources: { requests: { storage: '8Mi' } } },
      },
    ];
  };
  prepareObjects(() =>
    RUNTIMES.flatMap((on) => {
      const path = join(host, `local-${on}`);
      mkdirSync(path);
      writeFileSync(join(path, 'before'), 'x', { mode: 0o600 });
      return [...claimed(on, 'local', path, 'Filesystem'), ...claimed(on, 'block', loop, 'Block')];
    }),
  );
  prepare('claims', (on) => ({
    container: {
      volumeMounts: [{ name: 'local', mountPath: '/local' }],
      volumeDevices: [{ name: 'block', devicePath: '/dev/disk' }],
    },
    spec: {
      securityContext: { fsGroup: 5432, fsGroupChangePolicy: 'OnRootMismatch' },
      volumes: ['local', 'block'].map((name) => ({ name, persistentVolumeClaim: { claimName: `${name}-${on}` } })),
    },
  }));
  test('a claim gives a directory of the node, or a device of it', async () => {
    await each('claims', (pod, on) => {
      assert.equal(
        shell(pod, 'stat -c "%g %a" /local/before; stat -c "%g %A" /local').replaceAll('\n', ' '),
        '5432 660 5432 drwxrwsr-x',
      );
      assert.match(shell(pod, 'id -G'), /\b4321\b/);
      assert.equal(shell(pod, 'test -b /dev/disk && echo a device'), 'a device');
      shell(pod, `printf 'written on ${on}' | dd of=/dev/disk conv=fsync 2>/dev/null`);
      assert.equal(
        runOnHost('dd', [`if=${loop}`, 'bs=4096', 'count=1', 'status=none', 'iflag=direct']).slice(0, 11 + on.length),
        `written on ${on}`,
      );
    });
  });

  const below = { name: 'tree', mountPath: '/tree', readOnly: true };
  const tree = (): object => ({ volumes: [{ name: 'tree', hostPath: { path: join(host, 'tree') } }] });
  prepare('read-only', () => ({
    container: {
      volumeMounts: [
        { ...below, recursiveReadOnly: 'IfPossible' },
        { ...below, mountPath: '/plain' },
      ],
    },
    spec: tree(),
  }));
  prepare('all-read-only', () => ({
    container: { volumeMounts: [{ ...below, recursiveReadOnly: 'Enabled' }] },
    spec: tree(),
  }));
  test('what is mounted below a read-only mount is read-only too, where the runtime can make it so', async () => {
    await each('read-only', async (pod, on) => {
      const node = agents.get(on)?.nodeName ?? '';
      const handlers = '{.status.runtimeHandlers[?(@.name=="")].features.recursiveReadOnlyMounts}';
      const isPossible = run(['get', 'node', node, '-o', `jsonpath=${handlers}`]) === 'true';
      const tries =
        'for d in /tree /plain; do touch $d/x 2>/dev/null; echo $?; touch $d/inner/x 2>/dev/null; echo $?; done';
      assert.equal(shell(pod, tries).replaceAll('\n', ' '), isPossible ? '1 1 1 0' : '1 0 1 0');
      await until('the fate of the one that insists', () =>
        isPossible
          ? shell(`all-read-only-${on}`, 'touch /tree/inner/x 2>/dev/null; echo $?') === '1'
          : /requested recursive read-only mount, but it is not supported by the runtime/.test(
              field(`all-read-only-${on}`, '.status.containerStatuses[0].state.waiting.message'),
            ),
      );
    });
  });

  prepare('pages', {
    container: {
      resources: { limits: { 'hugepages-2Mi': '4Mi', memory: '32Mi', cpu: '50m' } },
      volumeMounts: [
        { name: 'pages', mountPath: '/pages' },
        { name: 'sized', mountPath: '/sized' },
      ],
    },
    spec: {
      volumes: [
        { name: 'pages', emptyDir: { medium: 'HugePages' } },
        { name: 'sized', emptyDir: { medium: 'HugePages-2Mi' } },
      ],
    },
  });
  test('huge pages are a volume, and what a container may have of them', async () => {
    await each('pages', (pod) => {
      assert.equal(field(pod, '.status.qosClass'), 'Guaranteed');
      const mounts = shell(pod, 'grep hugetlbfs /proc/mounts');
      for (const path of ['/pages', '/sized'])
        assert.match(mounts, new RegExp(`^nodev ${path} hugetlbfs .*pagesize=2M`, 'm'));
      // Lowered where the runtime's own daemon may do so.
      assert.match(shell(pod, 'cat /proc/1/oom_score_adj'), /^(?:-997|0)$/);
    });
  });

  prepare('later', {
    metadata: { labels: { colour: 'red' }, annotations: { note: 'a "quoted"\nnote' } },
    container: {
      resources: { requests: { cpu: '100m' }, limits: { cpu: '100m' } },
      volumeMounts: [{ name: 'all', mountPath: '/all' }],
    },
    spec: {
      volumes: [
        {
          name: 'all',
          projected: {
            sources: [
              { configMap: { name: 'comes', optional: true } },
              { secret: { name: 'comes-too', optional: true, items: [{ key: 'k', path: 'deep/k' }] } },
              {
                downwardAPI: {
                  items: [
                    { path: 'labels', fieldRef: { fieldPath: 'metadata.labels' } },
                    { path: 'note', fieldRef: { fieldPath: "metadata.annotations['note']" } },
                    {
                      path: 'cpu',
                      resourceFieldRef: { containerName: 'main', resource: 'limits.cpu', divisor: '1m' },
                    },
                  ],
                },
              },
            ],
          },
        },
      ],
    },
  });
  test('what was optional comes later, and the pod sees its own changes', async () => {
    await each('later', (pod) => {
      assert.equal(
        shell(pod, 'cd /all; echo $(ls); cat labels; echo; cat note; echo; cat cpu'),
        'cpu labels note\ncolour="red"\na "quoted"\nnote\n100',
      );
      run(['label', 'pod', pod, 'colour=blue', '--overwrite']);
      const resources = { requests: { cpu: '150m' }, limits: { cpu: '150m' } };
      run([
        'patch',
        'pod',
        pod,
        '--subresource',
        'resize',
        '-p',
        JSON.stringify({ spec: { containers: [{ name: 'main', resources }] } }),
      ]);
    });
    apply(
      { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'comes' }, data: { m: 'map' } },
      { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'comes-too' }, stringData: { k: 'key' } },
    );
    await each('later', async (pod) => {
      await until(
        'all of it',
        () => shell(pod, 'cd /all; cat m deep/k labels cpu 2>&1 || true') === 'mapkeycolour="blue"150',
      );
    });
  });

  const strict = { supplementalGroupsPolicy: 'Strict', supplementalGroups: [1] };
  prepare('strict', { spec: { securityContext: strict } });
  prepare('armour', { container: { securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } } });
  prepare('mapped', { spec: { hostUsers: false } });
  prepare('shared-disk', {
    container: { volumeMounts: [{ name: 'v', mountPath: '/v' }] },
    spec: { volumes: [{ name: 'v', nfs: { server: '127.0.0.1', path: '/nowhere' } }] },
  });
  prepare('root', { container: { securityContext: { runAsNonRoot: true } } });
  test('what this host cannot give is refused, with its reason', async () => {
    for (const on of RUNTIMES) {
      const features = run([
        'get',
        'node',
        agents.get(on)?.nodeName ?? '',
        '-o',
        'jsonpath={.status.features.supplementalGroupsPolicy} {.status.runtimeHandlers[*].features.userNamespaces}',
      ]);
      const status = (name: string): string =>
        field(`${name}-${on}`, '.status.phase} {.status.reason} {.status.message');
      if (!features.startsWith('true'))
        await until(
          'the refusal of strict groups',
          () =>
            status('strict') ===
            'Failed SupplementalGroupsPolicyNotSupported Pod was rejected: SupplementalGroupsPolicy=Strict is not supported in this node',
        );
      if (!hasAppArmor())
        await until(
          'the refusal of a profile',
          () =>
            status('armour') ===
            'Failed AppArmor Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host',
        );
      if (!features.includes('true', 5))
        await until('the refusal of a user namespace', () =>
          events(`mapped-${on}`).includes(
            "FailedCreatePodSandBox Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces",
          ),
        );
      // Nobody serves it here: the host says so, whether its kernel knows of such disks or not.
      await until('the failure of the mount', () =>
        /FailedMount MountVolume.SetUp failed for volume "v" : mount .*127\.0\.0\.1:\/nowhere/.test(
          events(`shared-disk-${on}`),
        ),
      );
      await until('the refusal of root', () =>
        field(`root-${on}`, '.status.containerStatuses[0].state.waiting.message').startsWith(
          'container has runAsNonRoot and image will run as root (pod: "root-',
        ),
      );
    }
  });
});

/** Of a cgroup of this host: the file of v1 (controller and name), or of v2. */
function ofCgroup(path: string, [controller, name]: readonly [string, string], unified: string): string {
  for (const file of [join('/sys/fs/cgroup', controller, path, name), join('/sys/fs/cgroup', path, unified)]) {
    try {
      return readFileSync(file, 'utf8').trim();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
  throw new Error(`this host has no cgroup ${path}`);
}

function makeLoopDevice(path: string): string {
  runOnHost('truncate', ['-s', '8M', path]);
  return runOnHost('losetup', ['--find', '--show', path]).trim();
}

function hasAppArmor(): boolean {
  try {
    return readFileSync('/sys/module/apparmor/parameters/enabled', 'utf8').startsWith('Y');
  } catch {
    return false;
  }
}
