/** Prints measurements with their units. Every group has its own server. `--help` lists the groups. */
import { fork } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { against } from './against.ts';
import { agent } from './agent.ts';
import { audit, authorization, tokens } from './auth.ts';
import { definitions } from './definitions.ts';
import { executable } from './executable.ts';
import { idle } from './idle.ts';
import { installed, medianStart } from './installed.ts';
import { hostile } from './hostile.ts';
import { h2load, openHttp, type Http, type LoadOptions } from './load.ts';
import { configMap, createPods, MAPS, pod, PODS, PROTOBUF, TABLE } from './objects.ts';
import { scale } from './scale.ts';
import { storage } from './storage.ts';
import { startServer, type Server, type ServerOptions } from './server.ts';

const MIB = 1024 * 1024;
const OBSERVED: ServerOptions = { observed: true };

export type Print = (what: string, figure: number, unit: string) => void;

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    against: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

const print: Print = (what, figure, unit) => {
  if (values.json) {
    process.stdout.write(`${JSON.stringify({ what, figure, unit })}\n`);
    return;
  }
  const text = figure >= 100 ? Math.round(figure).toString() : figure.toFixed(figure >= 10 ? 1 : 2);
  process.stdout.write(`${what.padEnd(64)} ${text.padStart(10)} ${unit}\n`);
};

async function withServer(
  run: (server: Server, http: Http) => Promise<void>,
  options: ServerOptions = {},
): Promise<void> {
  const server = await startServer(options);
  const http = openHttp(server.origin);
  try {
    await run(server, http);
  } finally {
    http.close();
    await server.stop();
  }
}

async function start(): Promise<void> {
  print('start of an empty control plane to /readyz, median of 5', await medianStart(() => ({})), 'ms');
}

async function memory(): Promise<void> {
  await withServer(async (server, http) => {
    const resident = async (when: string): Promise<void> =>
      print(`resident memory ${when}`, (await server.rssBytes()) / MIB, 'MiB');
    await sleep(10_000);
    await resident('of an empty control plane, 10 s after start');
    await http.many(5300, (at) => http.request('POST', MAPS, configMap(`map-${at}`)));
    await createPods(http, 5000);
    await resident('after creates of 5,300 config maps and 5,000 pods');
    await sleep(60_000);
    await resident('the same, a minute later');
  });
}

async function up(): Promise<void> {
  await withServer(
    async (server) => {
      await sleep(30_000);
      print('resident memory of `up` idle, 30 s after start', (await server.rssBytes()) / MIB, 'MiB');
    },
    { command: ['up'], readyWithinMs: 60_000 },
  );
}

/** Loads the server, and prints the rate and what a request costs it: other work on the machine changes the rate alone. */
async function load(server: Server, what: string, path: string, options: LoadOptions): Promise<void> {
  const before = await server.processorMs();
  const { perSecond } = await h2load(`${server.origin}${path}`, options);
  print(what, perSecond, '1/s');
  print(`${what}: processor time`, ((await server.processorMs()) - before) / options.requests, 'ms');
}

async function get(): Promise<void> {
  await withServer(async (server, http) => {
    await http.request('POST', MAPS, configMap('small'));
    const path = `${MAPS}/small`;
    await h2load(`${server.origin}${path}`, { requests: 3000, clients: 50 });
    const what = 'get of one small object';
    await load(server, `${what}, 50 in flight on 50 connections`, path, { requests: 30_000, clients: 50 });
    await load(server, `${what}, 50 in flight on 5 connections`, path, { requests: 60_000, clients: 5, streams: 10 });
    await load(server, `${what}, one client`, path, { requests: 3000, clients: 1 });
  });
}

async function create(): Promise<void> {
  await withServer(async (server) => {
    const url = `${server.origin}${MAPS}`;
    await h2load(url, { requests: 1000, clients: 50, body: configMap() });
    await load(server, 'create, one client, fsync on', MAPS, { requests: 1000, clients: 1, body: configMap() });
    await server.facts();
    const many = await h2load(url, { requests: 10_000, clients: 50, body: configMap() });
    const { loopDelayP99Ms, loopDelayMaxMs, cpuMs } = await server.facts();
    print('create, 50 in flight, fsync on', many.perSecond, '1/s');
    print('event-loop delay during creates, 99th percentile', loopDelayP99Ms, 'ms');
    print('event-loop delay during creates, longest', loopDelayMaxMs, 'ms');
    print('processor time of the main thread for a create', cpuMs / 10_000, 'ms');
  }, OBSERVED);
  await withServer(async (server, http) => {
    await createPods(http, 1);
    const load = { clients: 10, streams: 5, body: pod() };
    await h2load(`${server.origin}${PODS}`, { ...load, requests: 1000 });
    await server.facts();
    const pods = await h2load(`${server.origin}${PODS}`, { ...load, requests: 5000 });
    const { cpuMs } = await server.facts();
    print('create of pods, 50 in flight on 10 connections', pods.perSecond, '1/s');
    print('processor time of the main thread for a create of a pod', cpuMs / 5000, 'ms');
  }, OBSERVED);
}

