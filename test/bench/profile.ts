/**
 * `npm run profile -- ROW` runs one row of the benchmark on its own server while V8's profilers observe the main thread. It
 * prints the time of a request by step, and writes the profiles and flame graphs. A browser opens the flame graphs, and its
 * developer tools open the profiles.
 */
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import {
  cpuTree,
  heapTree,
  sharesByPart,
  type CallFrame,
  type CallTree,
  type CpuProfile,
  type HeapNode,
} from './call-tree.ts';
import { flameGraphHtml } from './flame-graph.ts';
import { h2load, openHttp, type Http, type LoadOptions } from './load.ts';
import { configMap, createPods, MAPS, pod, PODS, PROTOBUF, TABLE } from './objects.ts';
import { startServer } from './server.ts';

const REPOSITORY = join(import.meta.dirname, '../..');
/** The share of requests that are sent before the profilers start, so that V8 has compiled the measured code. */
const WARM_UP = 0.2;
const PROFILE_WITHIN_MS = 60_000;

interface Row {
  readonly about: string;
  readonly path: string;
  readonly load: LoadOptions;
  readonly prepare?: (http: Http) => Promise<void>;
}

const writes = { clients: 10, streams: 5 };
const listOf5000 = (about: string, query: string, requests: number, accept?: string): Row => ({
  about: `list of 5000 pods, ${about}`,
  path: `${PODS}${query}`,
  load: { requests, clients: 1, ...(accept === undefined ? {} : { accept }) },
  prepare: (http) => createPods(http, 5000),
});

const ROWS: Readonly<Record<string, Row>> = {
  'create-pods': {
    about: 'create of pods, 50 in flight on 10 connections',
    path: PODS,
    load: { ...writes, requests: 8000, body: pod() },
    prepare: (http) => createPods(http, 1),
  },
  'create-config-maps': {
    about: 'create of config maps, 50 in flight on 10 connections',
    path: MAPS,
    load: { ...writes, requests: 12_000, body: configMap() },
  },
  get: {
    about: 'get of one small object, 50 in flight on 5 connections',
    path: `${MAPS}/small`,
    load: { clients: 5, streams: 10, requests: 100_000 },
    prepare: async (http) => void (await http.request('POST', MAPS, configMap('small'))),
  },
  list: listOf5000('JSON', '', 200),
  'list-page': listOf5000('JSON, page of 500', '?limit=500', 2000),
  'list-table': listOf5000('Table', '', 100, TABLE),
  'list-protobuf': listOf5000('protobuf', '', 100, PROTOBUF),
};

/** Maps folders and files to steps of a request. The first match counts. */
const STEPS: readonly (readonly [prefix: string, step: string])[] = [
  ['controlplane/server/flowcontrol/', 'priority and fairness'],
  ['controlplane/server/body.ts', 'body'],
  ['controlplane/server/incoming-body.ts', 'body'],
  ['controlplane/server/compressed-runs.ts', 'body'],
  ['controlplane/server/', 'request and response'],
  ['controlplane/security/authentication/', 'authentication and authorization'],
  ['controlplane/security/authorization/', 'authentication and authorization'],
  ['controlplane/server/audit/', 'audit'],
  ['controlplane/security/admission/', 'admission'],
  ['controlplane/registry/managed-fields', 'managed fields'],
  ['controlplane/registry/field-management.ts', 'managed fields'],
  ['api/codec/structured-merge/', 'managed fields'],
  ['controlplane/registry/columns/', 'columns'],
  ['controlplane/registry/kinds/', 'defaults and validation'],
  ['api/kinds/', 'defaults and validation'],
  ['api/meta/', 'defaults and validation'],
  ['api/schema/', 'schema: decode, defaults and validation'],
  ['api/codec/', 'decode and encode'],
  ['controlplane/registry/', 'registry'],
  ['controlplane/storage/', 'storage: encode, log and fan-out'],
  ['controlplane/storage/encryption/', 'encryption'],
  ['controlplane/controllers/', 'controllers'],
  ['controlplane/scheduler/', 'scheduler'],
  ['controlplane/model/', 'informers'],
];
const NODE_ITSELF = 'Node.js: TLS, HTTP/2, timers';

function place(url: string, line: number): string {
  if (!url.startsWith('file:')) return url;
  return `${relative(REPOSITORY, fileURLToPath(url))}:${line}`;
}

function stepOf({ functionName, url }: CallFrame): string | undefined {
  if (functionName === '(garbage collector)') return 'garbage collection';
  if (!url.startsWith('file:')) return undefined;
  const path = relative(REPOSITORY, fileURLToPath(url));
  if (path.startsWith('node_modules/')) return undefined;
  return STEPS.find(([prefix]) => path.startsWith(prefix))?.[1] ?? path.split('/').slice(0, 2).join('/');
}

