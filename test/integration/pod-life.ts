/**
 * Tests the lifecycle of pods on a real runtime, in addition to the recorded behaviour of the kubelet: in-place resizes, the
 * order of start and termination, debugging, confinement, ports, and log rotation. Each runtime has a cluster of one node.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import type { RuntimeName } from './agent-process.ts';
import { PodCluster, type PodOptions } from './pod-cluster.ts';
import { freePort } from './free-port.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const LOG_BYTES = 10_000;

/** Declares the tests for a runtime. `skip` is the reason why they cannot run. */
export function podLife(on: RuntimeName, skip: string | false): void {
  describe(`the life of pods on ${on}`, { skip, timeout: 290_000 }, () => {
    let cluster: PodCluster;
    const run = (args: readonly string[], input?: object): string => cluster.run(args, input);
    const field = (name: string, path: string): string => cluster.field(name, path);
    const shell = (name: string, command: string): string => cluster.shell(name, command);
    const create = (name: string, options: PodOptions): void => cluster.create(name, options);
    const ready = (name: string): void => cluster.ready(name);
    const eventually = (what: string, check: () => boolean): Promise<void> => cluster.eventually(what, check);
    const written = (name: string): string => cluster.written(name);
    const sharedMount = { volumeMounts: [{ name: 'shared', mountPath: '/shared' }] };
    const sharedVolumes = (): object => cluster.sharedMount.volumes;

    before(async () => {
      cluster = await PodCluster.start({
        on,
        cidr: on === 'docker' ? '10.107.0.0/16' : '10.108.0.0/16',
        flags: [
          ...['--container-log-max-size', String(LOG_BYTES), '--container-log-max-files', '3'],
          ...['--allowed-unsafe-sysctls', 'net.core.somaxconn'],
        ],
        configuration: 'containerLogMonitorInterval: 3s\n',
        prepare: ({ rootDirectory }) => {
          const profiles = join(rootDirectory, 'seccomp');
          mkdirSync(profiles, { recursive: true });
          const denied = { names: ['mkdir', 'mkdirat'], action: 'SCMP_ACT_ERRNO', errnoRet: 1 };
          const profile = { defaultAction: 'SCMP_ACT_ALLOW', syscalls: [denied] };
          writeFileSync(join(profiles, 'no-mkdir.json'), JSON.stringify(profile));
        },
      });
    });
    after(() => cluster?.remove());

    test('a resize reaches the running container, and restarts it only where its policy says so', async () => {
      const resources = (cpu: string, memory: string): object => ({
        requests: { cpu, memory },
        limits: { cpu, memory },
      });
      create('sized', {
        container: {
          resources: resources('100m', '64Mi'),
          resizePolicy: [{ resourceName: 'memory', restartPolicy: 'RestartContainer' }],
        },
      });
      ready('sized');
      const id = field('sized', '.status.containerStatuses[0].containerID');
      const resize = (cpu: string, memory: string): void =>
        void run([
          ...['patch', 'pod', 'sized', '--subresource', 'resize', '--patch'],
          JSON.stringify({ spec: { containers: [{ name: 'main', resources: resources(cpu, memory) }] } }),
        ]);
      const has = (): unknown => {
        const status = JSON.parse(field('sized', '.status.containerStatuses[0]')) as {
          readonly resources: { readonly limits: unknown };
          readonly allocatedResources: unknown;
        };
        return [status.resources.limits, status.allocatedResources];
      };
      resize('200m', '64Mi');
      const wanted = { cpu: '200m', memory: '64Mi' };
      await eventually('the larger share', () => JSON.stringify(has()) === JSON.stringify([wanted, wanted]));
      const quota = 'cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d" " -f1 /sys/fs/cgroup/cpu.max';
      assert.equal(shell('sized', quota).trim(), '20000');
      assert.equal(field('sized', '.status.containerStatuses[0].containerID'), id);

      resize('200m', '96Mi');
      await eventually('the restart', () => field('sized', '.status.containerStatuses[0].restartCount') === '1');
      ready('sized');
      const limit = 'cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max';
      assert.equal(shell('sized', limit).trim(), String(96 * 1024 * 1024));
      await eventually('its events', () => {
        const events = run(['get', 'events', '--field-selector', 'involvedObject.name=sized', '-o', 'json']);
        const reasons = (
          JSON.parse(events) as { readonly items: readonly { readonly reason: string; readonly message: string }[] }
        ).items;
        const hasEvent = (reason: string, text: RegExp): boolean =>
          reasons.some((event) => event.reason === reason && text.test(event.message));
        return (
          hasEvent('ResizeStarted', /^Pod resize started: \{"containers":/) &&
          hasEvent('ResizeCompleted', /"generation":3/) &&
          hasEvent('Killing', /^Container main resize requires restart$/)
        );
      });
      await eventually('no condition of it', () => !field('sized', '.status.conditions[*].type').includes('Resize'));
    });

    test('sidecars start before the other containers and terminate after them in reverse order', async () => {
      const script = (name: string): readonly string[] => [
        'sh',
        '-c',
        `echo start ${name} >> /shared/order; trap "echo end ${name} >> /shared/order; exit 0" TERM; while true; do sleep 0.1; done`,
      ];
      const part = (name: string): object => ({ name, image: DEMO_IMAGE, command: script(name), ...sharedMount });
      const sidecar = (name: string): object => ({ ...part(name), restartPolicy: 'Always' });
      create('ordered', {
        containers: [part('main')],
        spec: {
          ...sharedVolumes(),
          terminationGracePeriodSeconds: 30,
          initContainers: [
            sidecar('one'),
            { ...part('setup'), command: ['sh', '-c', 'echo setup >> /shared/order'] },
            sidecar('two'),
          ],
        },
      });
      ready('ordered');
      run(['delete', 'pod', 'ordered', '--timeout=60s']);
      assert.deepEqual(written('order').trim().split('\n'), [
        'start one',
        'setup',
        'start two',
        'start main',
        'end main',
        'end two',
        'end one',
      ]);
    });

    test('a debug container joins its target, and is never restarted', async () => {
      create('debugged', {});
      ready('debugged');
      run([
        'debug',
        'debugged',
        `--image=${DEMO_IMAGE}`,
        '--image-pull-policy=IfNotPresent',
        '--target=main',
        '-c',
        'look',
        '--',
        'sh',
        '-c',
        'cat /proc/1/cmdline; exit 3',
      ]);
      await eventually(
        'its end',
        () => field('debugged', '.status.ephemeralContainerStatuses[0].state.terminated.exitCode') === '3',
      );
      assert.equal(run(['logs', 'debugged', '-c', 'look']), 'sleep\u0000100000\u0000');
      assert.equal(field('debugged', '.status.ephemeralContainerStatuses[0].restartCount'), '0');
      assert.equal(field('debugged', '.status.phase'), 'Running');
    });

    test("a failed probe ends its container with the probe's own grace", async () => {
      create('probed', {
        container: {
          livenessProbe: {
            exec: { command: ['false'] },
            periodSeconds: 1,
            failureThreshold: 1,
            terminationGracePeriodSeconds: 1,
          },
        },
        spec: { terminationGracePeriodSeconds: 3_000 },
      });
      await eventually('the restart', () => field('probed', '.status.containerStatuses[0].restartCount') === '1');
      run(['delete', 'pod', 'probed', '--grace-period=1', '--timeout=60s']);
    });

    test('a rule restarts all containers of a pod in its sandbox, init containers too', async () => {
      const rule = { action: 'RestartAllContainers', exitCodes: { operator: 'In', values: [42] } };
      create('restarted', {
        containers: [
          {
            name: 'main',
            image: DEMO_IMAGE,
            command: ['sh', '-c', 'test -e /shared/again && exec sleep 100000; touch /shared/again; sleep 1; exit 42'],
            restartPolicy: 'Never',
            restartPolicyRules: [rule],
            ...sharedMount,
          },
          { name: 'other', image: DEMO_IMAGE, command: ['sleep', '100000'] },
        ],
        spec: {
          ...sharedVolumes(),
          restartPolicy: 'Never',
          initContainers: [
            { name: 'setup', image: DEMO_IMAGE, command: ['sh', '-c', 'echo x >> /shared/setups'], ...sharedMount },
          ],
        },
      });
      await eventually('the second life', () => {
        const counts = field('restarted', '.status.containerStatuses[*].restartCount');
        return counts === '1 1' && field('restarted', '.status.containerStatuses[*].ready') === 'true true';
      });
      assert.equal(written('setups'), 'x\nx\n');
      // Like the kubelet, the agent shows how the containers were removed, and no longer how the first one ended.
      const last = '.status.containerStatuses[*].lastState.terminated';
      assert.equal(field('restarted', `${last}.reason`), 'RestartingAllContainers RestartingAllContainers');
      assert.equal(field('restarted', `${last}.exitCode`), '137 137');
      assert.equal(field('restarted', '.status.conditions[?(@.type=="AllContainersRestarting")].status'), 'False');
    });

    test('a container is confined as its pod specifies', () => {
      create('confined', {
        container: {
          securityContext: {
            runAsUser: 1234,
            runAsGroup: 2345,
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'], add: ['NET_BIND_SERVICE'] },
            seccompProfile: { type: 'Localhost', localhostProfile: 'no-mkdir.json' },
          },
          volumeMounts: [{ name: 'scratch', mountPath: '/scratch' }],
        },
        spec: {
          hostname: 'named',
          subdomain: 'below',
          shareProcessNamespace: true,
          hostAliases: [{ ip: '10.9.8.7', hostnames: ['elsewhere'] }],
          securityContext: {
            fsGroup: 3456,
            supplementalGroups: [4567],
            sysctls: [
              { name: 'net.ipv4.ping_group_range', value: '0 7' },
              { name: 'net.core.somaxconn', value: '321' },
            ],
          },
          volumes: [{ name: 'scratch', emptyDir: {} }],
        },
      });
      ready('confined');
      const status = shell('confined', 'cat /proc/self/status');
      assert.match(status, /^Uid:\t1234\t1234\t1234\t1234$/m);
      assert.match(status, /^Gid:\t2345\t2345\t2345\t2345$/m);
      const groups = /^Groups:\t(.*)$/m.exec(status)?.[1]?.trim().split(' ') ?? [];
      // Runtimes differ in whether they list the primary group.
      assert.deepEqual(groups.filter((group) => group !== '2345').toSorted(), ['3456', '4567']);
      assert.match(status, /^NoNewPrivs:\t1$/m);
      assert.match(status, /^Seccomp:\t2$/m);
      assert.match(status, /^CapBnd:\t0000000000000400$/m);
      assert.equal(shell('confined', 'touch /file 2>&1 || true').includes('Read-only file system'), true);
      assert.match(shell('confined', 'touch /scratch/file && mkdir /scratch/directory 2>&1 || true'), /not permitted/);
      assert.equal(shell('confined', 'cat /proc/sys/net/ipv4/ping_group_range').trim(), '0\t7');
      assert.equal(shell('confined', 'cat /proc/sys/net/core/somaxconn').trim(), '321');
      assert.equal(shell('confined', 'hostname').trim(), 'named');
      assert.match(shell('confined', 'cat /etc/hosts'), /^10\.9\.8\.7\telsewhere$/m);
      // Process 1 of the pod is that of the sandbox.
      assert.doesNotMatch(shell('confined', 'cat /proc/1/cmdline'), /sleep/);
    });

    const isMapped = (phase: string): boolean =>
      phase === 'Running' && !/^\s+0\s+0\s/.test(shell('mapped', 'cat /proc/self/uid_map'));

    test('pods that the node does not allow are refused with a reason', async () => {
      create('unsafe', { spec: { securityContext: { sysctls: [{ name: 'kernel.msgmax', value: '65536' }] } } });
      // A runtime without user namespaces must refuse the pod instead of running it with the host's users.
      create('mapped', { spec: { hostUsers: false } });
      const events = (): string =>
        run(['get', 'events', '--field-selector', 'involvedObject.name=mapped', '-o', 'wide']);
      await eventually(
        'its fate',
        () => /FailedCreatePodSandBox.*user namespaces/.test(events()) || isMapped(field('mapped', '.status.phase')),
      );
      await eventually('the refusal', () => field('unsafe', '.status.reason') === 'SysctlForbidden');
      assert.equal(
        field('unsafe', '.status.message'),
        'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted',
      );
      assert.equal(field('unsafe', '.status.phase'), 'Failed');
    });

    test('a host port leads to its pod, and only one pod can have it', async () => {
      const port = await freePort();
      const serving = {
        container: {
          command: ['httpd', '-f', '-p', '8080', '-h', '/etc'],
          ports: [{ containerPort: 8080, hostPort: port }],
        },
      };
      create('ported', serving);
      ready('ported');
      await until('an answer', () => answers(port));
      create('ported-too', serving);
      await eventually('the refusal', () => field('ported-too', '.status.reason') === 'NodePorts');
      run(['delete', 'pod', 'ported', '--timeout=60s']);
      // The port is free for another pod.
      create('ported-again', serving);
      ready('ported-again');
      await until('an answer', () => answers(port));
    });

    test('logs are rotated, old ones are compressed, and a follower misses nothing', async () => {
      const lines = 2_400;
      create('talking', {
        container: {
          command: [
            'sh',
            '-c',
            `echo line 0; until [ -e /shared/go ]; do sleep 0.1; done; i=1; while [ $i -lt ${lines} ]; do echo line $i; i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.1; done; exec sleep 100000`,
          ],
          ...sharedMount,
        },
        spec: sharedVolumes(),
      });
      ready('talking');
      const follower = cluster.spawn(['logs', '-f', 'talking']);
      let seen = '';
      follower.stdout?.on('data', (chunk: Buffer) => (seen += chunk.toString()));
      try {
        await eventually('the first line', () => seen.startsWith('line 0\n'));
        // The container waits for the follower, because rotated lines are no longer shown.
        writeFileSync(join(cluster.shared, 'go'), '');
        await eventually('the last line', () => seen.includes(`line ${lines - 1}\n`));
      } finally {
        follower.kill();
      }
      assert.deepEqual(
        seen.trim().split('\n'),
        Array.from({ length: lines }, (_value, index) => `line ${index}`),
      );
      const uid = field('talking', '.metadata.uid');
      const directory = join(cluster.agent.directory, 'logs', `default_talking_${uid}`, 'main');
      const names = await until('a rotated log and a compressed one', () => {
        const found = readdirSync(directory);
        return found.some((name) => name.endsWith('.gz')) && found.length > 2 ? found.toSorted() : undefined;
      });
      assert.ok(names.length <= 3, names.join());
      const compressed = names.find((name) => name.endsWith('.gz')) ?? '';
      assert.match(gunzipSync(readFileSync(join(directory, compressed))).toString(), /^\S+Z? stdout F line \d+$/m);
    });
  });
}

function answers(port: number): Promise<true | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port, timeout: 2_000 });
    const done = (found: true | undefined): void => {
      socket.destroy();
      resolve(found);
    };
    socket.once('connect', () => socket.write('GET /hostname HTTP/1.0\r\n\r\n'));
    socket.once('data', () => done(true));
    socket.once('error', () => done(undefined));
    socket.once('close', () => done(undefined));
    socket.once('timeout', () => done(undefined));
  });
}
