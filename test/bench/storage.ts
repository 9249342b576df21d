/**
 * Compares the storages of the control plane: SQLite, an etcd of one member, and one of three on the same host, used by one
 * server and by three. Rates depend on what else the machine does; the processor time of a request, of the servers and of all
 * members of etcd, depends on that less.
 */
import { fork } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { EtcdProcess } from '../etcd-process.ts';
import type { Print } from './bench.ts';
import { h2load, type Http, type Load, type LoadOptions, openHttp } from './load.ts';
import { configMap, MAPS } from './objects.ts';
import { startServer, type Server } from './server.ts';

const MIB = 1024 * 1024;
const OBJECTS = 1000;
const WATCHERS = 100;
const EVENTS = 300;
/** The unit of processor times in Linux, which is a hundredth of a second. */
const MS_IN_TICK = 10;

interface Place {
  readonly name: string;
  readonly servers: readonly Server[];
  readonly members: readonly EtcdProcess[];
  readonly print: Print;
}

/** Measures one storage after the other, each with servers of its own. */
export async function storage(print: Print): Promise<void> {
  for (const [name, memberCount, serverCount] of [
    ['SQLite', 0, 1],
    ['etcd of 1', 1, 1],
    ['etcd of 3', 3, 1],
    ['etcd of 3, 3 servers', 3, 3],
  ] as const) {
    const members = memberCount === 0 ? [] : await EtcdProcess.cluster(memberCount);
    const servers: Server[] = [];
    for (let at = 0; at < serverCount; at += 1) {
      // Each server prefers another member.
      const urls = [...members.slice(at), ...members.slice(0, at)].map(({ url }) => url);
      const flags = members.length === 0 ? [] : ['--etcd-servers', urls.join()];
      servers.push(await startServer({ flags, readyWithinMs: 120_000, like: servers[0] }));
    }
    const https = servers.map(({ origin }) => openHttp(origin));
    try {
      await measure({ name, servers, members, print }, https);
    } finally {
      for (const http of https) http.close();
      for (const server of servers) await server.stop();
      for (const member of members) await member.remove();
    }
  }
}

/** Creates, reads, lists and watches. What many clients do is divided among the servers. */
async function measure(place: Place, https: readonly Http[]): Promise<void> {
  const { name, servers, members, print } = place;
  const [first] = https;
  await first?.many(OBJECTS, (at) => first.request('POST', MAPS, configMap(`map-${at}`)));
  const body = configMap();
  await load(place, 'create, one client', MAPS, { requests: 200, clients: 1, body });
  await load(place, 'create, 50 in flight', MAPS, { requests: 2000, clients: 50, body });
  await load(place, 'get of the newest state, one client', `${MAPS}/map-1`, { requests: 1000, clients: 1 });
  const many = { requests: 10_000, clients: 5, streams: 10 };
  await load(place, 'get of the newest state, 50 in flight', `${MAPS}/map-1`, many);
  await load(place, 'get with resourceVersion=0, 50 in flight', `${MAPS}/map-1?resourceVersion=0`, many);
  await load(place, 'list of 500 of the newest state, 5 in flight', `${MAPS}?limit=500`, { requests: 200, clients: 5 });
  await watch(place, https);
  const resident = await Promise.all(servers.map((server) => server.rssBytes()));
  print(`${name}: resident memory of each server`, Math.max(...resident) / MIB, 'MiB');
  if (members.length === 0) return;
  const ofMembers = await Promise.all(members.map(({ pid }) => residentBytes(pid)));
  print(`${name}: resident memory of each member of etcd`, Math.max(...ofMembers) / MIB, 'MiB');
}

/** Sends the load of several clients to all servers at the same time, and that of one client to the first. */
async function load(place: Place, what: string, path: string, options: LoadOptions): Promise<void> {
  const servers = options.clients === 1 ? place.servers.slice(0, 1) : place.servers;
  const clients = Math.ceil(options.clients / servers.length);
  const requests = Math.ceil(options.requests / servers.length);
  const loads = await timed<readonly Load[]>(place, what, requests * servers.length, () =>
    Promise.all(servers.map(({ origin }) => h2load(`${origin}${path}`, { ...options, clients, requests }))),
  );
  const perSecond = loads.reduce((sum, one) => sum + one.perSecond, 0);
  place.print(`${place.name}: ${what}`, perSecond, 'a second');
}

/** Opens the watches at all servers, and writes at all servers. */
async function watch(place: Place, https: readonly Http[]): Promise<void> {
  const path = `${MAPS}?watch=1&labelSelector=watched%3Dyes`;
  const each = Math.ceil(WATCHERS / place.servers.length);
  const watchers = place.servers.map(({ origin }) =>
    fork(join(import.meta.dirname, 'watchers.ts'), [origin, path, String(each), String(EVENTS)]),
  );
  const message = (type: string): Promise<unknown> =>
    Promise.all(
      watchers.map(
        (child) =>
          new Promise<void>((resolve, reject) => {
            child.on('message', (sent: { readonly type: string }) => (sent.type === type ? resolve() : undefined));
            child.on('exit', (code) => reject(new Error(`the watchers ended with ${code}`)));
          }),
      ),
    );
  try {
    await message('begun');
    const complete = message('complete');
    const watched = { ...configMap(), metadata: { generateName: 'watched-', labels: { watched: 'yes' } } };
    const began = performance.now();
    await timed(place, `a write and its ${WATCHERS} events, 50 in flight`, EVENTS, async () => {
      await https[0]?.many(EVENTS, async (at) => https[at % https.length]?.request('POST', MAPS, watched));
      await complete;
    });
    const perSecond = (EVENTS * each * watchers.length) / ((performance.now() - began) / 1000);
    place.print(`${place.name}: events to ${WATCHERS} watches`, perSecond, 'a second');
  } finally {
    for (const child of watchers) {
      child.removeAllListeners('exit');
      child.kill();
    }
  }
}

/** Prints the processor time of each of `count` requests. */
async function timed<T>(
  { name, servers, members, print }: Place,
  what: string,
  count: number,
  run: () => Promise<T>,
): Promise<T> {
  const sum = async (each: readonly Promise<number>[]): Promise<number> =>
    (await Promise.all(each)).reduce((total, ms) => total + ms, 0);
  const serversMs = (): Promise<number> => sum(servers.map((server) => server.processorMs()));
  const etcdMs = (): Promise<number> => sum(members.map(({ pid }) => processorMs(pid)));
  const before = [await serversMs(), await etcdMs()] as const;
  const result = await run();
  print(`${name}: ${what}: processor of the servers`, ((await serversMs()) - before[0]) / count, 'ms each');
  if (members.length > 0)
    print(`${name}: ${what}: processor of etcd`, ((await etcdMs()) - before[1]) / count, 'ms each');
  return result;
}

async function processorMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * MS_IN_TICK;
}

async function residentBytes(pid: number): Promise<number> {
  return Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
}
