/**
 * Compares the storages of the control plane: SQLite, an etcd of one member, and one of three on the same host. Rates depend on
 * what else the machine does; the processor time of a request, of the server and of all members of etcd, depends on that less.
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
/** Linux reports processor times in hundredths of a second. */
const MS_IN_TICK = 10;

interface Place {
  readonly name: string;
  readonly server: Server;
  readonly members: readonly EtcdProcess[];
  readonly print: Print;
}

/** Measures one storage after the other, each with a server of its own. */
export async function storage(print: Print): Promise<void> {
  for (const [name, size] of [
    ['SQLite', 0],
    ['etcd of 1', 1],
    ['etcd of 3', 3],
  ] as const) {
    const members = size === 0 ? [] : await EtcdProcess.cluster(size);
    const flags = size === 0 ? [] : ['--etcd-servers', members.map(({ url }) => url).join()];
    const server = await startServer({ flags, readyWithinMs: 120_000 });
    const http = openHttp(server.origin);
    try {
      await measure({ name, server, members, print }, http);
    } finally {
      http.close();
      await server.stop();
      for (const member of members) await member.remove();
    }
  }
}

async function measure(place: Place, http: Http): Promise<void> {
  const { name, server, members, print } = place;
  const url = `${server.origin}${MAPS}`;
  await http.many(OBJECTS, (at) => http.request('POST', MAPS, configMap(`map-${at}`)));
  const body = configMap();
  await load(place, 'create, one client', url, { requests: 200, clients: 1, body });
  await load(place, 'create, 50 in flight', url, { requests: 2000, clients: 50, body });
  await load(place, 'get of the newest state, one client', `${url}/map-1`, { requests: 1000, clients: 1 });
  await load(place, 'get of the newest state, 50 in flight', `${url}/map-1`, {
    requests: 10_000,
    clients: 5,
    streams: 10,
  });
  const any = `${url}/map-1?resourceVersion=0`;
  await load(place, 'get with resourceVersion=0, 50 in flight', any, { requests: 10_000, clients: 5, streams: 10 });
  await load(place, 'list of 500 of the newest state, 5 in flight', `${url}?limit=500`, { requests: 200, clients: 5 });
  await watch(place, http);
  print(`${name}: resident memory of the server`, (await server.rssBytes()) / MIB, 'MiB');
  if (members.length === 0) return;
  const resident = await Promise.all(members.map(({ pid }) => residentBytes(pid)));
  print(`${name}: resident memory of each member of etcd`, Math.max(...resident) / MIB, 'MiB');
}

async function load(place: Place, what: string, url: string, options: LoadOptions): Promise<void> {
  const { perSecond } = await timed<Load>(place, what, options.requests, () => h2load(url, options));
  place.print(`${place.name}: ${what}`, perSecond, 'a second');
}

async function watch(place: Place, http: Http): Promise<void> {
  const path = `${MAPS}?watch=1&labelSelector=watched%3Dyes`;
  const watchers = [place.server.origin, path, String(WATCHERS), String(EVENTS)];
  const child = fork(join(import.meta.dirname, 'watchers.ts'), watchers);
  const message = (type: string): Promise<void> =>
    new Promise((resolve, reject) => {
      child.on('message', (sent: { readonly type: string }) => (sent.type === type ? resolve() : undefined));
      child.on('exit', (code) => reject(new Error(`the watchers ended with ${code}`)));
    });
  try {
    await message('begun');
    const complete = message('complete');
    const watched = { ...configMap(), metadata: { generateName: 'watched-', labels: { watched: 'yes' } } };
    const began = performance.now();
    await timed(place, `a write and its ${WATCHERS} events, 50 in flight`, EVENTS, async () => {
      await http.many(EVENTS, () => http.request('POST', MAPS, watched));
      await complete;
    });
    const perSecond = (EVENTS * WATCHERS) / ((performance.now() - began) / 1000);
    place.print(`${place.name}: events to ${WATCHERS} watches`, perSecond, 'a second');
  } finally {
    child.removeAllListeners('exit');
    child.kill();
  }
}

/** Prints the processor time of each of `count` requests. */
async function timed<T>(
  { name, server, members, print }: Place,
  what: string,
  count: number,
  run: () => Promise<T>,
): Promise<T> {
  const etcdMs = async (): Promise<number> =>
    (await Promise.all(members.map(({ pid }) => processorMs(pid)))).reduce((sum, ms) => sum + ms, 0);
  const before = [await server.processorMs(), await etcdMs()] as const;
  const result = await run();
  print(`${name}: ${what}: processor of the server`, ((await server.processorMs()) - before[0]) / count, 'ms each');
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
