import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { mkdir, rename } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it, test, type TestContext } from 'node:test';
import { inDirectory, removeTree } from '../../../../../agent/base/files/beneath.ts';
import { pluginMetrics } from '../../../../../agent/resources/statistics/driver-metrics.ts';
import { PluginManager, type PluginHandler } from '../../../../../agent/volumes/plugins/plugin-manager.ts';
import { REGISTRATION_MESSAGES, REGISTRATION_METHODS } from '../../../../../agent/volumes/plugins/schema.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { serveGrpc } from '../../../../fakes/grpc-plugin.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

interface RegistrationStatus {
  readonly pluginRegistered: boolean;
  readonly error: string;
}

/** Resolves to a plugin's registration socket: it reports `info` and records the notifications that it receives. */
async function plugin(
  socket: string,
  info: object,
): Promise<{ readonly statuses: RegistrationStatus[]; stop: () => Promise<void> }> {
  const statuses: RegistrationStatus[] = [];
  const stop = await serveGrpc(socket, [
    {
      messages: REGISTRATION_MESSAGES,
      methods: REGISTRATION_METHODS,
      implementation: {
        getInfo: () => info,
        notifyRegistrationStatus: (status: RegistrationStatus) => {
          statuses.push({ ...status });
          return {};
        },
      },
    },
  ]);
  return { statuses, stop };
}

async function setUp(t: TestContext, handler: Partial<PluginHandler> = {}) {
  const root = temporaryFolder();
  const registry = join(root, 'plugins_registry');
  await mkdir(registry);
  const calls: string[] = [];
  const manager = new PluginManager({
    rootDirectory: root,
    clock: systemClock,
    logger: silentLogger,
    handlers: {
      CSIPlugin: {
        validate: () => undefined,
        register: async ({ name, endpoint, supportedVersions }) =>
          void calls.push(`register ${name} ${endpoint} ${supportedVersions.join()}`),
        deregister: async (name, endpoint) => void calls.push(`deregister ${name} ${endpoint}`),
        ...handler,
      },
    },
  });
  const stop = new AbortController();
  const running = manager.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await running;
  });
  return { registry, calls, manager };
}

const info = { type: 'CSIPlugin', name: 'd.example.com', endpoint: '/x/csi.sock', supportedVersions: ['1.0.0'] };

