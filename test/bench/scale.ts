/**
 * Measures a large cluster without agents, whose 500 nodes exist only in the API: how long expensive operations of the control
 * plane take, and for how long each blocks the event loop. `bench.ts` calls it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Print } from './bench.ts';
import { openHttp, type Http } from './load.ts';
import { pod } from './objects.ts';
import { startServer, type Server } from './server.ts';

const NODES = 500;
const MIB = 1024 * 1024;
const MAX_STEP_MS = 300_000;
const POLL_MS = 100;
const PODS = '/api/v1/pods';
const CONTENT = 'example.com/app:1';

interface Step {
  readonly name: string;
  /** Resolves to the number of units for which a rate is printed. */
  run(http: Http): Promise<number | undefined>;
}

interface Page {
  readonly items: readonly unknown[];
}

async function until(what: string, check: () => Promise<boolean>): Promise<void> {
  for (const end = performance.now() + MAX_STEP_MS; performance.now() < end; await sleep(POLL_MS))
    if (await check()) return;
  throw new Error(`${what} did not happen in ${MAX_STEP_MS / 1000} s`);
}

/** Whether any object matches the query. */
async function exists(http: Http, path: string): Promise<boolean> {
  const page = JSON.parse(await http.request('GET', `${path}${path.includes('?') ? '&' : '?'}limit=1`)) as Page;
  return page.items.length > 0;
}

const selecting = (labels: string, fields = ''): string =>
  `${PODS}?labelSelector=${encodeURIComponent(labels)}${fields === '' ? '' : `&fieldSelector=${encodeURIComponent(fields)}`}`;

function node(at: number, allowed: { readonly cpu: number; readonly pods: number }): object {
  const name = `node-${at}`;
  const labels = { 'kubernetes.io/hostname': name, 'topology.kubernetes.io/zone': `zone-${at % 5}` };
  const capacity = { cpu: String(allowed.cpu), memory: '64Gi', pods: String(allowed.pods) };
  const conditions = [{ type: 'Ready', status: 'True', reason: 'KubeletReady', message: 'ready' }];
  return { metadata: { name, labels }, status: { capacity, allocatable: capacity, conditions } };
}

function template(app: string, more: object = {}): object {
  const resources = { requests: { cpu: '50m', memory: '16Mi' } };
  const tolerations = ['not-ready', 'unreachable'].map((key) => ({
    key: `node.kubernetes.io/${key}`,
    operator: 'Exists',
    effect: 'NoExecute',
    tolerationSeconds: 1,
  }));
  return {
    metadata: { labels: { app } },
    spec: { containers: [{ name: 'c', image: CONTENT, resources }], tolerations, ...more },
  };
}

async function deploy(http: Http, app: string, replicas: number, more: object = {}): Promise<number> {
  const spec = { replicas, selector: { matchLabels: { app } }, template: template(app, more) };
  await http.request('POST', '/apis/apps/v1/namespaces/default/deployments', { metadata: { name: app }, spec });
  await until(`${replicas} pods of ${app}`, async () => {
    const text = await http.request('GET', `/apis/apps/v1/namespaces/default/deployments/${app}`);
    return (JSON.parse(text) as { status?: { replicas?: number } }).status?.replicas === replicas;
  });
  await until(`${app} bound`, async () => !(await exists(http, selecting(`app=${app}`, 'spec.nodeName='))));
  return replicas;
}

const matching = (app: string): object => ({ labelSelector: { matchLabels: { app } } });

function spread(app: string): object {
  const constraint = { maxSkew: 1, whenUnsatisfiable: 'DoNotSchedule', ...matching(app) };
  return {
    topologySpreadConstraints: [{ ...constraint, topologyKey: 'topology.kubernetes.io/zone' }],
    affinity: {
      podAntiAffinity: {
        preferredDuringSchedulingIgnoredDuringExecution: [
          { weight: 100, podAffinityTerm: { ...matching(app), topologyKey: 'kubernetes.io/hostname' } },
        ],
      },
    },
  };
}

