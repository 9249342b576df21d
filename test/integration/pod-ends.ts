/**
 * Tests probes, hooks, restarts and the termination of pods on a real runtime, in addition to the recorded behaviour of the
 * kubelet. All pods are created at the beginning and checked one after another. Each runtime has a cluster of one node.
 */
import assert from 'node:assert/strict';
import { createServer, type Server, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { RuntimeName } from './agent-process.ts';
import { HealthServers, NOT_SERVING, SERVING } from './health-servers.ts';
import { PodCluster } from './pod-cluster.ts';
import { PodWatch } from './pod-watch.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const ALWAYS = { restartPolicy: 'Always' };

/** Declares the tests for a runtime. `skip` is the reason why they cannot run. */
export function podEnds(on: RuntimeName, skip: string | false): void {
  describe(`probes, hooks and ends of pods on ${on}`, { skip, timeout: 280_000 }, () => {
    let cluster: PodCluster;
    let watch: PodWatch;
    let health: HealthServers;
    /** A registry that accepts connections and never responds. */
    let silent: Server;

    /** Returns a shell command that appends a word to a file of this host from inside a container. */
    const appendWord = (word: string, file: string): string => `echo ${word} >> /shared/${file}`;
    const restarts = (pod: string, name = 'main'): number => watch.container(pod, name)?.restartCount ?? 0;
    const isReady = (pod: string): boolean => watch.container(pod)?.ready === true;
    const remove = async (pod: string): Promise<void> => {
      cluster.run(['delete', 'pod', pod, '--wait=false']);
      await cluster.eventually(`the end of ${pod}`, () => watch.isGone(pod));
    };
    const askedFor = (start: string): readonly string[] => health.asked.filter((line) => line.startsWith(start));

    before(async () => {
      cluster = await PodCluster.start({
        on,
        cidr: on === 'docker' ? '10.107.0.0/16' : '10.108.0.0/16',
        configuration: 'crashLoopBackOff: {maxContainerRestartPeriod: 2s}\n',
      });
      watch = new PodWatch(cluster);
      const pki = join(cluster.plane.directory, 'pki');
      health = await HealthServers.start({ cert: join(pki, 'apiserver.crt'), key: join(pki, 'apiserver.key') });
      silent = createServer(() => undefined);
      await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
      cluster.createAll(manifests());
    });
    after(async () => {
      watch?.close();
      await health?.close();
      silent?.close();
      await cluster?.remove();
    });

    function manifests(): object[] {
      const { mount, volumes } = cluster.sharedMount;
      const onHost = { hostNetwork: true, dnsPolicy: 'Default' };
      const local = { host: '127.0.0.1' };
      const { http, https, grpc } = health.ports;
      health.answer('/started', 503);
      health.answer('/ready', 503);
      const trapping = (word: string, file: string, code = 0): readonly string[] => [
        'sh',
        '-c',
        `trap "${appendWord(word, file)}; exit ${code}" TERM; while :; do sleep 0.1; done`,
      ];
      return [
        cluster.manifest('asked', {
          container: {
            startupProbe: {
              httpGet: { ...local, port: http, path: '/started' },
              periodSeconds: 1,
              timeoutSeconds: 5,
              failureThreshold: 60,
            },
            readinessProbe: {
              httpGet: {
                ...local,
                port: https,
                path: '/ready',
                scheme: 'HTTPS',
                httpHeaders: [{ name: 'X-Why', value: 'readiness' }],
              },
              periodSeconds: 1,
              timeoutSeconds: 5,
              successThreshold: 2,
              failureThreshold: 2,
            },
            livenessProbe: {
              grpc: { port: grpc, service: 'alive' },
              periodSeconds: 1,
              timeoutSeconds: 5,
              failureThreshold: 2,
            },
          },
          spec: onHost,
        }),
        cluster.manifest('inside', {
          container: {
            command: ['httpd', '-f', '-p', '8080', '-h', '/etc'],
            ports: [{ name: 'web', containerPort: 8080 }],
            startupProbe: {
              exec: { command: ['test', '-e', '/tmp/started'] },
              periodSeconds: 1,
              timeoutSeconds: 5,
              failureThreshold: 90,
            },
            livenessProbe: { tcpSocket: { port: 'web' }, periodSeconds: 1, timeoutSeconds: 5 },
            readinessProbe: { httpGet: { port: 'web', path: 'hostname' }, periodSeconds: 1, timeoutSeconds: 5 },
          },
        }),
        cluster.manifest('hooked', {
          container: {
            command: trapping('term', 'hooked'),
            ...mount,
            lifecycle: {
              postStart: {
                httpGet: { ...local, port: http, path: 'begun', httpHeaders: [{ name: 'X-Why', value: 'hook' }] },
              },
              preStop: { exec: { command: ['sh', '-c', appendWord('hook', 'hooked')] } },
            },
          },
          spec: { ...volumes, terminationGracePeriodSeconds: 30 },
        }),
        cluster.manifest('by-tcp', {
          container: { lifecycle: { postStart: { tcpSocket: { port: 80, host: '127.0.0.1' } } } },
          spec: { restartPolicy: 'Never' },
        }),
        cluster.manifest('sleepy', { container: { lifecycle: { preStop: { sleep: { seconds: 0 } } } } }),
        cluster.manifest('crashing', {
          container: {
            command: ['sh', '-c', `${appendWord('x', 'runs')}; echo run $(($(wc -l < /shared/runs) - 1)); exit 1`],
            ...mount,
          },
          spec: volumes,
        }),
        cluster.manifest('job', {
          container: { command: ['sh', '-c', 'sleep 1; exit 0'], ...mount },
          spec: {
            ...volumes,
            restartPolicy: 'Never',
            terminationGracePeriodSeconds: 30,
            initContainers: [
              { name: 'side', image: DEMO_IMAGE, command: trapping('ended', 'job'), ...ALWAYS, ...mount },
            ],
          },
        }),
        cluster.manifest('helped', {
          spec: {
            initContainers: [{ name: 'side', image: DEMO_IMAGE, command: ['sh', '-c', 'sleep 1; exit 3'], ...ALWAYS }],
          },
        }),
        cluster.manifest('stubborn', {
          container: {
            command: ['sh', '-c', `trap "" TERM; while :; do date +%s > /shared/beat; sleep 0.2; done`],
            ...mount,
          },
          spec: { ...volumes, terminationGracePeriodSeconds: 3_000 },
        }),
        cluster.manifest('pulling', {
          container: { image: `127.0.0.1:${(silent.address() as AddressInfo).port}/slow:1` },
        }),
        cluster.manifest('left', { container: { command: trapping('ended', 'left'), ...mount }, spec: volumes }),
        cluster.manifest('target', {}),
      ];
    }

    test('the startup probe runs before the others; each probe counts to its own threshold', async () => {
      await cluster.eventually('questions for startup', () => askedFor('http GET /started').length >= 3);
      assert.deepEqual([askedFor('https'), askedFor('grpc')], [[], []]);
      assert.equal(watch.container('asked')?.started, false);
      health.answer('/started', 200);
      await cluster.eventually('questions for readiness', () => askedFor('https').length >= 3);
      assert.deepEqual([...new Set(askedFor('https'))], ['https GET /ready x-why=readiness']);
      await cluster.eventually('the start', () => watch.container('asked')?.started === true);
      assert.equal(isReady('asked'), false);
      health.answer('/ready', 200);
      await cluster.eventually('readiness', () => isReady('asked'));
      await cluster.eventually('the events about the probes', () =>
        ['Startup', 'Readiness'].every((kind) =>
          watch.hasEvent(
            'asked',
            'Unhealthy',
            new RegExp(`^${kind} probe failed: HTTP probe failed with statuscode: 503$`),
          ),
        ),
      );
      health.answer('/ready', 500);
      await cluster.eventually('no readiness', () => !isReady('asked'));
      assert.equal(restarts('asked'), 0);
      health.answer('/ready', 200);
      health.answer('alive', NOT_SERVING);
      await cluster.eventually('the restart', () => restarts('asked') === 1);
      health.answer('alive', SERVING);
      await cluster.eventually('readiness again', () => isReady('asked'));
      await cluster.eventually(
        'its events',
        () =>
          watch.hasEvent('asked', 'Killing', /^Container main failed liveness probe, will be restarted$/) &&
          watch.hasEvent(
            'asked',
            'Unhealthy',
            /^Liveness probe failed: service unhealthy \(responded with "NOT_SERVING"\)$/,
          ),
      );
    });

    test('probes by command, TCP and HTTP run inside a pod', async () => {
      await cluster.eventually('a running pod', () => watch.phase('inside') === 'Running');
      assert.equal(watch.container('inside')?.started, false);
      cluster.shell('inside', 'touch /tmp/started');
      await cluster.eventually('readiness of inside', () => isReady('inside'));
      assert.equal(restarts('inside'), 0);
    });

    test('postStart and preStop hooks run, preStop before the signal; a TCP hook without a listener fails', async () => {
      await cluster.eventually('readiness of hooked', () => isReady('hooked'));
      assert.deepEqual(askedFor('http GET /begun'), ['http GET /begun x-why=hook']);
      await remove('hooked');
      assert.equal(cluster.written('hooked'), 'hook\nterm\n');
      await cluster.eventually('the failed hook', () => watch.phase('by-tcp') === 'Failed');
      await cluster.eventually('its event', () =>
        watch.hasEvent('by-tcp', 'FailedPostStartHook', /^PostStartHook failed$/),
      );
      await remove('sleepy');
      assert.equal(watch.hasEvent('sleepy', 'FailedPreStopHook', /./), false);
    });

    test('a container that crashes waits no longer than the configuration says, and its log is shown', async () => {
      await cluster.eventually('three restarts', () => restarts('crashing') >= 3);
      const wait = 'back-off 2s restarting failed container=main pod=crashing_default(';
      await cluster.eventually('the wait', () =>
        (watch.container('crashing')?.state.waiting?.message ?? '').startsWith(wait),
      );
      await cluster.eventually('its event', () =>
        watch.hasEvent('crashing', 'BackOff', /^Back-off restarting failed container main in pod crashing_default/),
      );
      // Between its runs, the log is that of the last terminated run.
      await cluster.eventually('the log', () => {
        const count = restarts('crashing');
        const shown = cluster.try(['logs', 'crashing']).stdout;
        return shown === `run ${count}\n` && count === restarts('crashing');
      });
      await remove('crashing');
    });

    test('a sidecar terminates after the other containers, restarts independently, and does not delay the end of its pod', async () => {
      await cluster.eventually('the end', () => watch.phase('job') === 'Succeeded');
      assert.equal(cluster.written('job'), 'ended\n');
      assert.equal(watch.container('job', 'side')?.state.terminated?.exitCode, 0);
      await cluster.eventually('restarts of the sidecar', () => restarts('helped', 'side') >= 2);
      assert.equal(restarts('helped'), 0);
      assert.equal(watch.phase('helped'), 'Running');
    });

    test('a pod that is deleted by force is removed at once, and its containers are stopped', async () => {
      await cluster.eventually('its life', () => cluster.written('beat') !== '');
      cluster.run(['delete', 'pod', 'stubborn', '--force', '--grace-period=0']);
      assert.notEqual(cluster.try(['get', 'pod', 'stubborn']).code, 0);
      const runtime = await cluster.agent.openRuntime();
      try {
        await until('the end of its containers', async () =>
          (await runtime.listContainers()).every(
            ({ labels, state }) => labels['io.kubernetes.pod.name'] !== 'stubborn' || state !== 'running',
          ),
        );
      } finally {
        await runtime.close();
      }
    });

    test('a pod can be deleted while its image is being pulled', async () => {
      await cluster.eventually('the pull', () => watch.hasEvent('pulling', 'Pulling', /^Pulling image "127\.0\.0\.1:/));
      await remove('pulling');
    });

    test('a copy and the node can be debugged', async () => {
      await cluster.eventually('readiness of target', () => isReady('target'));
      const shell = ['--', 'sh', '-c'];
      const image = [`--image=${DEMO_IMAGE}`, '--image-pull-policy=IfNotPresent'];
      const copy = ['debug', 'target', '--copy-to=copied', '--share-processes', '--same-node', '-c', 'look', ...image];
      cluster.run([...copy, ...shell, 'until pidof sleep; do sleep 0.2; done; exec sleep 100000']);
      await cluster.eventually('readiness of copied', () => isReady('copied'));
      assert.equal(watch.pod('copied')?.spec.nodeName, cluster.agent.nodeName);
      await cluster.eventually('the process of the other', () =>
        /^\d/.test(cluster.run(['logs', 'copied', '-c', 'look'])),
      );
      const node = `node/${cluster.agent.nodeName}`;
      const made = cluster.run(['debug', node, ...image, ...shell, 'cat /host/etc/hostname; exit 5']);
      const name = /pod (\S+) with container/.exec(made)?.[1] ?? '';
      await cluster.eventually('its end', () => watch.container(name, 'debugger')?.state.terminated?.exitCode === 5);
      assert.equal(cluster.run(['logs', name]), cluster.run(['logs', name, '--tail=1']));
      assert.match(cluster.run(['logs', name]), /^\S+\n$/);
    });

    test('a pod that is deleted while the agent is stopped terminates when the agent is restarted', async () => {
      await cluster.eventually('readiness of left', () => isReady('left'));
      await cluster.agent.stop('SIGKILL');
      cluster.run(['delete', 'pod', 'left', '--wait=false', '--grace-period=20']);
      cluster.agent.launch();
      await cluster.eventually('the end of left', () => watch.isGone('left'));
      assert.equal(cluster.written('left'), 'ended\n');
      await cluster.nodeReady();
    });

    test('no status ever regressed', () => watch.assertSteady());
  });
}
