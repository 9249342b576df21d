/**
 * Records the requests of the agent to an API server: objects are in protobuf, and every path exists in kube-apiserver. The
 * agent gets only a kubeconfig.
 */
import assert from 'node:assert/strict';
import { rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { Agent as HttpsAgent, request } from 'node:https';
import { type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, test, type TestContext } from 'node:test';
import type { AgentFlags } from '../../agent/options/agent-options.ts';
import { keepAlive } from '../../api/machinery/clock.ts';
import { newKubeconfig, writeKubeconfig } from '../../api/client/kubeconfig.ts';
import { configMaps, nodes, pods, serviceAccounts } from '../../api/client/resources.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { startAgentInMemory } from '../fakes/agent-in-memory.ts';
import { unmountBelow } from '../mounts.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const alive = keepAlive();
after(() => alive.cancel());

const PROTOBUF = 'application/vnd.kubernetes.protobuf';
const TOKEN = 'the-agents-token';

/** The requests that the agent may send, with the paths of kube-apiserver. */
const PATHS: readonly RegExp[] = [
  /^GET \/api\/v1\/nodes(\/n1)?$/,
  /^POST \/api\/v1\/nodes$/,
  /^PATCH \/api\/v1\/nodes\/n1(\/status)?$/,
  /^GET \/api\/v1\/pods$/,
  /^GET \/api\/v1\/services$/,
  /^(GET|DELETE) \/api\/v1\/namespaces\/default\/pods\/p$/,
  /^PATCH \/api\/v1\/namespaces\/default\/pods\/p\/status$/,
  /^GET \/api\/v1\/namespaces\/default\/(configmaps|secrets)(\/[^/]+)?$/,
  /^POST \/api\/v1\/namespaces\/default\/serviceaccounts\/default\/token$/,
  /^(POST|PATCH) \/api\/v1\/namespaces\/default\/events(\/[^/]+)?$/,
  /^(GET|PUT) \/apis\/coordination\.k8s\.io\/v1\/namespaces\/kube-node-lease\/leases\/n1$/,
  /^POST \/apis\/coordination\.k8s\.io\/v1\/namespaces\/kube-node-lease\/leases$/,
  /^(GET|POST|PUT|PATCH|DELETE) \/apis\/storage\.k8s\.io\/v1\/csi(nodes|drivers)(\/[^/]+)?$/,
  /^DELETE \/apis\/resource\.k8s\.io\/v1\/resourceslices$/,
  /^GET \/apis\/node\.k8s\.io\/v1\/runtimeclasses$/,
  /^GET \/apis\/discovery\.k8s\.io\/v1\/endpointslices$/,
];

interface Heard {
  readonly line: string;
  readonly accept: string;
  readonly sent: string;
  readonly isWatch: boolean;
  answered: string;
}

/** Forwards all requests to the API server and records them. */
async function recorder(
  t: TestContext,
  plane: ControlPlane,
): Promise<{ readonly url: string; readonly heard: Heard[] }> {
  const heard: Heard[] = [];
  const upstream = new HttpsAgent({ ca: plane.ca, keepAlive: true });
  const pass = (from: IncomingMessage, to: ServerResponse): void => {
    const url = new URL(from.url ?? '/', 'http://recorder');
    const entry: Heard = {
      line: `${from.method} ${url.pathname}`,
      accept: from.headers.accept ?? '',
      sent: from.headers['content-type'] ?? '',
      isWatch: url.searchParams.get('watch') === 'true',
      answered: '',
    };
    heard.push(entry);
    const onward = request(
      {
        host: '127.0.0.1',
        port: plane.port,
        path: from.url,
        method: from.method,
        headers: from.headers,
        agent: upstream,
      },
      (answer) => {
        entry.answered = answer.headers['content-type'] ?? '';
        to.writeHead(answer.statusCode ?? 500, answer.headers);
        to.flushHeaders();
        answer.on('error', () => to.destroy());
        answer.pipe(to);
      },
    );
    onward.on('error', () => to.destroy());
    to.on('close', () => onward.destroy());
    from.pipe(onward);
  };
  const server = createServer(pass);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
    upstream.destroy();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, heard };
}

