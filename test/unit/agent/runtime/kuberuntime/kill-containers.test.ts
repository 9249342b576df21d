/**
 * The termination of containers: hooks run within the grace period, and sidecars terminate last in reverse order, all within
 * one grace period.
 */
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import { after, before, describe, it } from 'node:test';
import type { AddressInfo } from 'node:net';
import type { Container, Pod } from '../../../../../agent/base/model/pod.ts';
import {
  killContainer,
  type KillDeps,
  killPodContainers,
} from '../../../../../agent/runtime/kuberuntime/kill-containers.ts';
import { assembleRuntimeStatus } from '../../../../../agent/runtime/kuberuntime/runtime-status.ts';
import type { ContainerStatus } from '../../../../../agent/runtime/runtime.ts';
import type { ContainerId } from '../../../../../agent/runtime/runtime-identity.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

/** Returns fakes that record the calls. Stopping a container that `tookMs` names takes this long. */
function deps(
  clock: FakeClock,
  tookMs: Readonly<Record<string, number>> = {},
): KillDeps & { readonly calls: string[] } {
  const calls: string[] = [];
  return {
    calls,
    clock,
    logger: silentLogger,
    events: { event: (_pod, type, reason, message) => void calls.push(`event ${type} ${reason} ${message}`) },
    runtime: {
      execSync: async (id, command, { signal }) => {
        calls.push(`exec ${id} ${command.join(' ')}`);
        if (command[0] === 'fail') throw new Error('exec failed');
        if (command[0] === 'sleep') await clock.sleep(Number(command[1]) * 1000, signal);
        return { exitCode: 0, stdout: Buffer.alloc(0), stderr: Buffer.alloc(0), outputBytes: 0 };
      },
      stopContainer: async (id, grace) => {
        calls.push(`stop ${id} ${grace}`);
        await clock.sleep(tookMs[id] ?? 0);
        calls.push(`stopped ${id}`);
      },
    },
  };
}

const running = (...names: string[]) =>
  assembleRuntimeStatus(
    { uid: 'u', name: 'p', namespace: 'd' },
    [],
    names.map(
      (name) => ({ id: name, name, state: 'running', attempt: 0, createdAtMs: 0 }) as unknown as ContainerStatus,
    ),
  );

const never = new AbortController().signal;

function pod(spec: object, metadata: object = {}): Pod {
  return { metadata: { name: 'p', namespace: 'd', uid: 'u', ...metadata }, spec } as unknown as Pod;
}

function request(of: Pod, container: Container, more: { gracePeriodSeconds?: number } = {}) {
  return {
    pod: of,
    container,
    id: container.name as ContainerId,
    podIp: '127.0.0.1',
    message: '',
    signal: never,
    ...more,
  };
}

const plain = { name: 'c', image: 'i' } as Container;
const withHook = (preStop: object): Container => ({ ...plain, lifecycle: { preStop } }) as Container;

async function kill(container: Container, more: { seconds?: number; gracePeriodSeconds?: number } = {}) {
  const clock = new FakeClock();
  const used = deps(clock);
  const of = pod({ terminationGracePeriodSeconds: 30, containers: [container] });
  const { seconds = 60, ...rest } = more;
  const done = killContainer(used, request(of, container, rest));
  await clock.advance(seconds * 1000);
  await done;
  return used.calls.filter((call) => !call.startsWith('event Normal Killing') && !call.startsWith('stopped'));
}

describe('a container is ended', () => {
  it("with the pod's grace period", async () => assert.deepEqual(await kill(plain), ['stop c 30']));
  it('with a shorter one if it is given', async () =>
    assert.deepEqual(await kill(plain, { gracePeriodSeconds: 3 }), ['stop c 3']));
  it('after its preStop command, which counts', async () =>
    assert.deepEqual(await kill(withHook({ exec: { command: ['sleep', '10'] } })), ['exec c sleep 10', 'stop c 20']));
  it('after a preStop pause', async () =>
    assert.deepEqual(await kill(withHook({ sleep: { seconds: 12 } })), ['stop c 18']));
  it('with two seconds at least after a hook that takes it all, which failed then unless it is a pause', async () => {
    assert.deepEqual(await kill(withHook({ exec: { command: ['sleep', '100'] } })), [
      'exec c sleep 100',
      'event Warning FailedPreStopHook PreStopHook failed',
      'stop c 2',
    ]);
    assert.deepEqual(await kill(withHook({ sleep: { seconds: 100 } })), ['stop c 2']);
  });
  it('although its hook fails, which causes an event', async () =>
    assert.deepEqual(await kill(withHook({ exec: { command: ['fail'] } })), [
      'exec c fail',
      'event Warning FailedPreStopHook PreStopHook failed',
      'stop c 30',
    ]));
  it('without its hook, with no grace, yet not without a moment for the signal', async () =>
    assert.deepEqual(await kill(withHook({ sleep: { seconds: 5 } }), { gracePeriodSeconds: 0 }), ['stop c 2']));
  it('after a preStop pause of nothing', async () =>
    assert.deepEqual(await kill(withHook({ sleep: { seconds: 0 } })), ['stop c 30']));

  it("by the deletion's grace before the pod's own", async () => {
    const clock = new FakeClock();
    const used = deps(clock);
    const of = pod({ terminationGracePeriodSeconds: 30, containers: [plain] }, { deletionGracePeriodSeconds: 7 });
    const done = killContainer(used, request(of, plain));
    await clock.advance(1000);
    await done;
    assert.ok(used.calls.includes('stop c 7'));
  });
});

