/**
 * Tests power losses of a node: it starts its last known pods before the API server responds, and no kill makes it lose one.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, afterEach, before, describe, test, type TestContext } from 'node:test';
import { systemClock } from '../../api/machinery/clock.ts';
import type { ContainerStatus, Runtime } from '../../agent/runtime/runtime.ts';
import { AgentProcess, restartRuntime, type RuntimeName } from './agent-process.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const settings = (colour: string): object => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'settings' },
  data: { colour },
});

const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'password' }, stringData: { word: 'sesame' } };

const pod = (name: string): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name },
  spec: {
    terminationGracePeriodSeconds: 0,
    containers: [
      {
        name: 'main',
        image: DEMO_IMAGE,
        command: ['sh', '-c', 'test -s /var/run/secrets/kubernetes.io/serviceaccount/token && exec sleep 100000'],
        env: [{ name: 'WORD', valueFrom: { secretKeyRef: { name: 'password', key: 'word' } } }],
        volumeMounts: [{ name: 'settings', mountPath: '/settings' }],
      },
    ],
    volumes: [{ name: 'settings', configMap: { name: 'settings' } }],
  },
});

/** The files below `last-known/` without which two of these pods cannot run, and how many there are of each. */
const NEEDED: readonly (readonly [name: RegExp, count: number])[] = [
  [/^pods\/.*\.json$/, 2],
  [/^objects\/token_.*\.json$/, 2],
  [/^objects\/configmaps_default_settings\.json$/, 1],
  [/^objects\/configmaps_default_kube-root-ca\.crt\.json$/, 1],
  [/^objects\/secrets_default_password\.json$/, 1],
  [/^services\.json$/, 1],
  [/^node\.json$/, 1],
];

/** Returns a pod whose process appends a byte to a file at each start. The file has the pod's uid as its name. */
const counting = (name: string, directory: string): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, labels: { counts: 'yes' } },
  spec: {
    terminationGracePeriodSeconds: 0,
    containers: [
      {
        name: 'main',
        image: DEMO_IMAGE,
        command: ['sh', '-c', 'printf x >> /counts/$POD_UID; exec sleep 100000'],
        env: [{ name: 'POD_UID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } }],
        volumeMounts: [{ name: 'counts', mountPath: '/counts' }],
      },
    ],
    volumes: [{ name: 'counts', hostPath: { path: directory } }],
  },
});

