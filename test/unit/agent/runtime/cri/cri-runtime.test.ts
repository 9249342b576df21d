/**
 * Tests the CRI runtime against a gRPC server that answers as containerd does. Requests and responses are real bytes on a
 * socket.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { startCriRuntime } from '../../../../../agent/runtime/cri/cri-runtime.ts';
import { MESSAGES } from '../../../../../agent/runtime/cri/messages.ts';
import { METHODS } from '../../../../../agent/runtime/cri/schema.ts';
import type { LinuxResources, Runtime } from '../../../../../agent/runtime/runtime.ts';
import type { ContainerId, SandboxId } from '../../../../../agent/runtime/runtime-identity.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { PluginError, type PluginMethods, serveGrpc } from '../../../../fakes/grpc-plugin.ts';
import { containerConfig, sandboxConfig } from '../../../../fakes/runtime-config.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const NOT_FOUND = 5;
const UNIMPLEMENTED = 12;
const UID = 'io.kubernetes.pod.uid';
const POD = { name: 'web', namespace: 'shop', uid: 'u1', attempt: 0 };
const LABELS = { [UID]: 'u1', tier: 'front' };
const container = (id: string): ContainerId => id as ContainerId;
const sandbox = (id: string): SandboxId => id as SandboxId;

const gone = (): never => {
  throw new PluginError(NOT_FOUND, 'no such object');
};

/** Starts the runtime on a server with these methods. `calls` are the names of the methods that were called. */
async function start(t: TestContext, methods: PluginMethods): Promise<{ runtime: Runtime; calls: string[] }> {
  const socket = join(temporaryFolder(), 'cri.sock');
  const calls: string[] = [];
  const all: PluginMethods = {
    version: () => ({ version: '0.1.0', runtimeName: 'containerd', runtimeVersion: 'v2.1', runtimeApiVersion: 'v1' }),
    ...methods,
  };
  const counted = Object.entries(all).map(([name, method]) => [
    name,
    (request: never) => {
      calls.push(name);
      return method(request);
    },
  ]);
  const named = Object.entries(METHODS).map(([name, [service, ...types]]) => [
    name,
    [`runtime.v1.${service}`, ...types],
  ]);
  const close = await serveGrpc(socket, [
    { messages: MESSAGES, methods: Object.fromEntries(named) as never, implementation: Object.fromEntries(counted) },
  ]);
  t.after(close);
  const runtime = await startCriRuntime({
    endpoint: `unix://${socket}`,
    nodeName: 'n1',
    rootDirectory: '/var/lib/kubelet',
    clock: systemClock,
    logger: silentLogger,
  });
  t.after(() => runtime.close());
  return { runtime, calls };
}

/** Returns a list entry of a container in the sandbox `s1`. */
const listed = (id: string, state: number, labels: object = LABELS) => ({
  id,
  podSandboxId: 's1',
  metadata: { name: id, attempt: 1 },
  image: { image: 'sha256:1', userSpecifiedImage: 'web:1' },
  imageRef: 'web@sha256:2',
  imageId: 'sha256:1',
  state,
  createdAt: 3_000_000,
  labels,
  annotations: {},
});

const status = (id: string, more: object = {}) => ({
  status: {
    id,
    metadata: { name: id, attempt: 1 },
    state: 1,
    createdAt: 3_000_000,
    startedAt: 4_000_000,
    image: { image: 'sha256:1', userSpecifiedImage: 'web:1' },
    imageRef: 'web@sha256:2',
    labels: LABELS,
    annotations: { a: 'b' },
    mounts: [{ containerPath: '/data', hostPath: '/host', readonly: true, propagation: 1 }],
    logPath: '/logs/0.log',
    ...more,
  },
});