function apart(app: string): object {
  const term = { ...matching(app), topologyKey: 'kubernetes.io/hostname' };
  return { affinity: { podAntiAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] } } };
}

async function loseNodes(http: Http): Promise<undefined> {
  const lost = 50;
  const conditions = [{ type: 'Ready', status: 'Unknown', reason: 'NodeStatusUnknown', message: 'lost' }];
  await http.many(lost, (at) => http.request('PATCH', `/api/v1/nodes/node-${at}/status`, { status: { conditions } }));
  await until('the eviction of all pods of the lost nodes', async () => {
    for (let at = 0; at < lost; at += 1) {
      const path = `${PODS}?fieldSelector=${encodeURIComponent(`spec.nodeName=node-${at}`)}`;
      const { items } = JSON.parse(await http.request('GET', path)) as {
        items: readonly { readonly metadata: { readonly deletionTimestamp?: string } }[];
      };
      if (items.some(({ metadata }) => metadata.deletionTimestamp === undefined)) return false;
    }
    return true;
  });
  await until('the replacements bound', async () => !(await exists(http, `${PODS}?fieldSelector=spec.nodeName%3D`)));
}

async function fill(http: Http, namespace: string, count: number, metadata: object = {}): Promise<void> {
  await http.many(count, (at) =>
    http.request('POST', `/api/v1/namespaces/${namespace}/${at % 2 === 0 ? 'configmaps' : 'secrets'}`, {
      metadata: { name: `object-${at}`, ...metadata },
    }),
  );
}

async function removeNamespace(http: Http): Promise<number> {
  await http.request('DELETE', '/api/v1/namespaces/full');
  await until('the end of the namespace', async () => {
    const { items } = JSON.parse(
      await http.request('GET', '/api/v1/namespaces?fieldSelector=metadata.name%3Dfull'),
    ) as Page;
    return items.length === 0;
  });
  return 5000;
}

async function removeOwner(http: Http): Promise<number> {
  await http.request('DELETE', '/api/v1/namespaces/owned/configmaps/owner?propagationPolicy=Background');
  await until('the end of the dependents', async () => !(await exists(http, '/api/v1/namespaces/owned/secrets')));
  return 5000;
}

async function listAll(http: Http): Promise<undefined> {
  for (const path of [PODS, '/api/v1/nodes', '/api/v1/events', '/api/v1/secrets', '/apis/apps/v1/replicasets'])
    await http.request('GET', path);
}

/** Runs a step, and prints its duration, its rate if it has units, and its effect on the event loop. */
async function measure(server: Server, print: Print, http: Http, step: Step): Promise<void> {
  await server.facts();
  const started = performance.now();
  const units = await step.run(http);
  const seconds = (performance.now() - started) / 1000;
  const { turnCpuP99Ms, longestTurnCpuMs, loopDelayP99Ms, loopDelayMaxMs, cpuMs, rssBytes } = await server.facts();
  print(step.name, seconds, 's');
  print('  processor time of the main thread', cpuMs / 1000, 's');
  if (units !== undefined) {
    print('  units per second', units / seconds, '1/s');
    print('  units per second of processor time', (units * 1000) / cpuMs, '1/s');
  }
  print('  processor time of a turn of the loop, 99th percentile', turnCpuP99Ms, 'ms');
  print('  processor time of a turn of the loop, longest', longestTurnCpuMs, 'ms');
  print('  event-loop delay, 99th percentile', loopDelayP99Ms, 'ms');
  print('  event-loop delay, longest', loopDelayMaxMs, 'ms');
  print('  resident memory afterwards', rssBytes / MIB, 'MiB');
}

