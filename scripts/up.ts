/**
 * `scripts/up`: container runtime, images, control plane, agent and `examples/hello.yaml`, one step a line with its time; then
 * it waits for Ctrl-C and takes down what it started.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs, styleText } from 'node:util';
import { parseYamlDocuments } from '../api/codec/yaml.ts';
import { systemClock } from '../api/machinery/clock.ts';
import { HttpClient } from '../api/client/http-client.ts';
import { loadKubeconfig, serverAccess } from '../api/client/kubeconfig.ts';
import type { Resource } from '../api/client/client.ts';
import { deployments, nodes, pods, services } from '../api/client/resources.ts';
import { errorMessage } from '../api/meta/error-message.ts';
import type { KubeObject } from '../api/meta/object.ts';
import { runningProcess } from '../cli/host/processes.ts';
import { STORAGE_FILE } from '../controlplane/storage/backup/backup.ts';
import { ensureImages, findRuntime, type FoundRuntime } from './container-runtime.ts';

const ROOT = join(import.meta.dirname, '..');
const USAGE = `usage: scripts/up [FLAGS] [-- FLAGS OF orchlet up]

Brings up a cluster of one node on this host and runs examples/hello.yaml in it. Ctrl-C takes it down again.

  --data-dir DIR      where the state is kept (default .orchlet in the checkout)
  --secure-port PORT  port of the API (default 6443)
  --keep-pods         leave the pods running when orchlet stops
  --exit              stop again when everything runs, instead of waiting for Ctrl-C
  --private-docker    start a Docker daemon for this cluster, even if the host has one
`;

const READY_WITHIN_MS = 120_000;
const STOP_WITHIN_MS = 14_000;

interface Settings {
  readonly dataDirectory: string;
  readonly securePort: string;
  readonly keepPods: boolean;
  readonly exit: boolean;
  readonly privateDocker: boolean;
  readonly more: readonly string[];
}

function settings(): Settings | undefined {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      'data-dir': { type: 'string', default: join(ROOT, '.orchlet') },
      'secure-port': { type: 'string', default: '6443' },
      'keep-pods': { type: 'boolean', default: false },
      exit: { type: 'boolean', default: false },
      'private-docker': { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h' },
    },
  });
  if (values.help === true) return undefined;
  return {
    dataDirectory: resolve(values['data-dir']),
    securePort: values['secure-port'],
    keepPods: values['keep-pods'],
    exit: values.exit,
    privateDocker: values['private-docker'],
    more: positionals,
  };
}

/** Prints a step while it runs, then how long it took. */
async function step<T>(what: string, work: (report: (text: string) => void) => Promise<T>): Promise<T> {
  const started = performance.now();
  const isTerminal = process.stdout.isTTY;
  if (isTerminal) process.stdout.write(`${styleText('dim', '…')} ${what}`);
  const report = (text: string): void => {
    if (isTerminal) process.stdout.write(`\r\x1b[K${styleText('dim', '…')} ${what}: ${text}`);
    else console.log(`  ${what}: ${text}`);
  };
  try {
    const result = await work(report);
    const seconds = ((performance.now() - started) / 1000).toFixed(1).padStart(5);
    console.log(`${isTerminal ? '\r\x1b[K' : ''}${styleText('green', '✓')} ${seconds} s  ${what}`);
    return result;
  } catch (error) {
    console.log(`${isTerminal ? '\r\x1b[K' : ''}${styleText('red', '✗')}          ${what}`);
    throw error;
  }
}

/**
 * Resolves to what `observe` finds first; its errors count as nothing found. Rejects if it finds nothing within two minutes,
 * and with the reason of the signal.
 */
async function waitFor<T>(
  observe: () => Promise<T | undefined>,
  whatIsMissing: () => string,
  signal: AbortSignal,
): Promise<T> {
  const deadline = performance.now() + READY_WITHIN_MS;
  while (performance.now() < deadline) {
    signal.throwIfAborted();
    const found = await observe().catch(() => undefined);
    if (found !== undefined) return found;
    await systemClock.sleep(100, signal);
  }
  throw new Error(`${whatIsMissing()} was not there within ${READY_WITHIN_MS / 1000} s`);
}

const hasCondition = (object: KubeObject, type: string): boolean =>
  ((object['status'] as { conditions?: { type: string; status: string }[] } | undefined)?.conditions ?? []).some(
    (condition) => condition.type === type && condition.status === 'True',
  );

function startOrchlet(options: Settings, runtime: FoundRuntime, log: string): ChildProcess {
  const args = ['up', '--data-dir', options.dataDirectory, '--secure-port', options.securePort, ...runtime.flags];
  if (options.keepPods) args.push('--keep-pods');
  const file = openSync(log, 'a', 0o600);
  try {
    // In a process group of its own, so that this script decides what Ctrl-C does.
    return spawn(join(ROOT, 'bin/orchlet'), [...args, ...options.more], {
      stdio: ['ignore', file, file],
      detached: true,
    });
  } finally {
    closeSync(file);
  }
}

/** Returns the last lines of the log, which report why orchlet exited. */
function lastLines(log: string): string {
  return readFileSync(log, 'utf8').trim().split('\n').slice(-5).join('\n');
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  await new Promise<void>((done) => child.once('exit', () => done()));
}