describe('the statuses of containers', () => {
  it('have the times in milliseconds, and the mounts, resources and users that the runtime reports', async (t) => {
    const { runtime } = await start(t, {
      containerStatus: () =>
        status('c1', {
          resources: { linux: { cpuShares: 512, memoryLimitInBytes: 1024, unified: { 'memory.high': '9' } } },
          user: { linux: { uid: 7, gid: 8, supplementalGroups: [9] } },
        }),
      listContainers: () => ({ containers: [listed('c1', 1)] }),
    });
    const found = await runtime.containerStatus(container('c1'));
    assert.deepEqual(
      [found.createdAtMs, found.startedAtMs, found.finishedAtMs, found.state, found.sandboxId, found.image],
      [3, 4, 0, 'running', 's1', 'web:1'],
    );
    assert.deepEqual(found.mounts, [
      {
        containerPath: '/data',
        hostPath: '/host',
        readonly: true,
        recursiveReadOnly: false,
        propagation: 'host-to-container',
        seLinuxRelabel: false,
      },
    ]);
    assert.equal(found.resources?.cpuShares, 512);
    assert.deepEqual(found.resources?.unified, { 'memory.high': '9' });
    assert.deepEqual(found.user, { uid: 7, gid: 8, supplementalGroups: [9] });
  });

  it('are requested once for each state, and those of other programs not at all', async (t) => {
    let state = 1;
    const { runtime, calls } = await start(t, {
      listContainers: () => ({ containers: [listed('c1', state), listed('other', 1, {})] }),
      containerStatus: ({ containerId }: { containerId: string }) =>
        status(containerId, { state, exitCode: 1, reason: 'Error' }),
    });
    const requests = (): number => calls.filter((name) => name === 'containerStatus').length;
    const first = await runtime.listContainers();
    assert.deepEqual(
      first.map(({ id, state: is, reason }) => [id, is, reason]),
      [['c1', 'running', '']],
    );
    await runtime.listContainers();
    assert.equal(requests(), 1);
    state = 2;
    const [exited] = await runtime.listContainers();
    assert.deepEqual([exited?.state, exited?.exitCode, exited?.reason], ['exited', 1, 'Error']);
    assert.equal(requests(), 2);
  });

  it('of one pod are listed once for those who ask at the same time, and again once something has changed', async (t) => {
    const { runtime, calls } = await start(t, {
      containerStatus: () => status('c1'),
      listContainers: () => ({ containers: [listed('c1', 1)] }),
      stopContainer: () => ({}),
    });
    const lists = (): number => calls.filter((name) => name === 'listContainers').length;
    const [one, other] = [runtime.listContainers({ podUid: 'u1' }), runtime.listContainers({ podUid: 'u1' })];
    assert.deepEqual(await one, await other);
    assert.equal(lists(), 1);
    await runtime.listContainers({ podUid: 'u1' });
    assert.equal(lists(), 2);
    const before = runtime.listContainers({ podUid: 'u1' });
    await runtime.stopContainer(container('c1'), 0);
    await Promise.all([before, runtime.listContainers({ podUid: 'u1' })]);
    assert.equal(lists(), 4);
  });

  it('are requested again after the resources have changed, which lists do not show', async (t) => {
    let shares = 2;
    const updates: object[] = [];
    const { runtime } = await start(t, {
      listContainers: () => ({ containers: [listed('c1', 1)] }),
      containerStatus: () => status('c1', { resources: { linux: { cpuShares: shares } } }),
      updateContainerResources: (request: object) => {
        updates.push(request);
        shares = 4;
        return {};
      },
    });
    const sharesOf = async () => (await runtime.listContainers())[0]?.resources?.cpuShares;
    assert.equal(await sharesOf(), 2);
    const wanted: Partial<LinuxResources> = { cpuShares: 4, hugepageLimits: [], unified: {} };
    await runtime.updateResources(container('c1'), wanted as LinuxResources);
    assert.equal(await sharesOf(), 4);
    assert.equal(updates.length, 1);
  });

  it('leave out a container that is removed between the list and its status', async (t) => {
    const { runtime } = await start(t, {
      listContainers: () => ({ containers: [listed('c1', 1), listed('c2', 1)] }),
      containerStatus: ({ containerId }: { containerId: string }) => (containerId === 'c2' ? gone() : status('c1')),
    });
    assert.deepEqual(
      (await runtime.listContainers({ podUid: 'u1' })).map(({ id }) => id),
      ['c1'],
    );
    await assert.rejects(runtime.containerStatus(container('c2')), { code: 'not-found' });
  });

  it('wait for the reason of a kill that the agent did not send, and not for one that it sent', async (t) => {
    let reason = '';
    let requests = 0;
    const { runtime } = await start(t, {
      listContainers: () => ({ containers: [listed('c1', 2)] }),
      containerStatus: () => {
        requests += 1;
        const answer = status('c1', { state: 2, exitCode: 137, reason });
        reason = 'OOMKilled';
        return answer;
      },
      stopContainer: () => ({}),
    });
    assert.equal((await runtime.containerStatus(container('c1'))).reason, 'OOMKilled');
    assert.equal(requests, 2);
    reason = '';
    await runtime.stopContainer(container('c1'), 0);
    assert.equal((await runtime.containerStatus(container('c1'))).reason, '');
    assert.equal(requests, 3);
  });
});