async function list(): Promise<void> {
  await withServer(async (server, http) => {
    await createPods(http, 5000);
    const run = async (what: string, query: string, requests: number, accept?: string): Promise<void> => {
      const options = { clients: 1, ...(accept === undefined ? {} : { accept }) };
      const { bytes } = await h2load(`${server.origin}${PODS}${query}`, { ...options, requests: 2 });
      const row = `list of 5000 pods, ${what} (${(bytes / MIB).toFixed(0)} MiB)`;
      await load(server, row, `${PODS}${query}`, { ...options, requests });
    };
    await run('JSON', '', 40);
    await run('JSON, page of 500', '?limit=500', 200);
    await run('Table', '', 40, TABLE);
    await run('protobuf', '', 40, PROTOBUF);
  });
}

interface WatchersReport {
  readonly type: 'begun' | 'complete';
  readonly delayP99Ms: number;
  readonly bytes: number;
}

async function watch(): Promise<void> {
  const [watchers, events] = [500, 10_000];
  await withServer(async (server, http) => {
    const script = join(import.meta.dirname, 'watchers.ts');
    const first = JSON.parse(await http.request('GET', MAPS)) as { metadata: { resourceVersion: string } };
    const path = `${MAPS}?watch=true&resourceVersion=${first.metadata.resourceVersion}`;
    const child = fork(script, [server.origin, path, String(watchers), String(events)]);
    const reportOf = (type: WatchersReport['type']): Promise<WatchersReport> =>
      new Promise((resolve, reject) => {
        child.on('message', (message: WatchersReport) => message.type === type && resolve(message));
        child.on('exit', (code) => reject(new Error(`the watchers ended with ${code}`)));
      });
    try {
      const complete = reportOf('complete');
      await reportOf('begun');
      const started = performance.now();
      await http.many(events, (at) =>
        http.request('POST', MAPS, {
          metadata: { name: `event-${at}` },
          data: { time: `sent-${Date.now()}` },
        }),
      );
      const { delayP99Ms, bytes } = await complete;
      const seconds = (performance.now() - started) / 1000;
      print(
        `watch: events delivered to ${watchers} watchers (${events} creates)`,
        (watchers * events) / seconds,
        '1/s',
      );
      print('watch: delay from request to delivery, 99th percentile', delayP99Ms, 'ms');
      print('watch: bytes delivered', bytes / seconds / MIB, 'MiB/s');
    } finally {
      child.removeAllListeners('exit');
      child.kill();
    }
  });
}

async function objects(): Promise<void> {
  const count = 50_000;
  await withServer(async (server, http) => {
    const before = await server.facts();
    await createPods(http, count);
    const after = await server.facts();
    print(`${count} pods: memory in use per object`, (after.usedBytes - before.usedBytes) / count, 'bytes');
    print(`${count} pods: resident memory`, after.rssBytes / MIB, 'MiB');
    const full = await h2load(`${server.origin}${PODS}`, { requests: 5, clients: 1 });
    print(`${count} pods: full list (${(full.bytes / MIB).toFixed(0)} MiB)`, 1000 / full.perSecond, 'ms');
    const selectors = [
      ['label selector', 'labelSelector=app%3Dnone'],
      ['field selector', 'fieldSelector=spec.nodeName%3Dnone'],
    ] as const;
    for (const [what, query] of selectors) {
      const url = `${server.origin}${PODS}?${query}`;
      await h2load(url, { requests: 3, clients: 1 });
      print(
        `${count} pods: ${what} that matches nothing`,
        1000 / (await h2load(url, { requests: 200, clients: 1 })).perSecond,
        'ms',
      );
    }
  }, OBSERVED);
}

async function auth(): Promise<void> {
  authorization(print);
  await tokens(print);
  await audit(print, startServer);
}

const groups: Readonly<Record<string, () => Promise<void>>> = {
  start,
  memory,
  get,
  create,
  list,
  watch,
  objects,
  definitions: () => withServer((server, http) => definitions(print, server, http), OBSERVED),
  auth,
  hostile: () => withServer((server) => hostile(server), OBSERVED),
  scale: () => scale(print),
  up,
  idle: () => idle(print),
  agent: () => agent(print),
  executable: () => executable(print),
  installed: () => installed(print),
  storage: () => storage(print),
};
/** Groups that take minutes, or need a container runtime and root. They run only if `--only` names them. */
const onDemand: ReadonlySet<string> = new Set(['scale', 'up', 'idle', 'agent', 'executable', 'installed', 'storage']);
const byDefault = Object.keys(groups).filter((name) => !onDemand.has(name));

const usage = `usage: npm run bench -- [--only GROUP,GROUP] [--json] [--against COMMIT [--rounds N]]

Measures the control plane and the agent. Compare measurements of one machine and one run only.

  --only GROUP,GROUP  ${byDefault.join(' ')};
                      only with this flag: ${[...onDemand].join(' ')}
  --against COMMIT    run this checkout and another commit in turns, and print medians and their ratio
  --rounds N          how many turns (default 3)
  --json              one JSON object a line
`;

const names = values.only?.split(',') ?? byDefault;
const unknown = names.find((name) => groups[name] === undefined);
if (values.help) {
  process.stdout.write(usage);
} else if (unknown !== undefined) {
  process.stderr.write(`bench: there is no ${unknown}; there are ${Object.keys(groups).join(', ')}\n`);
  process.exitCode = 2;
} else if (values.against === undefined) {
  for (const name of names) await groups[name]?.();
} else {
  await against({ commit: values.against, rounds: Number(values.rounds), names });
}
