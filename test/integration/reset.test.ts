/**
 * `orchlet reset` leaves a host as it was: routes, links, addresses, rules, kernel parameters, mounts, cgroups and sockets are
 * compared before the first start and after the reset. The host is a network namespace with a container runtime of its own.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { imageArchive, skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { freePort } from './free-port.ts';
import { unmountBelow } from '../mounts.ts';
import { skipWithoutNamespaces } from './namespaced-nodes.ts';
import { run } from './running-cluster.ts';
import { namespacePrefix } from './test-namespaces.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const ROOT = join(import.meta.dirname, '../..');
const ORCHLET = join(ROOT, 'bin/orchlet');

const RUNTIMES = [
  ['docker', skipWithoutDocker],
  ['containerd', skipWithoutContainerd],
] as const;

for (const [on, why] of RUNTIMES)
  describe(`orchlet reset, on ${on}`, { skip: skipWithoutNamespaces || why, timeout: 240_000 }, () => {
    const namespace = `${namespacePrefix('r')}${on[0]}`;
    /** The harness's own network of pods on containerd; its plugins make the bridge with the first pod and leave it. */
    const isHarness = (line: string): boolean => /\borch\d+\b|\bveth|CNI-/.test(line);
    let directory = '';
    let dataDirectory = '';
    let ports: readonly number[] = [];
    let up: ChildProcess | undefined;
    let log = '';
    let clean: Record<string, readonly string[]> = {};

    const inside = (program: string, ...args: readonly string[]): string =>
      run('nsenter', [`--net=/run/netns/${namespace}`, program, ...args]);
    const kubectl = (...args: readonly string[]): string =>
      inside('kubectl', '--kubeconfig', join(dataDirectory, 'admin.kubeconfig'), ...args);
    const reset = (...args: readonly string[]) =>
      spawnSync('nsenter', [`--net=/run/netns/${namespace}`, ORCHLET, 'reset', '--data-dir', dataDirectory, ...args], {
        encoding: 'utf8',
      });
    const runtimeScript = join(ROOT, 'scripts', `${on}-private`);
    const lines = (text: string): readonly string[] =>
      text
        .split('\n')
        .map((line) => line.replace(/\[\d+:\d+\]/, '').trim())
        .filter((line) => line !== '' && !line.startsWith('#') && !isHarness(line))
        .toSorted();

    /** Returns the rules and chains, except those that Docker makes for itself with its first network, and built-in ones. */
    const ownRules = (text: string): readonly string[] =>
      lines(text).filter((line) => /^[-:]/.test(line) && !/DOCKER|^:[A-Z]+ (ACCEPT|DROP)/.test(line));

    /** Returns the values of the kernel's parameters of the network, without those of single interfaces. */
    function parameters(): readonly string[] {
      const script =
        "cd /proc/sys/net && find . -type f -not -path '*/conf/*' -not -path '*/neigh/*' -perm -400 -exec grep -H . {} + 2>/dev/null; true";
      return lines(inside('sh', '-c', script)).filter(
        (line) => !/nf_conntrack_count|random|nf_conntrack_buckets/.test(line),
      );
    }

    function hostState(): Record<string, readonly string[]> {
      const below = (text: string): readonly string[] => lines(text).filter((line) => line.includes(dataDirectory));
      return {
        links: lines(inside('ip', '-o', 'link').replaceAll(/^\d+: ([^:@]+).*$/gm, '$1')),
        addresses: lines(inside('ip', '-br', 'address').replaceAll(/fe80\S+/g, '')),
        routes: lines(inside('ip', 'route', 'show', 'table', 'all').replaceAll(/.*fe80.*/g, '')),
        rules: lines(inside('ip', 'rule')),
        iptables: ownRules(inside('iptables-save')),
        ip6tables: ownRules(inside('ip6tables-save')),
        // The tables of iptables with the backend nf_tables are compared above.
        nftables: lines(inside('nft', 'list', 'tables')).filter((line) => line.includes('orchlet')),
        parameters: parameters(),
        mounts: below(readFileSync('/proc/self/mountinfo', 'utf8')),
        cgroups: lines(inside('sh', '-c', `find /sys/fs/cgroup -type d -path '*/${namespace}/*' || true`)),
        sockets: lines(inside('sh', '-c', "ss -Hltun; grep -a -o '@orchlet.*' /proc/net/unix || true")),
        logs: readdirSync(join(directory, 'logs')),
      };
    }

    async function start(): Promise<void> {
      const socket = join(directory, 'r', `${on}.sock`);
      const runtime =
        on === 'docker'
          ? ['--container-runtime', 'docker', '--docker-endpoint', `unix://${socket}`]
          : ['--container-runtime-endpoint', `unix://${socket}`];
      const [secure = 0, agent = 0, health = 0] = ports;
      up = spawn(
        'nsenter',
        [
          ...[`--net=/run/netns/${namespace}`, ORCHLET, 'up', '--data-dir', dataDirectory, ...runtime],
          ...['--secure-port', String(secure), '--port', String(agent), '--healthz-port', String(health)],
          ...['--read-only-port', '0', '--pod-logs-dir', join(directory, 'logs'), '--disable', 'manifests'],
          ...['--cgroup-root', `/${namespace}`, '--cluster-cidr', '10.197.128.0/20'],
          ...['--eviction-hard', 'nodefs.available<1%,imagefs.available<1%'],
        ],
        { stdio: ['ignore', 'pipe', 'pipe'] },
      );
      for (const stream of [up.stdout, up.stderr])
        stream?.on('data', (chunk: Buffer) => (log = (log + chunk.toString()).slice(-8000)));
      const isRunning = (): true | undefined => {
        if (!existsSync(join(dataDirectory, 'admin.kubeconfig'))) return undefined;
        const found = spawnSync(
          'nsenter',
          [
            ...[`--net=/run/netns/${namespace}`, 'kubectl', '--kubeconfig', join(dataDirectory, 'admin.kubeconfig')],
            ...['get', 'pod', 'full', '-o', 'jsonpath={.status.phase}'],
          ],
          { encoding: 'utf8' },
        );
        if (/not found/.test(found.stderr)) apply();
        // The reset before ended it for good.
        if (found.stdout === 'Failed') kubectl('delete', 'pod', 'full', '--wait=false');
        return found.stdout === 'Running' ? true : undefined;
      };
      await until('a running pod', isRunning, 90_000).catch((error: unknown) => {
        throw new Error(`the pod does not run:\n${log}`, { cause: error });
      });
    }

    /** Applies a pod with volumes that are mounts, a service of it, and a policy that selects it. */
    function apply(): void {
      const objects = [
        { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'c' }, data: { key: 'value' } },
        { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' }, stringData: { key: 'value' } },
        {
          apiVersion: 'v1',
          kind: 'Pod',
          metadata: { name: 'full', labels: { app: 'full' } },
          spec: {
            terminationGracePeriodSeconds: 0,
            containers: [
              {
                name: 'c',
                image: DEMO_IMAGE,
                command: ['sleep', '1000'],
                volumeMounts: [
                  { name: 'memory', mountPath: '/memory' },
                  { name: 'secret', mountPath: '/secret' },
                  { name: 'host', mountPath: '/host', subPath: 'below' },
                ],
              },
            ],
            volumes: [
              { name: 'memory', emptyDir: { medium: 'Memory' } },
              { name: 'secret', secret: { secretName: 's' } },
              { name: 'host', hostPath: { path: join(directory, 'precious') } },
            ],
          },
        },
        {
          apiVersion: 'v1',
          kind: 'Service',
          metadata: { name: 'full' },
          spec: { selector: { app: 'full' }, ports: [{ port: 80 }] },
        },
        {
          apiVersion: 'networking.k8s.io/v1',
          kind: 'NetworkPolicy',
          metadata: { name: 'none' },
          spec: { podSelector: {}, policyTypes: ['Ingress'] },
        },
      ];
      const file = join(directory, 'objects.json');
      writeFileSync(file, JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects }));
      // The service account of the namespace may not exist yet; the next try follows.
      spawnSync(
        'nsenter',
        [
          ...[`--net=/run/netns/${namespace}`, 'kubectl', '--kubeconfig', join(dataDirectory, 'admin.kubeconfig')],
          ...['apply', '-f', file],
        ],
        { encoding: 'utf8' },
      );
    }

    async function kill(): Promise<void> {
      const child = up;
      up = undefined;
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
      const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
      child.kill('SIGKILL');
      await ended;
    }

    before(async () => {
      directory = temporaryFolder('orcr');
      dataDirectory = join(directory, 'data');
      mkdirSync(join(dataDirectory, 'images'), { recursive: true });
      mkdirSync(join(directory, 'logs'));
      mkdirSync(join(directory, 'precious', 'below'), { recursive: true });
      writeFileSync(join(directory, 'precious', 'below', 'file'), 'kept');
      copyFileSync(imageArchive ?? '', join(dataDirectory, 'images', 'images.tar'));
      ports = [await freePort(), await freePort(), await freePort()];
      run('ip', ['netns', 'add', namespace]);
      inside('ip', 'link', 'set', 'lo', 'up');
      inside('ip', 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'up1');
      inside('ip', 'link', 'set', 'up0', 'up');
      inside('ip', 'link', 'set', 'up1', 'up');
      inside('ip', 'address', 'add', '10.197.251.2/24', 'dev', 'up0');
      inside('ip', 'route', 'add', 'default', 'via', '10.197.251.1');
      inside(runtimeScript, 'start', join(directory, 'r'), ...(on === 'containerd' ? [imageArchive ?? ''] : []));
      clean = hostState();
    });
    after(async () => {
      await kill();
      spawnSync('nsenter', [`--net=/run/netns/${namespace}`, runtimeScript, 'stop', join(directory, 'r')]);
      spawnSync('ip', ['netns', 'delete', namespace]);
      spawnSync('sh', [
        '-c',
        `find /sys/fs/cgroup -depth -type d -path '*/${namespace}*' -exec rmdir {} + 2>/dev/null`,
      ]);
      unmountBelow(directory);
      rmSync(directory, { recursive: true, force: true });
    });

    test('a dry run names what is there and changes nothing', async () => {
      await start();
      await until(
        'the table of policies',
        () => hostState()['nftables']?.some((line) => line.includes('orchlet_policy')) || undefined,
      );
      const { status, stdout } = reset('--dry-run');
      assert.equal(status, 0);
      for (const part of [
        /running pods of process/,
        /chains ORC-|orchlet-services/,
        /orchlet_policy_/,
        /mount .*secret/,
        /cgroups/,
      ])
        assert.match(stdout, part);
      assert.match(stdout, on === 'docker' ? /container .*full/ : /pod default\/full/);
      assert.equal(kubectl('get', 'pod', 'full', '-o', 'jsonpath={.status.phase}'), 'Running');
      assert.ok((hostState()['mounts']?.length ?? 0) > 0);
    });

    test('without --force it asks, and refuses where nobody can answer', () => {
      const { status, stderr } = reset();
      assert.equal(status, 2);
      assert.match(stderr, /--force/);
    });

    test('a running installation leaves the host as it was, with its data', async () => {
      const { status, stdout, stderr } = reset('--force');
      assert.equal(status, 0, stdout + stderr);
      assert.deepEqual(hostState(), clean);
      assert.ok(existsSync(join(dataDirectory, 'storage/orchlet.db')));
      await kill();
    });

    test('an installation that was killed and lost files leaves nothing, and nothing goes through its volumes', async () => {
      await start();
      await kill();
      rmSync(join(dataDirectory, 'agent/last-known'), { recursive: true, force: true });
      rmSync(join(dataDirectory, 'agent/kubeconfig'));
      const { status, stdout, stderr } = reset('--force', '--purge');
      assert.equal(status, 0, stdout + stderr);
      assert.deepEqual(hostState(), clean);
      assert.ok(!existsSync(dataDirectory));
      assert.equal(readFileSync(join(directory, 'precious/below/file'), 'utf8'), 'kept');
    });

    test('a second reset finds nothing', () => {
      const { status, stdout } = reset('--force', '--purge');
      assert.deepEqual([status, stdout], [0, 'nothing was left\n']);
    });
  });