describe('the statuses of sandboxes', () => {
  const sandboxStatus = (id: string, more: object = {}) => ({
    status: {
      id,
      metadata: POD,
      state: 0,
      createdAt: 1_000_000,
      network: { ip: '10.0.0.1', additionalIps: [{ ip: 'fd00::1' }] },
      labels: LABELS,
      annotations: {},
      ...more,
    },
    info: { info: '{"pid": 4711}' },
  });
  const entry = (id: string, createdAt: number) => ({ id, metadata: POD, state: 0, createdAt, labels: LABELS });

  it('have all addresses of the pod, and none on the network of the host', async (t) => {
    const { runtime } = await start(t, {
      podSandboxStatus: ({ podSandboxId }: { podSandboxId: string }) =>
        sandboxStatus(
          podSandboxId,
          podSandboxId === 'host' ? { linux: { namespaces: { options: { network: 2 } } } } : {},
        ),
    });
    const own = await runtime.sandboxStatus(sandbox('s1'));
    assert.deepEqual([own.ips, own.networkMode, own.pod, own.state], [['10.0.0.1', 'fd00::1'], 'pod', POD, 'ready']);
    const onHost = await runtime.sandboxStatus(sandbox('host'));
    assert.deepEqual([onHost.ips, onHost.networkMode], [[], 'node']);
    assert.equal(await runtime.sandboxProcess(sandbox('s1')), 4711);
  });

  it('have no known process if the runtime shows none in the form of containerd', async (t) => {
    const texts: readonly string[] = ['', 'pid 4711', 'null', '[]', '{"pid": "4711"}'];
    const { runtime } = await start(t, {
      podSandboxStatus: ({ podSandboxId }: { podSandboxId: string }) => ({
        ...sandboxStatus(podSandboxId),
        info: { info: texts[Number(podSandboxId)] ?? '' },
      }),
    });
    for (const [index, text] of texts.entries())
      assert.equal(await runtime.sandboxProcess(sandbox(String(index))), 0, text);
  });

  it('need one call to stop, because another one would call the network plugins again', async (t) => {
    const { runtime, calls } = await start(t, { stopPodSandbox: () => ({}) });
    await runtime.stopSandbox(sandbox('s1'));
    await runtime.stopSandbox(sandbox('s1'));
    assert.equal(calls.filter((name) => name === 'stopPodSandbox').length, 1);
  });

  it('are listed newest first, each requested once', async (t) => {
    const { runtime, calls } = await start(t, {
      listPodSandbox: () => ({ items: [entry('old', 1_000_000), entry('new', 2_000_000), { id: 'other' }] }),
      podSandboxStatus: ({ podSandboxId }: { podSandboxId: string }) =>
        sandboxStatus(podSandboxId, { createdAt: podSandboxId === 'new' ? 2_000_000 : 1_000_000 }),
    });
    for (let round = 0; round < 2; round += 1)
      assert.deepEqual(
        (await runtime.listSandboxes()).map(({ id }) => id),
        ['new', 'old'],
      );
    assert.equal(calls.filter((name) => name === 'podSandboxStatus').length, 2);
  });

  it('are those of the list where the runtime cannot report one', async (t) => {
    const { runtime } = await start(t, {
      listPodSandbox: () => ({ items: [entry('s1', 1_000_000)] }),
      podSandboxStatus: () => {
        throw new PluginError(2, 'the shim hangs');
      },
    });
    const [found] = await runtime.listSandboxes();
    assert.deepEqual([found?.id, found?.ips, found?.labels], ['s1', [], LABELS]);
    await assert.rejects(runtime.listSandboxes({ podUid: 'u1' }), { code: 'unknown' });
  });
});

