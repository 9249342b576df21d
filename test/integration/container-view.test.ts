/**
 * Tests what a container sees of its pod and its node, on both runtimes. `host-volumes.test.ts` tests what it sees of its host,
 * `volumes.test.ts` changing volumes, and `pod-life.ts` confinement.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { RuntimeName } from './agent-process.ts';
import { run as runOnHost } from './running-cluster.ts';
import { RUNTIMES, skipWithoutBoth, TwoRuntimes } from './two-runtimes.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const MEBIBYTE = 1_048_576;

describe('what a container sees', { skip: skipWithoutBoth, timeout: 290_000 }, () => {
  const nodes = new TwoRuntimes();
  before(() =>
    nodes.start('10.106.0.0/17', [
      '--cluster-dns',
      '10.96.0.10',
      '--cluster-domain',
      'cluster.local',
      '--pod-max-pids',
      '200',
    ]),
  );
  after(() => nodes.remove());

  nodes.prepareObjects(() => [
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'settings' }, data: { A: 'map', BOTH: 'map' } },
    { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'keys' }, stringData: { S: 'secret', BOTH: 'secret' } },
  ]);
  const write = 'printf "# made by another\\nFROM=\'a file\\n of lines\'\\n" > /files/app.env';
  const file = (key: string, optional: boolean): object => ({
    fileKeyRef: { volumeName: 'files', path: 'app.env', key, optional },
  });
  nodes.prepare('variables', {
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
          image: DEMO_IMAGE,
          command: ['sh', '-c', write],
          volumeMounts: [{ name: 'files', mountPath: '/files' }],
        },
      ],
      volumes: [{ name: 'files', emptyDir: {} }],
    },
  });
  test('environment variables have the specified order and come from all sources', async () => {
    await nodes.each('variables', (pod, on) => {
      const names = ['ONE', 'LATER', 'BOTH', 'P_BOTH', 'S', 'FILE', 'NO_FILE', 'NO_KEY', 'NODE', 'IP', 'MASTER'];
      const values = nodes
        .shell(pod, names.map((name) => `echo "\${${name}-unset}"`).join('; echo ==; '))
        .split('\n==\n');
      const one = 'map-map-$(LATER)-$(A)';
      assert.deepEqual(values, [
        ...[one, one, 'secret', 'map', 'own', 'a file\n of lines', 'unset', 'unset'],
        ...[nodes.nodeName(on), nodes.field(pod, '.status.podIP'), '10.96.0.1:443'],
      ]);
    });
  });

  const limits = { cpu: '200m', memory: '96Mi' };
  const resourceVariable = (name: string, resource: string, divisor: string): object => ({
    name,
    valueFrom: { resourceFieldRef: { resource, divisor } },
  });
  const main = {
    name: 'main',
    image: DEMO_IMAGE,
    command: ['sleep', '100000'],
    env: [resourceVariable('CPU', 'limits.cpu', '1m'), resourceVariable('MEMORY', 'limits.memory', '1Mi')],
  };
  nodes.prepare('whole', {
    containers: [main, { ...main, name: 'small', resources: { limits: { memory: '32Mi' } } }],
    spec: { resources: { requests: { cpu: '100m', memory: '64Mi' }, limits } },
  });
  test('pod-level resources limit the containers of the pod', async () => {
    await nodes.each('whole', (pod) => {
      assert.equal(nodes.field(pod, '.status.qosClass'), 'Burstable');
      const script =
        'echo $CPU $MEMORY; cat /proc/1/oom_score_adj; cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max';
      const capacity = Number(/^MemTotal:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]) * 1024;
      // The containers share the part of the pod's requests that exceeds their own requests: 32 of 64 MiB.
      const score = (mebibytes: number): number =>
        Math.min(999, 1000 - Math.floor((1000 * mebibytes * MEBIBYTE) / capacity));
      assert.equal(nodes.shell(pod, script), `200 96\n${score(16)}\n${96 * MEBIBYTE}`);
      assert.equal(nodes.shell(pod, script, 'small'), `200 32\n${score(48)}\n${32 * MEBIBYTE}`);
      const cgroup = `kubepods/burstable/pod${nodes.field(pod, '.metadata.uid')}`;
      assert.equal(ofCgroup(cgroup, ['memory', 'memory.limit_in_bytes'], 'memory.max'), String(96 * MEBIBYTE));
      assert.match(ofCgroup(cgroup, ['cpu', 'cpu.cfs_quota_us'], 'cpu.max'), /^20000\b/);
      assert.equal(ofCgroup(cgroup, ['pids', 'pids.max'], 'pids.max'), '200');
    });
  });

  nodes.prepare('resolver', {
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
  nodes.prepare('own-names', { spec: { dnsPolicy: 'None', dnsConfig: { nameservers: ['192.0.2.9'] } } });
  // The Docker Engine adds every capability that the kernel has, or fails.
  const isPrivileged = (on: RuntimeName): boolean => on === 'containerd' || hasSysResource();
  nodes.prepare('on-host', (on) => ({
    container: { securityContext: { privileged: isPrivileged(on) } },
    spec: {
      hostNetwork: true,
      hostPID: true,
      hostIPC: true,
      hostAliases: [{ ip: '192.0.2.7', hostnames: ['elsewhere'] }],
    },
  }));
  nodes.prepare('too-long', { spec: { hostname: 'h'.repeat(50), subdomain: 'below', setHostnameAsFQDN: true } });
  test('names are resolved as the pod specifies, and an unsupported DNS configuration is reported', async () => {
    await nodes.each('resolver', async (pod) => {
      const resolver = nodes.shell(pod, 'cat /etc/resolv.conf');
      assert.match(resolver, /^search default\.svc\.cluster\.local svc\.cluster\.local cluster\.local .*more\.test$/m);
      assert.deepEqual(
        resolver.match(/^nameserver .*$/gm),
        ['10.96.0.10', '192.0.2.1', '192.0.2.2'].map((ip) => `nameserver ${ip}`),
      );
      assert.match(resolver, /^options ndots:2$/m);
      assert.equal(nodes.shell(pod, 'hostname'), 'quite.another.name');
      await until('the event about the one too many', () =>
        nodes
          .events(pod)
          .includes(
            'DNSConfigForming Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 10.96.0.10 192.0.2.1 192.0.2.2',
          ),
      );
    });
    await nodes.each('own-names', (pod) => {
      assert.equal(nodes.shell(pod, 'grep -v "^#" /etc/resolv.conf | grep -v "^$"'), 'nameserver 192.0.2.9');
      assert.match(
        nodes.shell(pod, 'cat /etc/hosts'),
        new RegExp(`^${nodes.field(pod, '.status.podIP')}\t${pod}$`, 'm'),
      );
    });
    await nodes.each('on-host', (pod, on) => {
      const [first = '', ipc, capabilities, device, ...hosts] = nodes
        .shell(
          pod,
          'cat /proc/1/comm; readlink /proc/self/ns/ipc; grep CapEff /proc/self/status; ls /dev/loop-control 2>/dev/null || echo; cat /etc/hosts',
        )
        .split('\n');
      assert.equal(first, readFileSync('/proc/1/comm', 'utf8').trim());
      assert.equal(ipc, runOnHost('readlink', ['/proc/self/ns/ipc']).trim());
      if (isPrivileged(on)) {
        // The container has the capabilities of the runtime's daemon, which this process has as well, and the devices of the
        // host.
        assert.equal(capabilities, /^CapEff.*$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[0]);
        assert.equal(device, '/dev/loop-control');
      }
      assert.equal(hosts[0], '# Kubernetes-managed hosts file (host network).');
      assert.equal(hosts.at(-1), '192.0.2.7\telsewhere');
    });
    for (const on of RUNTIMES)
      await until('the refusal of the long name', () =>
        nodes
          .events(`too-long-${on}`)
          .includes(
            'FailedCreatePodSandBox Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain',
          ),
      );
  });

  nodes.prepare('later', {
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
  test('optional volumes appear later, and the downward API shows changes of the pod', async () => {
    await nodes.each('later', (pod) => {
      assert.equal(
        nodes.shell(pod, 'cd /all; echo $(ls); cat labels; echo; cat note; echo; cat cpu'),
        'cpu labels note\ncolour="red"\na "quoted"\nnote\n100',
      );
      nodes.run(['label', 'pod', pod, 'colour=blue', '--overwrite']);
      const resources = { requests: { cpu: '150m' }, limits: { cpu: '150m' } };
      nodes.run([
        'patch',
        'pod',
        pod,
        '--subresource',
        'resize',
        '-p',
        JSON.stringify({ spec: { containers: [{ name: 'main', resources }] } }),
      ]);
    });
    nodes.apply(
      { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'comes' }, data: { m: 'map' } },
      { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'comes-too' }, stringData: { k: 'key' } },
    );
    await nodes.each('later', async (pod) => {
      await until(
        'all of it',
        () => nodes.shell(pod, 'cd /all; cat m deep/k labels cpu 2>&1 || true') === 'mapkeycolour="blue"150',
      );
    });
  });

  const strict = { supplementalGroupsPolicy: 'Strict', supplementalGroups: [1] };
  nodes.prepare('strict', { spec: { securityContext: strict } });
  nodes.prepare('armour', { container: { securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } } });
  nodes.prepare('mapped', { spec: { hostUsers: false } });
  nodes.prepare('shared-disk', {
    container: { volumeMounts: [{ name: 'v', mountPath: '/v' }] },
    spec: { volumes: [{ name: 'v', nfs: { server: '127.0.0.1', path: '/nowhere' } }] },
  });
  nodes.prepare('root', { container: { securityContext: { runAsNonRoot: true } } });
  test('features that this host lacks are refused with a reason', async () => {
    for (const on of RUNTIMES) {
      const features = nodes.run([
        'get',
        'node',
        nodes.nodeName(on),
        '-o',
        'jsonpath={.status.features.supplementalGroupsPolicy} {.status.runtimeHandlers[*].features.userNamespaces}',
      ]);
      const status = (name: string): string =>
        nodes.field(`${name}-${on}`, '.status.phase} {.status.reason} {.status.message');
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
          nodes
            .events(`mapped-${on}`)
            .includes(
              "FailedCreatePodSandBox Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces",
            ),
        );
      // No server exists, so the host reports an error, whether its kernel supports the file system or not.
      await until('the failure of the mount', () =>
        /FailedMount MountVolume.SetUp failed for volume "v" : mount failed: exit status [^]*127\.0\.0\.1:\/nowhere/.test(
          nodes.events(`shared-disk-${on}`),
        ),
      );
      await until('the refusal of root', () =>
        nodes
          .field(`root-${on}`, '.status.containerStatuses[0].state.waiting.message')
          .startsWith('container has runAsNonRoot and image will run as root (pod: "root-'),
      );
    }
  });
});

/** Returns the file of a cgroup of this host, for v1 (controller and name) or v2. */
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

function hasAppArmor(): boolean {
  try {
    return readFileSync('/sys/module/apparmor/parameters/enabled', 'utf8').startsWith('Y');
  } catch {
    return false;
  }
}

function hasSysResource(): boolean {
  const [, effective = '0'] = /^CapEff:\s*([0-9a-f]+)/m.exec(readFileSync('/proc/self/status', 'utf8')) ?? [];
  return ((BigInt(`0x${effective}`) >> 24n) & 1n) === 1n;
}
