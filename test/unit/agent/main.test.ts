/** Tests the whole agent on a runtime in memory, with options that enable and disable its parts. */
import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, readlink, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { type Agent, startAgent } from '../../../agent/main.ts';
import type { AgentFlags } from '../../../agent/options/agent-options.ts';
import { keepAlive } from '../../../api/machinery/clock.ts';
import { nodes } from '../../../api/client/resources.ts';
import { startControlPlane } from '../../../controlplane/main.ts';
import { startAgentInMemory } from '../../fakes/agent-in-memory.ts';
import { until } from '../../until.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

// The agent's timers do not keep the process alive, and not every agent here has a server.
const alive = keepAlive();
after(() => alive.cancel());

let directory = '';
beforeEach(async () => {
  directory = temporaryFolder();
});

const start = (flags: Partial<AgentFlags>): Promise<Agent> => startAgentInMemory(directory, flags);

function getJson(port: number, path: string): Promise<unknown> {
  return new Promise((resolve, reject) => {
    request({ host: '127.0.0.1', port, path, rejectUnauthorized: false, agent: false }, (response) => {
      let text = '';
      response.on('data', (part: Buffer) => (text += part.toString('utf8')));
      response.on('end', () => resolve(JSON.parse(text)));
    })
      .on('error', reject)
      .end();
  });
}

test('/configz answers with the effective configuration and where it came from', async () => {
  const agent = await start({ maxPods: 7, anonymousAuth: true });
  try {
    const answer = (await getJson(agent.port, '/configz')) as {
      kubeletconfig: { maxPods: number; kind: string };
      origins: Record<string, string>;
    };
    assert.deepEqual([answer.kubeletconfig.kind, answer.kubeletconfig.maxPods], ['KubeletConfiguration', 7]);
    assert.deepEqual([answer.origins['maxPods'], answer.origins['syncFrequency']], ['flag', 'default']);
  } finally {
    await agent.close();
  }
});

function statusOf(port: number, path: string, method = 'GET'): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    request({ host: '127.0.0.1', port, path, method, rejectUnauthorized: false, agent: false }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode));
    })
      .on('error', reject)
      .end();
  });
}

test('without an API server, clients get only the health of the agent by default, and no pods are accepted', async () => {
  const agent = await start({});
  try {
    assert.equal(await statusOf(agent.port, '/healthz'), 200);
    for (const path of ['/pods', '/configz', '/metrics', '/run/ns/pod/container', '/exec/ns/pod/container', '/logs/'])
      assert.equal(await statusOf(agent.port, path), 403, path);
    assert.equal(await statusOf(agent.port, '/podManifests', 'POST'), 403);
  } finally {
    await agent.close();
  }
});

/** Returns the TCP ports on which this process listens. */
async function ownPorts(): Promise<readonly number[]> {
  const descriptors = await readdir('/proc/self/fd');
  const targets = await Promise.all(descriptors.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')));
  const own = new Set(targets.flatMap((target) => /^socket:\[(\d+)\]$/.exec(target)?.[1] ?? []));
  const tables = await Promise.all(['tcp', 'tcp6'].map((name) => readFile(`/proc/self/net/${name}`, 'utf8')));
  const rows = tables.flatMap((table) => table.split('\n').map((line) => line.trim().split(/\s+/)));
  return rows
    .filter(([, , , state, , , , , , inode = '']) => state === '0A' && own.has(inode))
    .map(([, local = '']) => Number.parseInt(local.split(':')[1] ?? '', 16));
}

test('without an API server, the read-only port, which shows the pods to everybody, is closed by default', async () => {
  const agent = await startAgentInMemory(directory, { readOnlyPort: undefined });
  try {
    assert.deepEqual(await ownPorts(), [agent.port]);
  } finally {
    await agent.close();
  }
});

test('explicit settings of the administrator apply, and pods are accepted only with a flag of their own', async () => {
  const agent = await start({ authorizationMode: 'AlwaysAllow' });
  try {
    assert.equal(await statusOf(agent.port, '/pods'), 200);
    assert.equal(await statusOf(agent.port, '/podManifests', 'POST'), 404);
  } finally {
    await agent.close();
  }
  const taking = await start({ authorizationMode: 'AlwaysAllow', enablePodManifestsHandler: true });
  try {
    assert.equal(await statusOf(taking.port, '/podManifests'), 200);
    assert.equal(await statusOf(taking.port, '/podManifests', 'POST'), 400);
  } finally {
    await taking.close();
  }
});

test('an agent whose kubeconfig is missing fails before it changes anything of the host', async () => {
  await assert.rejects(start({ kubeconfig: join(directory, 'none') }), /none/);
  // Nothing was created, because the kubeconfig is read first.
  await assert.rejects(mkdir(join(directory, 'root', 'x')), { code: 'ENOENT' });
});

test('without --enable-server nothing listens', async () => {
  const agent = await start({ enableServer: false });
  assert.equal(agent.port, 0);
  await agent.close();
});

test('the node reports the port of its server, also if --port is 0 and the system has selected one', async () => {
  const plane = await startControlPlane({ memory: true });
  const kubeconfig = join(directory, 'kubeconfig');
  await writeFile(kubeconfig, plane.kubeconfig);
  const agent = await start({ kubeconfig });
  try {
    const { daemonEndpoints } = await until('the status of the node', async () => {
      const node = (await plane.client.get(nodes, '', 'n1')) as { status?: { daemonEndpoints?: unknown } };
      return node.status?.daemonEndpoints === undefined ? undefined : node.status;
    });
    assert.deepEqual(daemonEndpoints, { kubeletEndpoint: { Port: agent.port } });
  } finally {
    await agent.close();
    await plane.close();
  }
});

test('--runonce is done when the pods of its folder run, without a server and without an API server', async () => {
  const podManifestPath = join(directory, 'manifests');
  await mkdir(podManifestPath);
  await writeFile(
    join(podManifestPath, 'a.yaml'),
    'apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: "shell:1", imagePullPolicy: Never, command: [sleep, "1000"]}]}\n',
  );
  const agent = await start({ runonce: true, podManifestPath, kubeconfig: join(directory, 'none') });
  try {
    assert.equal(agent.port, 0);
    assert.equal(await agent.done, 'ran 1 pod once');
  } finally {
    await agent.close();
  }
});

test('a host that fails a requirement is rejected before anything is created', async () => {
  await assert.rejects(
    startAgent({ flags: { rootDir: join(directory, 'root'), lockFile: '', exitOnLockContention: true } }),
    /no lock file specified/,
  );
});