describe('the life of a pod', () => {
  it('gives its sandbox the label of this agent, and its containers their log directory', async (t) => {
    const requests: { labels: Record<string, string>; containerLog: string }[] = [];
    const { runtime, calls } = await start(t, {
      runPodSandbox: ({ config }: { config: { labels: Record<string, string> } }) => {
        requests.push({ labels: config.labels, containerLog: '' });
        return { podSandboxId: 's1' };
      },
      createContainer: ({ config }: { config: { labels: Record<string, string>; logPath: string } }) => {
        requests.push({ labels: config.labels, containerLog: config.logPath });
        return { containerId: 'c1' };
      },
      startContainer: () => ({}),
      stopContainer: gone,
      removeContainer: gone,
      stopPodSandbox: gone,
      removePodSandbox: gone,
    });
    const logDirectory = join(temporaryFolder(), 'shop_web_u1');
    const pod = sandboxConfig({ pod: POD, labels: LABELS, logDirectory });
    const id = await runtime.runSandbox(pod);
    const created = await runtime.createContainer(id, pod, containerConfig({ labels: LABELS }));
    await runtime.startContainer(created);
    assert.equal(existsSync(join(logDirectory, 'main')), true);
    assert.match(requests[0]?.labels['orchlet.dev/instance'] ?? '', /^[0-9a-f]{16}$/);
    assert.deepEqual(requests[1], { labels: LABELS, containerLog: 'main/0.log' });
    // A container that is gone already counts as stopped and removed.
    await runtime.stopContainer(created, 1);
    await runtime.removeContainer(created);
    await runtime.stopSandbox(id);
    await runtime.removeSandbox(id);
    assert.deepEqual(calls.slice(-4), ['stopContainer', 'removeContainer', 'stopPodSandbox', 'removePodSandbox']);
  });

  it('has no log directory where a link takes its place, and the runtime, which would follow the link, is not called', async (t) => {
    const { runtime, calls } = await start(t, {
      runPodSandbox: () => ({ podSandboxId: 's1' }),
      createContainer: () => ({ containerId: 'c1' }),
    });
    const directory = temporaryFolder();
    const [host, logDirectory] = [join(directory, 'host'), join(directory, 'shop_web_u1')];
    mkdirSync(host);
    symlinkSync(host, logDirectory);
    const pod = sandboxConfig({ pod: POD, labels: LABELS, logDirectory });
    const before = calls.length;
    await assert.rejects(runtime.runSandbox(pod), { code: 'ENOTDIR' });
    await assert.rejects(runtime.createContainer(sandbox('s1'), pod, containerConfig({ labels: LABELS })), {
      code: 'ENOTDIR',
    });
    assert.deepEqual([calls.slice(before), readdirSync(host)], [[], []]);
  });

  it('has the error of the runtime without a prefix where a container cannot be started', async (t) => {
    const { runtime } = await start(t, {
      startContainer: () => {
        throw new PluginError(2, 'exec: "none": not found');
      },
    });
    await assert.rejects(runtime.startContainer(container('c1')), { message: 'exec: "none": not found' });
  });
});