describe('the plugin manager', { timeout: 60_000 }, () => {
  it('shows the sockets that exist and those whose plugin is registered in the metrics', async (t) => {
    const metrics = new MetricsRegistry();
    const { registry, calls, manager } = await setUp(t);
    pluginMetrics(metrics, () => manager.sockets());
    const shown = (): string[] =>
      metrics
        .text()
        .split('\n')
        .filter((line) => line.startsWith('plugin_manager_total_plugins'));
    const socket = join(registry, 'd-reg.sock');
    const { statuses, stop } = await plugin(socket, info);
    await until('the registration in the metrics', () => statuses.length > 0 && shown().length === 2);
    assert.deepEqual(shown(), [
      `plugin_manager_total_plugins{socket_path="${socket}",state="actual_state_of_world"} 1`,
      `plugin_manager_total_plugins{socket_path="${socket}",state="desired_state_of_world"} 1`,
    ]);
    await stop();
    await until('the end of the plugin', () => calls.some((call) => call.startsWith('deregister')));
    assert.deepEqual(shown(), []);
  });

  it('registers a plugin whose socket appears, notifies it, and deregisters it when the socket is removed', async (t) => {
    const { registry, calls } = await setUp(t);
    const { statuses, stop } = await plugin(join(registry, 'd-reg.sock'), info);
    await until('the answer to the plugin', () => statuses.length > 0);
    assert.deepEqual(statuses, [{ pluginRegistered: true, error: '' }]);
    assert.deepEqual(calls, ['register d.example.com /x/csi.sock 1.0.0']);
    await stop();
    await until('the call of the handler', () => calls.length > 1);
    assert.equal(calls[1], 'deregister d.example.com /x/csi.sock');
  });

  it('goes on beside directories that are nested deeper than any path', async (t) => {
    const { registry, calls } = await setUp(t);
    await inDirectory(registry, async (top) => {
      let directory = top;
      for (let level = 0; level < 40; level += 1) {
        const inner = await directory.make('a'.repeat(200), 0o755);
        if (directory !== top) await directory.close();
        directory = inner;
      }
      await directory.close();
    });
    const { stop } = await plugin(join(registry, 'd-reg.sock'), info);
    t.after(stop);
    await until('the call of the handler', () => calls.length > 0);
    assert.deepEqual(calls, ['register d.example.com /x/csi.sock 1.0.0']);
    await removeTree(join(registry, 'a'.repeat(200)));
  });

  it('registers a plugin beside hundreds of sockets that never answer, some at a time', async (t) => {
    const { registry, calls } = await setUp(t);
    let most = 0;
    const open = new Set<Socket>();
    const hostile = await Promise.all(
      Array.from({ length: 200 }, async (_, index) => {
        const server = createServer((socket) => {
          open.add(socket);
          most = Math.max(most, open.size);
          socket.on('error', () => undefined).on('close', () => open.delete(socket));
          // After a while, it responds in a way that no gRPC server does.
          setTimeout(() => socket.destroy(), 50);
        });
        await new Promise<void>((resolve) => server.listen(join(registry, `a${index}.sock`), resolve));
        return server;
      }),
    );
    t.after(() => hostile.map((server) => server.close()));
    const { stop } = await plugin(join(registry, 'z-reg.sock'), info);
    t.after(stop);
    await until('the call of the handler', () => calls.length > 0);
    assert.deepEqual(calls, ['register d.example.com /x/csi.sock 1.0.0']);
    // A closed connection is counted until the server sees its end.
    assert.ok(most > 0 && most <= 100, `${most} connections at once`);
  });

  it('finds sockets in sub-directories, and gives the socket itself where the plugin names none', async (t) => {
    const { registry, calls } = await setUp(t);
    await mkdir(join(registry, 'd.example.com'));
    const socket = join(registry, 'd.example.com/reg.sock');
    const { stop } = await plugin(socket, { ...info, endpoint: '' });
    t.after(stop);
    await until('the call of the handler', () => calls.length > 0);
    assert.deepEqual(calls, [`register d.example.com ${socket} 1.0.0`]);
  });

  it('registers a plugin again that has recreated its socket', async (t) => {
    const { registry, calls } = await setUp(t);
    const socket = join(registry, 'd-reg.sock');
    const first = await plugin(socket, info);
    await until('the call of the handler', () => calls.length === 1);
    const second = await plugin(join(registry, '.next.sock'), { ...info, supportedVersions: ['1.1.0'] });
    await rename(join(registry, '.next.sock'), socket);
    t.after(first.stop);
    t.after(second.stop);
    await until('the call of the handler', () => calls.length === 3);
    assert.deepEqual(calls.slice(1), [
      'deregister d.example.com /x/csi.sock',
      'register d.example.com /x/csi.sock 1.1.0',
    ]);
  });

  it('leaves sockets alone whose name begins with a dot', async (t) => {
    const { registry, calls } = await setUp(t);
    const hidden = await plugin(join(registry, '.hidden.sock'), info);
    t.after(hidden.stop);
    const shown = await plugin(join(registry, 'shown.sock'), { ...info, name: 'shown' });
    t.after(shown.stop);
    await until('the call of the handler', () => calls.length > 0);
    assert.deepEqual(calls, ['register shown /x/csi.sock 1.0.0']);
    assert.deepEqual(hidden.statuses, []);
  });

  it('reports an error to a plugin of an unknown type', async (t) => {
    const { registry } = await setUp(t);
    const socket = join(registry, 'x.sock');
    const { statuses, stop } = await plugin(socket, { ...info, type: 'Other' });
    t.after(stop);
    await until('the answer to the plugin', () => statuses.length > 0);
    assert.deepEqual(statuses[0], {
      pluginRegistered: false,
      error: `RegisterPlugin error -- no handler registered for plugin type: Other at socket ${socket}`,
    });
  });

  it('reports to a plugin why it is rejected', async (t) => {
    const { registry, calls } = await setUp(t, {
      validate: () => {
        throw new Error('too old');
      },
    });
    const { statuses, stop } = await plugin(join(registry, 'x.sock'), info);
    t.after(stop);
    await until('the answer to the plugin', () => statuses.length > 0);
    assert.equal(statuses[0]?.error, 'RegisterPlugin error -- plugin validation failed with err: too old');
    assert.deepEqual(calls, []);
  });

  it('deregisters a plugin whose registration failed when its socket is removed', async (t) => {
    const calls: string[] = [];
    const { registry } = await setUp(t, {
      register: async () => {
        calls.push('register');
        throw new Error('not yet');
      },
      deregister: async (name, endpoint) => void calls.push(`deregister ${name} ${endpoint}`),
    });
    const { statuses, stop } = await plugin(join(registry, 'x.sock'), info);
    await until('the answer to the plugin', () => statuses.length > 0);
    await stop();
    await removeTree(join(registry, 'x.sock'));
    await until('the removal of the plugin', () => calls.includes('deregister d.example.com /x/csi.sock'));
  });

  it('retries a failed registration, and logs the reason each time', async (t) => {
    let attempts = 0;
    const { registry } = await setUp(t, {
      register: async () => {
        attempts += 1;
        if (attempts === 1) throw new Error('not yet');
      },
    });
    const { statuses, stop } = await plugin(join(registry, 'x.sock'), info);
    t.after(stop);
    await until('the answer to the plugin', () => statuses.length > 1);
    assert.deepEqual(statuses, [
      { pluginRegistered: false, error: 'RegisterPlugin error -- plugin registration failed with err: not yet' },
      { pluginRegistered: true, error: '' },
    ]);
  });
});

test('a registration is retried in time, also if the wall clock is set back', async () => {
  const rootDirectory = temporaryFolder();
  const registry = join(rootDirectory, 'plugins_registry');
  await mkdir(registry);
  const server = createServer((socket) => socket.destroy()).listen(join(registry, 'x.sock'));
  const clock = new FakeClock();
  let failures = 0;
  const logger = { ...silentLogger, warn: () => void (failures += 1) };
  const manager = new PluginManager({ rootDirectory, clock, logger, handlers: {} });
  const stop = new AbortController();
  const running = manager.run(stop.signal);
  await until('the first failure', () => failures === 1);
  clock.set(-3_600_000);
  await until('the end of the scan', () => clock.pendingTimers > 0);
  await clock.advance(5_000);
  await until('the second failure', () => failures === 2);
  stop.abort();
  await running;
  server.close();
});

test('scans leave no listeners behind', async () => {
  const rootDirectory = temporaryFolder();
  const clock = new FakeClock();
  const manager = new PluginManager({ rootDirectory, clock, logger: silentLogger, handlers: {} });
  const stop = new AbortController();
  const running = manager.run(stop.signal);
  for (let scan = 0; scan < 10; scan++) {
    await until('a scan', () => clock.pendingTimers > 0);
    await clock.advance(60 * 60_000);
  }
  assert.equal(getEventListeners(stop.signal, 'abort').length, 1);
  stop.abort();
  await running;
});