describe('preStop over the network', () => {
  const seen: string[] = [];
  let server: Server;
  let port = 0;
  before(async () => {
    server = createServer((request, response) => {
      seen.push(`${request.method} ${request.url} ${request.headers['x-why'] ?? ''} ${request.headers['user-agent']}`);
      response.writeHead(request.url === '/missing' ? 404 : 200).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    port = (server.address() as AddressInfo).port;
  });
  after(() => new Promise((resolve) => server.close(resolve)));

  const heard = (hook: object): Promise<{ seen: string[]; warnings: string[] }> => run({ httpGet: hook });
  const run = async (hook: object): Promise<{ seen: string[]; warnings: string[] }> => {
    seen.length = 0;
    const container = { ...withHook(hook), ports: [{ name: 'web', containerPort: port }] } as Container;
    const clock = new FakeClock();
    const used = deps(clock);
    const done = killContainer(used, request(pod({ containers: [container] }), container));
    await eventually(() => used.calls.some((call) => call.startsWith('stop ')));
    await clock.advance(0);
    await done;
    return { seen: [...seen], warnings: used.calls.filter((call) => call.startsWith('event Warning')) };
  };

  it("asks the pod's address, with headers, a named port", async () => {
    assert.deepEqual(await heard({ path: 'bye', port: 'web', httpHeaders: [{ name: 'X-Why', value: 'end' }] }), {
      seen: ['GET /bye end kube-lifecycle/1.36'],
      warnings: [],
    });
  });
  it('connects by TCP, and reports a failed connection', async () => {
    assert.deepEqual(await run({ tcpSocket: { port: 'web' } }), { seen: [], warnings: [] });
    // Nothing listens on the discard port.
    assert.deepEqual((await run({ tcpSocket: { port: 9, host: '127.0.0.1' } })).warnings, [
      'event Warning FailedPreStopHook PreStopHook failed',
    ]);
  });
  it('takes any status as an answer', async () =>
    assert.deepEqual(await heard({ path: '/missing', port: 'web' }), {
      seen: ['GET /missing  kube-lifecycle/1.36'],
      warnings: [],
    }));
  it('retries without TLS if the server has none, and reports it', async () =>
    assert.deepEqual(await heard({ path: '/bye', port: 'web', scheme: 'HTTPS' }), {
      seen: ['GET /bye  kube-lifecycle/1.36'],
      warnings: [
        `event Warning LifecycleHTTPFallback request to HTTPS lifecycle hook 127.0.0.1:${port} got HTTP response, retry with HTTP succeeded`,
      ],
    }));
});

/** Waits for something that does not depend on virtual time. */
async function eventually(check: () => boolean): Promise<void> {
  while (!check()) await new Promise((resolve) => setImmediate(resolve));
}

describe('the containers of a pod are ended', () => {
  const side = (name: string): object => ({ name, image: 'i', restartPolicy: 'Always' });
  const of = pod({
    terminationGracePeriodSeconds: 30,
    initContainers: [side('one'), { name: 'setup', image: 'i' }, side('two')],
    containers: [
      { name: 'a', image: 'i' },
      { name: 'b', image: 'i' },
    ],
  });
  const order = async (tookMs: Readonly<Record<string, number>>, grace?: number): Promise<string[]> => {
    const clock = new FakeClock();
    const used = deps(clock, tookMs);
    const done = killPodContainers(used, of, running('one', 'two', 'a', 'b'), {
      gracePeriodSeconds: grace,
      signal: never,
    });
    await clock.advance(120_000);
    await done;
    return used.calls.filter((call) => call.startsWith('stop'));
  };

  it('together, and its sidecars after them in reverse order within the rest of the grace period', async () =>
    assert.deepEqual(await order({ a: 5_000, two: 4_000 }), [
      'stop a 30',
      'stop b 30',
      'stopped b',
      'stopped a',
      'stop two 25',
      'stopped two',
      'stop one 21',
      'stopped one',
    ]));
  it('within one grace period, sidecars two seconds after its end, all of them then', async () =>
    assert.deepEqual(
      (await order({ a: 40_000 })).filter((call) => /^stop (two|one)/.test(call)),
      ['stop two 2', 'stop one 2'],
    ));
  it('in their order with no grace, each with a moment for the signal', async () =>
    assert.deepEqual(
      (await order({}, 0)).filter((call) => !call.startsWith('stopped')),
      ['stop a 2', 'stop b 2', 'stop two 2', 'stop one 2'],
    ));

  it('with the hooks of all at the beginning, those of sidecars too', async () => {
    const clock = new FakeClock();
    const used = deps(clock, { a: 5_000 });
    const lifecycle = { preStop: { exec: { command: ['bye'] } } };
    const hooked = pod({
      terminationGracePeriodSeconds: 30,
      initContainers: [{ ...side('one'), lifecycle }, side('two')],
      containers: [{ name: 'a', image: 'i', lifecycle }],
    });
    const done = killPodContainers(used, hooked, running('one', 'two', 'a'), { signal: never });
    await clock.advance(120_000);
    await done;
    const calls = used.calls.filter((call) => !call.startsWith('event'));
    assert.deepEqual(calls.slice(0, 2).toSorted(), ['exec a bye', 'exec one bye']);
    assert.deepEqual(calls.slice(2), [
      'stop a 30',
      'stopped a',
      'stop two 25',
      'stopped two',
      'stop one 25',
      'stopped one',
    ]);
  });
});

describe('the grace period of a pod', () => {
  const stops = async (metadata: object, override?: number): Promise<readonly string[]> => {
    const clock = new FakeClock();
    const used = deps(clock);
    const container = withHook({ exec: { command: ['bye'] } });
    const of = pod({ containers: [{ ...container, name: 'c' }], terminationGracePeriodSeconds: 30 }, metadata);
    const done = killPodContainers(used, of, running('c'), { gracePeriodSeconds: override, signal: never });
    await clock.advance(60_000);
    await done;
    return used.calls.filter((call) => !/^(event|stopped)/.test(call));
  };
  it('is the shorter one of the deletion and of the eviction', async () => {
    assert.deepEqual(await stops({ deletionGracePeriodSeconds: 7 }, 20), ['exec c bye', 'stop c 7']);
    assert.deepEqual(await stops({ deletionGracePeriodSeconds: 20 }, 7), ['exec c bye', 'stop c 7']);
  });
  it('is at least a second, so that the hooks of a pod run whose deletion is forced', async () =>
    assert.deepEqual(await stops({ deletionGracePeriodSeconds: 0 }), ['exec c bye', 'stop c 2']));
});

describe('an abort', () => {
  it('ends the wait for a container at once, without an event of failure', async () => {
    const clock = new FakeClock();
    const used = deps(clock, { c: 25_000 });
    const abort = new AbortController();
    const done = assert.rejects(
      killContainer(used, { ...request(pod({ containers: [plain] }), plain), signal: abort.signal }),
      /shorter/,
    );
    await clock.advance(1_000);
    abort.abort(new Error('the grace period is shorter now'));
    await done;
    assert.deepEqual(used.calls, ['event Normal Killing Stopping container c', 'stop c 30']);
  });
  it('ends a hook, and the container gets no signal with the old grace period', async () => {
    const clock = new FakeClock();
    const used = deps(clock);
    const abort = new AbortController();
    const container = withHook({ exec: { command: ['sleep', '20'] } });
    const done = assert.rejects(
      killContainer(used, { ...request(pod({ containers: [container] }), container), signal: abort.signal }),
      /shorter/,
    );
    await clock.advance(1_000);
    abort.abort(new Error('the grace period is shorter now'));
    await done;
    await clock.advance(60_000);
    assert.deepEqual(
      used.calls.filter((call) => call.startsWith('stop')),
      [],
    );
  });
  it('keeps sidecars from getting the signal with the old grace period', async () => {
    const clock = new FakeClock();
    const used = deps(clock, { one: 5_000 });
    const abort = new AbortController();
    const of = pod({ containers: [{ name: 'one' }], initContainers: [{ name: 'a', restartPolicy: 'Always' }] });
    const done = assert.rejects(killPodContainers(used, of, running('one', 'a'), { signal: abort.signal }), /shorter/);
    await clock.advance(1_000);
    abort.abort(new Error('the grace period is shorter now'));
    await done;
    await clock.advance(60_000);
    assert.deepEqual(
      used.calls.filter((call) => call.startsWith('stop ')),
      ['stop one 30'],
    );
  });
});