/** Returns numbers from 0 to 1 that are the same in each run (Park and Miller). */
function randomNumbers(seed: number): () => number {
  let state = seed % 2_147_483_647;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

function powerCuts(on: RuntimeName, cidr: string): void {
  let plane: ControlPlaneProcess;
  let agent: AgentProcess;
  let runtime: Runtime;

  const run = (args: readonly string[], input?: object): string => {
    const done = plane.kubectl(args, input === undefined ? {} : { input: JSON.stringify(input) });
    assert.equal(done.code, 0, `kubectl ${args.join(' ')}: ${done.stderr}${done.stdout}`);
    return done.stdout;
  };
  const field = (name: string, path: string): string => run(['get', 'pod', name, '-o', `jsonpath={${path}}`]);
  /** Returns the number of starts of the pod's process. */
  const countOf = (name: string): number => {
    const file = join(agent.directory, 'counts', field(name, '.metadata.uid'));
    return existsSync(file) ? readFileSync(file, 'utf8').length : 0;
  };
  const running = async (name: string): Promise<readonly ContainerStatus[]> =>
    (await runtime.listContainers()).filter(
      ({ state, labels }) => state === 'running' && labels['io.kubernetes.pod.name'] === name,
    );
  /**
   * Returns the maximum number of starts of the pod's process: one, and one for each start that the runtime cancelled because
   * the requesting agent was killed. A cancelled process may have run for a moment.
   */
  const mostStarts = async (uid: string): Promise<number> => {
    const own = (await runtime.listContainers()).filter(({ labels }) => labels['io.kubernetes.pod.uid'] === uid);
    // A container that the agent has removed in the meantime has no status.
    const statuses = await Promise.all(own.map(({ id }) => runtime.containerStatus(id).catch(() => undefined)));
    return 1 + statuses.filter((status) => status?.reason === 'StartError').length;
  };
  const shell = async (id: ContainerStatus['id'], command: string): Promise<string> =>
    (await runtime.execSync(id, ['sh', '-c', command], { timeoutMs: 30_000 })).stdout.toString();

  before(async () => {
    plane = await ControlPlaneProcess.start(['--cluster-cidr', cidr]);
    agent = await AgentProcess.prepare(on, ['--kubeconfig', plane.kubeconfig]);
    runtime = await agent.openRuntime();
    agent.launch();
    await until('the service account', () =>
      plane.kubectl(['get', 'serviceaccount', 'default']).code === 0 ? true : undefined,
    );
    for (const object of [settings('red'), secret, pod('kept'), pod('deleted')]) run(['apply', '-f', '-'], object);
    await until('the pods', () => {
      agent.assertAlive();
      const ready = run(['get', 'pods', '-o', 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}']);
      return ready === 'True True' ? true : undefined;
    });
  });
  afterEach((context) => {
    if (!(context as TestContext).passed) console.log(`The agent's log:\n${agent.log}`);
  });
  after(async () => {
    await runtime?.close();
    await agent?.remove();
    await plane?.remove();
  });

  test('starts its last known pods while the API server is unreachable, and is updated when it is reachable again', async () => {
    const uid = field('kept', '.metadata.uid');
    // The agent writes them in batches, one file after the other.
    await until('the checkpoints of the pods and of all that they need', async () => {
      const names = await readdir(join(agent.rootDirectory, 'last-known'), { recursive: true });
      return NEEDED.every(([pattern, count]) => names.filter((name) => pattern.test(name)).length >= count);
    });
    await plane.stop('SIGKILL');
    await agent.cutPower();
    agent.launch();
    const [kept] = await until('the pods without an API server', async () => {
      agent.assertAlive();
      const both = [...(await running('kept')), ...(await running('deleted'))];
      return both.length === 2 ? both : undefined;
    });
    assert.ok(kept);
    assert.equal(kept.labels['io.kubernetes.pod.uid'], uid);
    // The container has everything that the pod specifies.
    assert.equal(await shell(kept.id, 'echo $WORD $(cat /settings/colour)'), 'sesame red\n');
    assert.match(await shell(kept.id, 'env'), /^KUBERNETES_SERVICE_HOST=/m);

    // The pod is deleted while the node cannot reach the API server, and terminates once the node is connected.
    await agent.stop('SIGKILL');
    await plane.launch();
    run(['delete', 'pod', 'deleted', '--force', '--grace-period=0']);
    run(['apply', '-f', '-'], settings('blue'));
    agent.launch();
    await until('the end of the deleted pod', async () => ((await running('deleted')).length === 0 ? true : undefined));
    await until('the status', () =>
      field('kept', '.status.containerStatuses[0].containerID').endsWith(kept.id) &&
      field('kept', '.status.conditions[?(@.type=="Ready")].status') === 'True'
        ? true
        : undefined,
    );
    assert.equal(field('kept', '.metadata.uid'), uid);
    assert.deepEqual(
      (await running('kept')).map(({ id }) => id),
      [kept.id],
    );
    assert.equal(field('kept', '.status.containerStatuses[0].restartCount'), '1');
    await until('the new content', async () =>
      (await shell(kept.id, 'cat /settings/colour')) === 'blue' ? true : undefined,
    );
  });

  test('starts nothing twice and loses nothing, whenever the agent is killed', async () => {
    const counts = join(agent.directory, 'counts');
    mkdirSync(counts);
    const random = randomNumbers(20_261_121);
    const rounds = 6;
    for (let round = 0; round < rounds; round++) {
      for (const part of ['a', 'b']) run(['apply', '-f', '-'], counting(`${part}-${round}`, counts));
      // A pod of the previous round is deleted, while another one stays.
      if (round > 0) run(['delete', 'pod', `b-${round - 1}`, '--wait=false']);
      await systemClock.sleep(random() * 2_000);
      await agent.stop('SIGKILL');
      agent.launch();
    }
    const kept = [...Array.from({ length: rounds }, (_value, round) => `a-${round}`), `b-${rounds - 1}`].toSorted();
    await until('the pods that are wanted, and no others', async () => {
      agent.assertAlive();
      const names = run(['get', 'pods', '-l', 'counts', '-o', 'jsonpath={.items[*].metadata.name}']).split(' ');
      const ready = run(['get', 'pods', '-l', 'counts', '-o', 'jsonpath={.items[*].status.phase}']).split(' ');
      const sandboxes = (await runtime.listSandboxes()).filter(({ state }) => state === 'ready');
      const expected = [...kept, 'kept'].toSorted();
      return names.toSorted().join() === kept.join() &&
        ready.every((phase) => phase === 'Running') &&
        sandboxes
          .map((sandbox) => sandbox.pod.name)
          .toSorted()
          .join() === expected.join()
        ? true
        : undefined;
    });
    // A container is running before its first process has written anything.
    for (const name of kept) await until(`a word of ${name}`, () => countOf(name) > 0);
    for (const uid of readdirSync(counts)) {
      const starts = readFileSync(join(counts, uid), 'utf8').length;
      assert.ok(starts <= (await mostStarts(uid)), `the container of pod ${uid} ran ${starts} times`);
    }
    for (const name of kept) {
      const containers = await running(name);
      assert.equal(containers.length, 1);
      // The count is not always 0: a container that was created but not started when the agent was killed counts as an attempt.
      await until(`the restarts of ${name}`, () =>
        field(name, '.status.containerStatuses[0].restartCount') === String(containers[0]?.attempt) ? true : undefined,
      );
    }
  });

  test('restarts containers that exit while the API server is unreachable, and reports that afterwards', async () => {
    const [before] = await running('a-0');
    assert.ok(before);
    await plane.stop('SIGKILL');
    await runtime.stopContainer(before.id, 0);
    const [now] = await until('the restart', async () => {
      const found = await running('a-0');
      return found.length === 1 && found[0]?.id !== before.id ? found : undefined;
    });
    await plane.launch();
    await until('the status', () =>
      field('a-0', '.status.containerStatuses[0].restartCount') === String(before.attempt + 1) &&
      field('a-0', '.status.containerStatuses[0].containerID').endsWith(now?.id ?? '?')
        ? true
        : undefined,
    );
  });

  test('continues when the container runtime is killed and restarted', async () => {
    const ids = async (): Promise<string> =>
      (await Promise.all(['kept', 'a-1', 'a-2'].map(running))).map((found) => found.map(({ id }) => id).join()).join();
    const before = await ids();
    const counts = join(agent.directory, 'counts');
    await restartRuntime(on, async () => {
      run(['apply', '-f', '-'], counting('late', counts));
      agent.assertAlive();
    });
    await until('the pod that came meanwhile', () => (field('late', '.status.phase') === 'Running' ? true : undefined));
    await until('a Ready node', () => {
      const path = '{.items[*].status.conditions[?(@.type=="Ready")].status}';
      return run(['get', 'nodes', '-o', `jsonpath=${path}`]) === 'True' ? true : undefined;
    });
    agent.assertAlive();
    assert.equal(await ids(), before);
    for (const name of ['a-1', 'a-2', 'late']) {
      // A container that was created but not started when the agent or the runtime was killed counts as an attempt.
      const attempts = (await running(name)).map(({ attempt }) => String(attempt));
      assert.deepEqual([field(name, '.status.containerStatuses[0].restartCount')], attempts);
      await until(`a word of ${name}`, () => countOf(name) > 0);
      assert.ok(countOf(name) <= (await mostStarts(field(name, '.metadata.uid'))), `${name} ran more than once`);
    }
  });
}

describe('a node on Docker', { skip: skipWithoutDocker, timeout: 280_000 }, () => powerCuts('docker', '10.105.0.0/16'));
describe('a node on containerd', { skip: skipWithoutContainerd, timeout: 280_000 }, () =>
  powerCuts('containerd', '10.106.0.0/16'),
);
