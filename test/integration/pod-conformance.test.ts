/**
 * Tests what users rely on when they watch pods: every intermediate state, and not only the last one. Covers init containers,
 * pods that are deleted while they start, runtime classes, and status changes by clients. The cluster has one node with Docker.
 */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { skipWithoutDocker } from './container-runtimes.ts';
import { kubectls } from './kubectl.ts';
import { RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const skip = skipWithoutDocker !== false ? skipWithoutDocker : kubectls().length === 0 ? 'no kubectl on PATH' : false;

interface State {
  readonly waiting?: { readonly reason?: string };
  readonly running?: object;
  readonly terminated?: { readonly exitCode: number; readonly reason?: string; readonly startedAt?: string };
}

interface Status {
  readonly name: string;
  readonly restartCount: number;
  readonly state: State;
}

interface Seen {
  readonly type: string;
  readonly object: {
    readonly metadata: { readonly name: string };
    readonly status: {
      readonly phase: string;
      readonly conditions?: readonly { readonly type: string; readonly status: string; readonly message?: string }[];
      readonly initContainerStatuses?: readonly Status[];
      readonly containerStatuses?: readonly Status[];
    };
  };
}

describe('pods as they are watched', { skip, timeout: 240_000 }, () => {
  let cluster: RunningCluster;
  let watch: ChildProcess | undefined;
  const events: Seen[] = [];

  before(async () => {
    cluster = await RunningCluster.start(['--cluster-cidr', '10.216.0.0/16', '--service-proxy', 'none']);
    await until('the service account', () =>
      cluster.kubectl(['get', 'serviceaccount', 'default']).code === 0 ? true : undefined,
    );
    watch = cluster.spawn(['get', '--raw', '/api/v1/namespaces/default/pods?watch=true']);
    let rest = '';
    watch.stdout?.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) events.push(JSON.parse(line) as Seen);
    });
  });
  after(async () => {
    watch?.kill();
    await cluster?.remove();
  });

  const create = (name: string, spec: object, container: object = {}, metadata: object = {}): void => {
    const main = { name: 'main', image: DEMO_IMAGE, command: ['sleep', '100000'], ...container };
    cluster.run(['apply', '-f', '-'], {
      input: JSON.stringify({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name, ...metadata },
        spec: { terminationGracePeriodSeconds: 1, containers: [main], ...spec },
      }),
    });
  };
  const field = (name: string, path: string): string => cluster.run(['get', 'pod', name, '-o', `jsonpath={${path}}`]);
  const eventually = (what: string, check: () => boolean): Promise<boolean> =>
    until(what, () => (check() ? true : undefined));
  const eventMessages = (name: string, reason: string): string =>
    cluster.run([
      ...['get', 'events', '--field-selector', `involvedObject.name=${name},reason=${reason}`],
      ...['-o', 'jsonpath={.items[*].message}'],
    ]);
  const history = (name: string): Seen[] => events.filter(({ object }) => object.metadata.name === name);

  test('containers start only after all init containers have succeeded', async () => {
    const init = (name: string, command: string): object => ({ name, image: DEMO_IMAGE, command: [command] });
    create('blocked', { initContainers: [init('one', 'false'), init('two', 'true')] });
    await eventually(
      'two restarts',
      () => Number(field('blocked', '.status.initContainerStatuses[0].restartCount')) >= 2,
    );
    assert.equal(field('blocked', '.status.phase'), 'Pending');
    assert.equal(
      field('blocked', '.status.conditions[?(@.type=="Initialized")].message'),
      'containers with incomplete status: [one two]',
    );
    for (const { object } of history('blocked')) {
      const { initContainerStatuses = [], containerStatuses = [] } = object.status;
      for (const status of [...initContainerStatuses.slice(1), ...containerStatuses]) {
        assert.deepEqual(status.state, { waiting: { reason: 'PodInitializing' } }, JSON.stringify(object.status));
        assert.equal(status.restartCount, 0);
      }
    }
    cluster.run(['delete', 'pod', 'blocked', '--wait=false']);
  });

  test('a pod that is deleted while it fails reports its termination and never runs again', async () => {
    const names = Array.from({ length: 5 }, (_none, index) => `failing-${index}`);
    for (const name of names) create(name, { restartPolicy: 'Never' }, { command: ['false'] });
    for (const name of names) {
      await eventually(`${name} began`, () => field(name, '.status.phase') !== 'Pending');
      cluster.run(['delete', 'pod', name, '--wait=false']);
    }
    for (const name of names) {
      await eventually(`the end of ${name}`, () => history(name).at(-1)?.type === 'DELETED');
      let ended = false;
      for (const { object } of history(name)) {
        const [status] = object.status.containerStatuses ?? [];
        const { terminated } = status?.state ?? {};
        if (ended) assert.ok(terminated !== undefined, `${name} came back: ${JSON.stringify(status)}`);
        if (terminated === undefined) continue;
        ended = true;
        assert.ok(terminated.exitCode === 1 || terminated.exitCode === 137, JSON.stringify(terminated));
        assert.ok(terminated.startedAt !== undefined && terminated.startedAt !== null, JSON.stringify(terminated));
      }
      assert.ok(ended, `${name} went without its end`);
      assert.equal(history(name).at(-1)?.object.status.phase, 'Failed');
    }
  });

  test('a runtime class selects the handler of the runtime, and running pods keep it', async () => {
    for (const [name, handler] of [
      ['usual', 'runc'],
      ['unknown', 'no-such-handler'],
    ])
      cluster.run(['apply', '-f', '-'], {
        input: JSON.stringify({ apiVersion: 'node.k8s.io/v1', kind: 'RuntimeClass', metadata: { name }, handler }),
      });
    create(
      'usual',
      { runtimeClassName: 'usual' },
      { command: ['sh', '-c', 'trap "exit 3" TERM; while :; do sleep 1; done'] },
    );
    create('unknown', { runtimeClassName: 'unknown' });
    cluster.run(['wait', '--for=condition=Ready', 'pod/usual', '--timeout=90s']);
    await eventually('the refusal', () =>
      eventMessages('unknown', 'FailedCreatePodSandBox').includes('no-such-handler'),
    );
    assert.equal(field('unknown', '.status.phase'), 'Pending');
    cluster.run(['delete', 'runtimeclass', 'usual', 'unknown']);
    cluster.run(['exec', 'usual', '--', 'kill', '1']);
    await eventually('a restart without the class', () =>
      /^1 true$/.test(field('usual', '.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready')),
    );
    cluster.run(['delete', 'pod', 'usual', 'unknown', '--wait=false']);
  });

  test('a pod waits for a missing sub-path', async () => {
    const fieldRef = { fieldPath: "metadata.annotations['place']" };
    create(
      'placed',
      { volumes: [{ name: 'work', emptyDir: {} }] },
      {
        env: [{ name: 'PLACE', valueFrom: { fieldRef } }],
        volumeMounts: [
          { name: 'work', mountPath: '/part', subPathExpr: '$(PLACE)/inner' },
          { name: 'work', mountPath: '/whole' },
        ],
      },
    );
    await eventually('the refusal', () =>
      /CreateContainerConfigError/.test(field('placed', '.status.containerStatuses[0].state.waiting.reason')),
    );
    cluster.run(['annotate', 'pod', 'placed', 'place=here']);
    cluster.run(['wait', '--for=condition=Ready', 'pod/placed', '--timeout=90s']);
    const write = 'echo written > /part/file; cat /whole/here/inner/file';
    assert.equal(cluster.run(['exec', 'placed', '--', 'sh', '-c', write]), 'written\n');
  });

  test("what others write of a pod's conditions holds for theirs, and not for the agent's own", async () => {
    create('gated', { readinessGates: [{ conditionType: 'example.com/open' }] });
    const conditions = (...list: (readonly [string, string])[]): void =>
      void cluster.run([
        ...['patch', 'pod', 'gated', '--subresource', 'status', '-p'],
        JSON.stringify({ status: { conditions: list.map(([type, status]) => ({ type, status })) } }),
      ]);
    const ready = (): string => field('gated', '.status.conditions[?(@.type=="Ready")].status');
    await eventually('a running pod', () => field('gated', '.status.phase') === 'Running');
    assert.equal(ready(), 'False');
    conditions(['example.com/open', 'True']);
    await eventually('an open gate', () => ready() === 'True');
    conditions(['Ready', 'False'], ['ContainersReady', 'False']);
    await eventually('the truth again', () => ready() === 'True');
    conditions(['example.com/open', 'False']);
    await eventually('a closed gate', () => ready() === 'False');
  });
});