/** Signals the profiler in the server, and waits for the file that it writes. */
async function signal(pid: number, file: string): Promise<void> {
  process.kill(pid, 'SIGUSR2');
  const until = performance.now() + PROFILE_WITHIN_MS;
  while (!existsSync(file)) {
    if (performance.now() > until) throw new Error(`${file} did not appear within ${PROFILE_WITHIN_MS / 1000} s`);
    await sleep(20);
  }
}

interface Profiles {
  readonly cpu: CallTree;
  readonly heap: CallTree;
  readonly perSecond: number;
}

async function measure({ path, load, prepare }: Row, directory: string): Promise<Profiles> {
  const script = join(import.meta.dirname, 'profiler.ts');
  const environment = { ORCHLET_PROFILE_DIR: directory, NODE_OPTIONS: `--import=${script}` };
  const server = await startServer({ environment });
  const http = openHttp(server.origin);
  try {
    await prepare?.(http);
    const url = `${server.origin}${path}`;
    await h2load(url, { ...load, requests: Math.ceil(load.requests * WARM_UP) });
    await signal(server.pid, join(directory, 'started'));
    const { perSecond } = await h2load(url, load);
    const file = join(directory, 'server.cpuprofile');
    await signal(server.pid, file);
    const cpu = JSON.parse(await readFile(file, 'utf8')) as CpuProfile;
    const heap = JSON.parse(await readFile(join(directory, 'server.heapprofile'), 'utf8')) as {
      readonly head: HeapNode;
    };
    return { cpu: cpuTree(cpu), heap: heapTree(heap.head), perSecond };
  } finally {
    http.close();
    await server.stop();
    await rm(join(directory, 'started'), { force: true });
  }
}

function printSteps({ cpu, heap, perSecond }: Profiles, { about, load: { requests } }: Row): void {
  process.stdout.write(`${about}: ${Math.round(perSecond)} a second with the profilers on\n\n`);
  const bytes = sharesByPart(heap, stepOf, NODE_ITSELF);
  const steps = sharesByPart(cpu, stepOf, NODE_ITSELF);
  process.stdout.write(
    `${'step'.padEnd(44)} ${'µs a request'.padStart(13)} ${'share'.padStart(8)} ${'KiB allocated'.padStart(14)}\n`,
  );
  const line = (step: string, us: number, allocated: number): void => {
    const columns = [(us / requests).toFixed(1).padStart(13), `${((100 * us) / cpu.total).toFixed(1)} %`.padStart(8)];
    process.stdout.write(
      `${step.padEnd(44)} ${columns.join(' ')} ${(allocated / 1024 / requests).toFixed(1).padStart(14)}\n`,
    );
  };
  for (const [step, us] of steps) line(step, us, bytes.get(step) ?? 0);
  line('all', cpu.total, heap.total);
}

async function run(name: string, row: Row, directory: string): Promise<void> {
  await mkdir(directory, { recursive: true });
  const profiles = await measure(row, directory);
  printSteps(profiles, row);
  const { requests } = row.load;
  const graphs = [
    {
      file: 'cpu.html',
      what: 'processor time',
      tree: profiles.cpu,
      format: (us: number) => `${(us / requests).toFixed(2)} µs a request`,
    },
    {
      file: 'heap.html',
      what: 'allocations',
      tree: profiles.heap,
      format: (bytes: number) => `${(bytes / 1024 / requests).toFixed(2)} KiB a request`,
    },
  ];
  for (const { file, what, tree, format } of graphs) {
    await writeFile(join(directory, file), flameGraphHtml({ title: `${name}: ${what}`, tree, format, place }));
  }
  process.stdout.write(
    `\nwritten to ${directory}: cpu.html, heap.html (a browser opens them), server.cpuprofile, server.heapprofile\n`,
  );
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { out: { type: 'string' }, help: { type: 'boolean', default: false } },
});
const [name = '', ...extra] = positionals;
const row = ROWS[name];
const usage = `usage: npm run profile -- ROW [--out DIRECTORY]

Profiles the main thread of a server under one load. Needs h2load.

rows:
${Object.entries(ROWS)
  .map(([key, { about }]) => `  ${key.padEnd(20)} ${about}`)
  .join('\n')}

  --out DIRECTORY      where the profiles go (default: below the temporary directory)
`;
if (values.help) {
  process.stdout.write(usage);
} else if (row === undefined || extra.length > 0) {
  process.stderr.write(
    `profile: one row is needed, got ${positionals.length === 0 ? 'none' : positionals.join(' ')}\n\n${usage}`,
  );
  process.exitCode = 2;
} else {
  await run(name, row, values.out ?? join(tmpdir(), `orchlet-profile-${name}`));
}