describe('a command in a container', () => {
  it('has its exit code, and as much of its output as is asked for', async (t) => {
    const { runtime } = await start(t, {
      execSync: () => ({ stdout: Buffer.from('abcdef'), stderr: Buffer.from('xyz'), exitCode: 3 }),
    });
    const options = { timeoutMs: 1500, maxOutputBytes: 2 };
    const { exitCode, stdout, stderr, outputBytes } = await runtime.execSync(container('c1'), ['a'], options);
    assert.equal(outputBytes, 9);
    assert.deepEqual([exitCode, String(stdout), String(stderr)], [3, 'ab', 'xy']);
  });

  it('is cancelled with its signal', async (t) => {
    const { runtime } = await start(t, { execSync: () => new Promise(() => undefined) });
    const abort = new AbortController();
    const running = runtime.execSync(container('c1'), ['a'], { timeoutMs: 60_000, signal: abort.signal });
    abort.abort();
    await assert.rejects(running);
  });
});

describe('the facts of a runtime', () => {
  it('are its name, its conditions and its handlers', async (t) => {
    const { runtime } = await start(t, {
      status: () => ({
        status: { conditions: [{ type: 'NetworkReady', status: false, reason: 'r', message: 'no CNI' }] },
        runtimeHandlers: [{ name: 'kata', features: { userNamespaces: true } }, { name: '' }],
        features: { supplementalGroupsPolicy: true },
      }),
    });
    assert.deepEqual(await runtime.info(), { name: 'containerd', version: 'v2.1', apiVersion: 'v1' });
    assert.deepEqual(await runtime.conditions(), [
      { type: 'NetworkReady', ready: false, reason: 'r', message: 'no CNI' },
    ]);
    assert.deepEqual(await runtime.features(), {
      handlers: [
        { name: 'kata', recursiveReadOnlyMounts: false, userNamespaces: true },
        { name: '', recursiveReadOnlyMounts: false, userNamespaces: false },
      ],
      supplementalGroupsPolicy: true,
    });
  });

  for (const [config, driver] of [
    [{ config: '{"SystemdCgroup": true}' }, 'systemd'],
    [{ config: '{"SystemdCgroup": false}' }, 'cgroupfs'],
    [{}, undefined],
  ] as const)
    it(`are read from its configuration where it has no call for the cgroup driver: ${driver}`, async (t) => {
      const { runtime } = await start(t, { status: () => ({ info: config }) });
      assert.equal(await runtime.cgroupDriver(), driver);
    });

  it('have the cgroup driver that it reports', async (t) => {
    const { runtime } = await start(t, { runtimeConfig: () => ({ linux: { cgroupDriver: 0 } }) });
    assert.equal(await runtime.cgroupDriver(), 'systemd');
  });

  it('need no call for the pod CIDR, but another failure of the call is reported', async (t) => {
    const without = await start(t, {});
    await without.runtime.setPodCidr(['10.0.0.0/24'], {});
    const failing = await start(t, {
      updateRuntimeConfig: () => {
        throw new PluginError(2, 'busy');
      },
    });
    await assert.rejects(failing.runtime.setPodCidr(['10.0.0.0/24'], {}), { code: 'unknown' });
  });
});