/** Creates a client of the new API server; `undefined` until its kubeconfig is there, an error until it answers. */
async function connect(kubeconfig: string): Promise<HttpClient | undefined> {
  if (!existsSync(kubeconfig)) return undefined;
  const access = await serverAccess(await loadKubeconfig(kubeconfig), { clock: systemClock });
  const client = new HttpClient({ ...access, clock: systemClock });
  try {
    await client.list(nodes);
    return client;
  } catch (error) {
    await client.close();
    throw error;
  }
}

function printNextSteps(cluster: {
  readonly node: string;
  readonly pod: string;
  readonly kubeconfig: string;
  readonly log: string;
  readonly started: number;
  readonly options: Settings;
}): void {
  const { node, pod, kubeconfig, log, started, options } = cluster;
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`
${styleText('bold', `A cluster runs on node ${node}, and hello in it, after ${seconds} s.`)}

  export KUBECONFIG=${kubeconfig}
  kubectl get pods -A
  kubectl logs deploy/hello
  kubectl exec -it ${pod} -- sh
  kubectl port-forward deploy/hello 8080 &  curl http://localhost:8080/

The log is in ${log}.${options.exit ? '' : ' Ctrl-C stops what was started here.'}
`);
}

async function main(options: Settings, stop: AbortController): Promise<void> {
  const started = performance.now();
  const { dataDirectory } = options;
  mkdirSync(dataDirectory, { recursive: true, mode: 0o700 });
  const log = join(dataDirectory, 'orchlet.log');
  const kubeconfig = join(dataDirectory, 'admin.kubeconfig');
  const holder = await runningProcess(join(dataDirectory, `${STORAGE_FILE}.pid`));
  if (holder !== undefined)
    throw new Error(
      `process ${holder} runs a cluster in ${dataDirectory} already: stop it with Ctrl-C where it was started, or with\n  bin/orchlet stop --data-dir ${dataDirectory}`,
    );
  const runtime = await step('container runtime', (report) =>
    findRuntime({
      directory: join(dataDirectory, 'docker'),
      report,
      privately: options.privateDocker,
      isNew: !existsSync(join(dataDirectory, 'agent')),
    }),
  );
  let child: ChildProcess | undefined;
  let client: HttpClient | undefined;
  try {
    await step('images without a registry', async (report) => ensureImages(join(dataDirectory, 'images'), report));
    const orchlet = startOrchlet(options, runtime, log);
    child = orchlet;
    orchlet.once('exit', (code) =>
      stop.abort(new Error(`orchlet ended with exit code ${code ?? 'none'}:\n${lastLines(log)}`)),
    );
    client = await step('control plane ready', () =>
      waitFor(
        () => connect(kubeconfig),
        () => `the API server (log: ${log})`,
        stop.signal,
      ),
    );
    const api = client;
    const node = await step('node Ready', () =>
      waitFor(
        async () => (await api.list(nodes)).items.find((item) => hasCondition(item, 'Ready')),
        () => `a Ready node (log: ${log})`,
        stop.signal,
      ),
    );
    await step('apply examples/hello.yaml', () => applyFile(api, join(ROOT, 'examples/hello.yaml')));
    const pod = await step('hello Running and ready', () =>
      waitFor(
        async () =>
          (await api.list(pods, { namespace: 'default', labelSelector: 'app=hello' })).items.find((item) =>
            hasCondition(item, 'Ready'),
          ),
        () => `a ready pod (log: ${log})`,
        stop.signal,
      ),
    );
    printNextSteps({ node: node.metadata.name ?? '', pod: pod.metadata.name ?? '', kubeconfig, log, started, options });
    if (!options.exit)
      await new Promise<void>((done) => stop.signal.addEventListener('abort', () => done(), { once: true }));
    if (stop.signal.reason instanceof Error && orchlet.exitCode !== null) throw stop.signal.reason;
  } finally {
    await client?.close();
    await takeDown(child, runtime, options);
  }
}

async function takeDown(child: ChildProcess | undefined, runtime: FoundRuntime, options: Settings): Promise<void> {
  if (child !== undefined && child.exitCode === null) {
    await step(options.keepPods ? 'stop; pods run on' : 'stop, pods as well', async () => {
      child.removeAllListeners('exit');
      child.kill('SIGTERM');
      const late = systemClock.after(STOP_WITHIN_MS, () => child.kill('SIGKILL'));
      await ended(child);
      late.cancel();
    });
  }
  if (!options.keepPods) runtime.stop();
}

const RESOURCES: Readonly<Record<string, Resource>> = { Deployment: deployments, Service: services };

async function applyFile(client: HttpClient, file: string): Promise<void> {
  for (const document of parseYamlDocuments(readFileSync(file))) {
    const object = document as unknown as KubeObject;
    const resource = RESOURCES[object.kind ?? ''];
    if (resource === undefined)
      throw new Error(`${file} has a ${object.kind ?? 'thing without a kind'}, which this script does not apply`);
    await client.patch(resource, object.metadata.namespace ?? 'default', object.metadata.name ?? '', {
      type: 'apply',
      body: object,
      fieldManager: 'orchlet-up',
      force: true,
    });
  }
}

const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => stop.abort(undefined));
}
try {
  const options = settings();
  if (options === undefined) process.stdout.write(USAGE);
  else await main(options, stop);
} catch (error) {
  const wasAsked =
    stop.signal.aborted &&
    !(stop.signal.reason instanceof Error && stop.signal.reason.message.startsWith('orchlet ended'));
  if (!wasAsked) {
    console.error(`up: ${errorMessage(error)}`);
    process.exitCode = error instanceof TypeError ? 2 : 1;
  }
}