async function withCluster(
  allowed: { readonly cpu: number; readonly pods: number },
  run: (server: Server, http: Http) => Promise<void>,
): Promise<void> {
  const flags = [
    '--cluster-cidr',
    '10.0.0.0/12',
    '--node-monitor-grace-period',
    '2h',
    '--node-startup-grace-period',
    '2h',
    '--node-eviction-rate',
    '100',
  ];
  const server = await startServer({ observed: true, flags });
  const http = openHttp(server.origin);
  try {
    await until('the default service account', () => exists(http, '/api/v1/namespaces/default/serviceaccounts'));
    await http.many(NODES, (at) => http.request('POST', '/api/v1/nodes', node(at, allowed)));
    await run(server, http);
  } finally {
    http.close();
    await server.stop();
  }
}

const steps: readonly Step[] = [
  { name: 'deployment of 3,000 pods created and bound', run: (http) => deploy(http, 'plain', 3000) },
  { name: '1,000 pods spread over zones and hosts', run: (http) => deploy(http, 'spread', 1000, spread('spread')) },
  { name: '400 pods with required anti-affinity', run: (http) => deploy(http, 'apart', 400, apart('apart')) },
  { name: '5,600 further pods', run: (http) => deploy(http, 'more', 5600) },
  { name: 'full lists of pods, nodes, events, secrets, replica sets', run: listAll },
  { name: 'loss of 50 nodes with about 1,000 pods', run: loseNodes },
  { name: 'namespace of 5,000 objects deleted', run: removeNamespace },
  { name: '5,000 dependents of a deleted owner collected', run: removeOwner },
];

async function growing(print: Print): Promise<void> {
  await withCluster({ cpu: 32, pods: 110 }, async (server, http) => {
    for (const name of ['full', 'owned']) await http.request('POST', '/api/v1/namespaces', { metadata: { name } });
    const owner = JSON.parse(
      await http.request('POST', '/api/v1/namespaces/owned/configmaps', { metadata: { name: 'owner' } }),
    ) as { readonly metadata: { readonly uid: string } };
    const reference = { apiVersion: 'v1', kind: 'ConfigMap', name: 'owner', uid: owner.metadata.uid };
    await fill(http, 'full', 5000);
    await fill(http, 'owned', 5000, { ownerReferences: [reference] });
    for (const step of steps) await measure(server, print, http, step);
  });
}

async function preemption(print: Print): Promise<void> {
  const [podsOfNode, replicas] = [60, 100];
  await withCluster({ cpu: podsOfNode, pods: 110 }, async (server, http) => {
    const created = (at: number): object => {
      const { spec, ...rest } = pod(at) as { spec: { containers: object[] } };
      const containers = spec.containers.map((one) => ({ ...one, resources: { requests: { cpu: '1' } } }));
      return { ...rest, spec: { ...spec, containers, nodeName: `node-${at % NODES}` } };
    };
    await http.many(NODES * podsOfNode, (at) => http.request('POST', '/api/v1/namespaces/default/pods', created(at)));
    await http.request('POST', '/apis/scheduling.k8s.io/v1/priorityclasses', {
      metadata: { name: 'high' },
      value: 1000,
    });
    await measure(server, print, http, {
      name: `preemption for ${replicas} pods, 500 nodes of ${podsOfNode} pods`,
      run: async () => {
        const more = { priorityClassName: 'high', ...apart('high') };
        const spec = { replicas, selector: { matchLabels: { app: 'high' } }, template: template('high', more) };
        await http.request('POST', '/apis/apps/v1/namespaces/default/deployments', {
          metadata: { name: 'high' },
          spec,
        });
        await until('the nomination of all pods', async () => {
          const { items } = JSON.parse(await http.request('GET', selecting('app=high'))) as {
            readonly items: readonly { readonly status?: { readonly nominatedNodeName?: string } }[];
          };
          return items.filter(({ status }) => (status?.nominatedNodeName ?? '') !== '').length === replicas;
        });
        return replicas;
      },
    });
  });
}

/** Measures the cluster while it grows, and then preemption in it. */
export async function scale(print: Print): Promise<void> {
  await growing(print);
  await preemption(print);
}
