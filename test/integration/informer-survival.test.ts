/**
 * Tests our informers and those of the Kubernetes client for JavaScript over disconnects, a restart and a compaction of the
 * last state that they saw. Each change is reported exactly once.
 */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../api/component/logger.ts';
import type { Client } from '../../api/client/client.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/client/http-client.ts';
import { Informers } from '../../api/client/informer.ts';
import { loadKubeconfig, serverAccess } from '../../api/client/kubeconfig.ts';
import { configMaps } from '../../api/client/resources.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { stampRevision } from '../../controlplane/storage/object-bytes.ts';
import { openSqliteStorage } from '../../controlplane/storage/sqlite/sqlite-storage.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const DISCONNECTS = 10;

/** Forwards connections to the control plane, and closes them on request. */
class Gate {
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((client) => {
    if (this.target === 0) {
      client.destroy();
      return;
    }
    const server = connect(this.target, '127.0.0.1');
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(one);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        this.#sockets.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  /** The port of the control plane. With 0, connections are refused. */
  target = 0;
  port = 0;

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    this.port = (this.#server.address() as { port: number }).port;
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): void {
    this.cut();
    this.#server.close();
  }
}

/** The reported changes by name: `add 0`, `update 1`, `delete`. */
type Notifications = Map<string, string[]>;

function record(notifications: Notifications, what: string, name: string | undefined, value: string | undefined): void {
  if (name === undefined || !name.startsWith('c-')) return;
  const events = notifications.get(name) ?? [];
  notifications.set(name, events);
  events.push(what === 'delete' ? what : `${what} ${value ?? ''}`);
}

async function watchWithUsualClient(
  kubeconfig: string,
  notifications: Notifications,
): Promise<{ readonly stop: () => Promise<void>; readonly lists: () => number }> {
  const { CoreV1Api, KubeConfig, makeInformer } = await import('@kubernetes/client-node');
  const config = new KubeConfig();
  config.loadFromString(kubeconfig);
  const api = config.makeApiClient(CoreV1Api);
  let lists = 0;
  const list = () => {
    lists += 1;
    return api.listNamespacedConfigMap({ namespace: 'default' });
  };
  const informer = makeInformer(config, '/api/v1/namespaces/default/configmaps', list);
  for (const what of ['add', 'update', 'delete'] as const)
    informer.on(what, (object) => record(notifications, what, object.metadata?.name, object.data?.['value']));
  let ended = false;
  let restarting = false;
  const restart = (): void => {
    if (ended || restarting) return;
    restarting = true;
    systemClock.after(50, () => {
      restarting = false;
      if (!ended) informer.start().catch(restart);
    });
  };
  informer.on('error', restart);
  await informer.start();
  const stop = (): Promise<void> => {
    ended = true;
    return informer.stop();
  };
  return { stop, lists: () => lists };
}

/** Changes config maps, and records the changes that an informer must report. */
class Writer {
  readonly expected: Notifications = new Map();
  readonly #values = new Map<string, number>();

  async create(client: Client, name: string): Promise<void> {
    await client.create(configMaps, 'default', this.#object(name, 0));
    record(this.expected, 'add', name, '0');
  }

  /**
   * Updates an object. `seen` is false if the informers are disconnected until the change is compacted and the object changes
   * again.
   */
  async update(client: Client, name: string, seen = true): Promise<void> {
    const value = (this.#values.get(name) ?? 0) + 1;
    await client.update(configMaps, this.#object(name, value));
    if (seen) record(this.expected, 'update', name, String(value));
  }

  async delete(client: Client, name: string): Promise<void> {
    await client.delete(configMaps, 'default', name);
    record(this.expected, 'delete', name, undefined);
  }

  #object(name: string, value: number) {
    this.#values.set(name, value);
    const metadata = { name, namespace: 'default' };
    return { apiVersion: 'v1' as const, kind: 'ConfigMap' as const, metadata, data: { value: String(value) } };
  }
}

const inOrder = (notifications: Notifications): readonly (readonly [string, readonly string[]])[] =>
  [...notifications].sort(([left], [right]) => (left < right ? -1 : 1));
const count = (notifications: Notifications): number =>
  [...notifications.values()].reduce((sum, events) => sum + events.length, 0);

/** Compacts the whole history. */
async function compactAll(dataDir: string): Promise<void> {
  const storage = await openSqliteStorage({
    directory: join(dataDir, 'storage'),
    clock: systemClock,
    logger: silentLogger,
    stamp: stampRevision,
  });
  await storage.compact(storage.revision());
  await storage.close();
}

test('informers report every change exactly once over disconnects, a restart and a compaction', async (context) => {
  const dataDir = temporaryFolder();
  const gate = new Gate();
  await gate.listen();
  const start = (): Promise<ControlPlane> =>
    startControlPlane({ flags: { dataDir, securePort: 0, bindAddress: '127.0.0.1', scheduler: false } });
  let plane = await start();
  gate.target = plane.port;
  const kubeconfig = plane.kubeconfig.replaceAll(plane.url, `https://127.0.0.1:${gate.port}`);
  const theirs: Notifications = new Map();
  const ours: Notifications = new Map();
  const ends: (() => Promise<unknown> | void)[] = [];
  context.after(async () => {
    for (const end of ends.toReversed()) await end();
    gate.close();
    await plane.close();
    rmSync(dataDir, { recursive: true, force: true });
  });
  const usual = await watchWithUsualClient(kubeconfig, theirs);
  ends.push(usual.stop);
  const file = join(dataDir, 'gate.kubeconfig');
  writeFileSync(file, kubeconfig);
  const access = await serverAccess(await loadKubeconfig(file), { clock: systemClock });
  const http = new HttpClient({ ...access, clock: systemClock });
  const informers = new Informers({ client: http, clock: systemClock, logger: silentLogger });
  ends.push(
    () => http.close(),
    () => informers.close(),
  );
  const informer = informers.for(configMaps, { namespace: 'default' });
  informer.addHandler({
    add: (object) => record(ours, 'add', object.metadata.name, object.data?.['value']),
    update: (_, object) => record(ours, 'update', object.metadata.name, object.data?.['value']),
    delete: (object) => record(ours, 'delete', object.metadata.name, undefined),
  });
  await informer.synced();

  const writer = new Writer();
  const bothToldAll = (): Promise<true> =>
    until('all events', () => {
      const wanted = count(writer.expected);
      return (count(theirs) >= wanted && count(ours) >= wanted) || undefined;
    });
  for (let round = 0; round < DISCONNECTS; round += 1) {
    await writer.create(plane.client, `c-${round}`);
    await bothToldAll();
    gate.cut();
    await writer.update(plane.client, `c-${round}`);
    if (round > 0) await writer.update(plane.client, `c-${round - 1}`);
    if (round > 1) await writer.delete(plane.client, `c-${round - 2}`);
  }
  await bothToldAll();
  assert.equal(usual.lists(), 1, 'disconnects alone make nobody list again');

  gate.target = 0;
  gate.cut();
  const last = DISCONNECTS - 1;
  await writer.update(plane.client, `c-${last}`, false);
  await writer.update(plane.client, `c-${last}`);
  await writer.delete(plane.client, `c-${last - 1}`);
  await writer.create(plane.client, 'c-new');
  await plane.close();
  await compactAll(dataDir);
  plane = await start();
  gate.target = plane.port;
  await bothToldAll();

  // A duplicate notification would arrive before this object.
  await writer.create(plane.client, 'c-end');
  await bothToldAll();
  assert.deepEqual(inOrder(theirs), inOrder(writer.expected));
  assert.ok(usual.lists() > 1, 'what was compacted is gone');
  assert.deepEqual(inOrder(ours), inOrder(writer.expected));
});