describe('images', () => {
  const IMAGE = { id: 'sha256:1', repoTags: ['web:1'], size: 5, uid: { value: 7 }, pinned: true };

  it('are listed with the user of their configuration', async (t) => {
    const { runtime } = await start(t, {
      listImages: () => ({ images: [IMAGE, { id: 'sha256:2', username: 'www' }] }),
      imageStatus: ({ image }: { image: { image: string } }) => (image.image === 'web:1' ? { image: IMAGE } : {}),
    });
    assert.deepEqual(
      (await runtime.listImages()).map(({ id, user, pinned, sizeBytes }) => [id, user, pinned, sizeBytes]),
      [
        ['sha256:1', '7', true, 5],
        ['sha256:2', 'www', false, 0],
      ],
    );
    assert.equal((await runtime.imageStatus('web:1'))?.id, 'sha256:1');
    assert.equal(await runtime.imageStatus('none:1'), undefined);
  });

  it('are pulled with credentials whose server is left out, because it is chosen already', async (t) => {
    const seen: object[] = [];
    const { runtime } = await start(t, {
      pullImage: ({ auth }: { auth: object | null }) => {
        seen.push({ ...auth });
        return { imageRef: 'sha256:1' };
      },
      imageStatus: () => ({ image: { id: 'sha256:1' } }),
      removeImage: gone,
    });
    const { signal } = new AbortController();
    const auth = { username: 'ann', password: 'x', serverAddress: 'https://registry.example' };
    assert.equal(await runtime.pullImage('web:1', auth, { signal }), 'sha256:1');
    assert.equal((seen[0] as { username: string }).username, 'ann');
    assert.equal((seen[0] as { serverAddress: string }).serverAddress, '');
    await runtime.removeImage('web:1');
  });

  it('are removed after the pull if their user is so long that lists of images would be too long', async (t) => {
    const removed: unknown[] = [];
    const { runtime } = await start(t, {
      pullImage: () => ({ imageRef: 'sha256:1' }),
      imageStatus: () => ({ image: { id: 'sha256:1', username: 'u'.repeat(10_000) } }),
      removeImage: ({ image }: { image: { image: string } }) => {
        removed.push(image.image);
        return {};
      },
    });
    const pull = runtime.pullImage('web:1', undefined, { signal: new AbortController().signal });
    await assert.rejects(pull, /image "web:1" is not used: its user has 10000 characters/);
    assert.deepEqual(removed, ['sha256:1']);
  });

  it('have a filesystem, which is that of containers too unless they have another', async (t) => {
    const filesystem = (mountpoint: string) => ({ fsId: { mountpoint }, usedBytes: { value: 5 } });
    let answer: object = { imageFilesystems: [filesystem('/images')] };
    const { runtime } = await start(t, { imageFsInfo: () => answer });
    const images = [{ mountpoint: '/images', usedBytes: 5, inodesUsed: 0 }];
    assert.deepEqual(await runtime.imageFilesystems(), { images, containers: images });
    answer = { imageFilesystems: [filesystem('/images')], containerFilesystems: [filesystem('/layers')] };
    assert.equal((await runtime.imageFilesystems()).containers[0]?.mountpoint, '/layers');
  });
});

describe('usage', () => {
  it('is that of the containers of pods; what is not reported is 0', async (t) => {
    const { runtime } = await start(t, {
      listContainerStats: () => ({
        stats: [
          {
            attributes: { id: 'c1', labels: LABELS },
            cpu: { timestamp: 9_000_000, usageCoreNanoSeconds: { value: 11 } },
            writableLayer: { usedBytes: { value: 12 } },
          },
          { attributes: { id: 'other' } },
        ],
      }),
    });
    const [first, ...more] = await runtime.containerStats({ podUid: 'u1' });
    assert.deepEqual(
      [first?.id, first?.timestampMs, first?.cpuUsageCoreNs, first?.memoryRssBytes, first?.writableLayerBytes],
      ['c1', 9, 11, 0, 12],
    );
    assert.equal(more.length, 0);
  });
});

it('a socket on which no runtime of CRI v1 answers is refused at the start', async (t) => {
  const version = (): never => {
    throw new PluginError(UNIMPLEMENTED, 'unknown service runtime.v1.RuntimeService');
  };
  await assert.rejects(start(t, { version }), { code: 'unsupported' });
});