async function agentOn(t: TestContext, more: Partial<AgentFlags>) {
  const directory = temporaryFolder();
  const tokens = join(directory, 'tokens.csv');
  await writeFile(tokens, `${TOKEN},system:node:n1,n1,"system:nodes"\n`);
  const plane = await startControlPlane({ memory: true, flags: { tokenAuthFile: tokens } });
  t.after(async () => {
    await plane.close();
    unmountBelow(directory);
    await rm(directory, { recursive: true, force: true });
  });
  const { url, heard } = await recorder(t, plane);
  const kubeconfig = join(directory, 'kubeconfig');
  const credentials = { token: TOKEN };
  await writeKubeconfig(kubeconfig, newKubeconfig({ cluster: 'c', server: url, ca: '', user: 'u', credentials }));
  const agent = await startAgentInMemory(directory, { kubeconfig, ...more });
  t.after(() => agent.close());
  await until('the service account', () => plane.client.get(serviceAccounts, 'default', 'default'));
  await plane.client.create(configMaps, 'default', {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'settings', namespace: 'default' },
    data: { colour: 'red' },
  });
  await plane.client.create(pods, 'default', {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'p', namespace: 'default' },
    spec: {
      nodeName: 'n1',
      containers: [
        {
          name: 'main',
          image: 'shell:1',
          command: ['sleep', '1000'],
          env: [{ name: 'COLOUR', valueFrom: { configMapKeyRef: { name: 'settings', key: 'colour' } } }],
        },
      ],
    },
  } as never);
  const phase = async (): Promise<string | undefined> =>
    ((await plane.client.get(pods, 'default', 'p')) as { status?: { phase?: string } }).status?.phase;
  await until('a running pod', async () => ((await phase()) === 'Running' ? true : undefined));
  await plane.client.delete(pods, 'default', 'p', { gracePeriodSeconds: 1 });
  await until('the deletion of the pod', () =>
    phase().then(
      () => undefined,
      () => true as const,
    ),
  );
  await until('a lease', async () => (heard.some(({ line }) => line.includes('/leases')) ? true : undefined));
  assert.equal((await plane.client.get(nodes, '', 'n1')).metadata.name, 'n1');
  return heard;
}

test('the agent speaks protobuf, on paths of kube-apiserver alone', { timeout: 120_000 }, async (t) => {
  const heard = await agentOn(t, {});
  const strange = heard.filter(({ line }) => !PATHS.some((path) => path.test(line))).map(({ line }) => line);
  assert.deepEqual([...new Set(strange)], []);
  assert.deepEqual([...new Set(heard.map(({ accept }) => accept))], [`${PROTOBUF},application/json`]);
  for (const { line, sent, answered, isWatch } of heard) {
    if (line.startsWith('POST') || line.startsWith('PUT') || (line.startsWith('DELETE') && sent !== ''))
      assert.equal(sent, PROTOBUF, line);
    if (line.startsWith('PATCH')) assert.match(sent, /^application\/.*patch\+json$/, line);
    // Requests that are running when the agent exits have no response.
    if (answered !== '') assert.equal(answered, isWatch ? `${PROTOBUF};stream=watch` : PROTOBUF, line);
  }
  assert.ok(heard.some(({ isWatch, answered }) => isWatch && answered !== ''));
});

test('--kube-api-content-type application/json: the agent speaks JSON', { timeout: 120_000 }, async (t) => {
  const heard = await agentOn(t, { kubeApiContentType: 'application/json' });
  assert.deepEqual([...new Set(heard.map(({ accept }) => accept))], ['application/json']);
  assert.ok(heard.every(({ sent, answered }) => !`${sent}${answered}`.includes('protobuf')));
});
