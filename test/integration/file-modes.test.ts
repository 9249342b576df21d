/**
 * A started control plane and agent have files, directories and sockets of the least mode, whatever the umask of their
 * process is.
 */
import assert from 'node:assert/strict';
import { lstatSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { Agent } from '../../agent/main.ts';
import { nodes, pods, secrets } from '../../api/client/resources.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { startAgentInMemory } from '../fakes/agent-in-memory.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { until } from '../until.ts';

const directory = temporaryFolder();
const [data, files] = [join(directory, 'data'), join(directory, 'agent')];
const umask = process.umask(0);
let plane: ControlPlane;
let agent: Agent;

before(async () => {
  mkdirSync(files);
  plane = await startControlPlane({ flags: { dataDir: data, controllers: ['serviceaccount-controller'] } });
  const kubeconfig = join(directory, 'kubeconfig');
  writeFileSync(kubeconfig, plane.kubeconfig, { mode: 0o600 });
  agent = await startAgentInMemory(files, { kubeconfig });
  const { client } = plane;
  await until('the node', async () => (await client.list(nodes)).items.length === 1);
  await client.create(secrets, 'default', { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' } });
  await client.create(pods, 'default', {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'p' },
    spec: {
      nodeName: 'n1',
      automountServiceAccountToken: false,
      containers: [{ name: 'c', image: 'shell:1', imagePullPolicy: 'Never', command: ['sleep', '1000'] }],
      volumes: [{ name: 'v', secret: { secretName: 's' } }],
    },
  } as never);
  await until('the pod runs', async () => {
    const { status } = await client.get(pods, 'default', 'p');
    return (status as { readonly phase?: string } | undefined)?.phase === 'Running';
  });
});

after(async () => {
  await agent.close();
  await plane.close();
  process.umask(umask);
});

/** Returns everything below a directory with the bits of the group and of others. Links have no modes. */
function openToOthers(root: string, below = ''): string[] {
  return readdirSync(join(root, below), { withFileTypes: true }).flatMap((entry) => {
    const path = join(below, entry.name);
    const mode = (lstatSync(join(root, path)).mode & 0o077).toString(8).padStart(2, '0');
    const found = entry.isSymbolicLink() || mode === '00' ? [] : [`${mode} ${path}`];
    return entry.isDirectory() ? [...found, ...openToOthers(root, path)] : found;
  });
}

test('the data directory of a control plane shows others nothing but certificates, and its root not even those', () => {
  assert.equal(lstatSync(data).mode & 0o077, 0);
  const open = openToOthers(data).filter(
    (line) => !/^44 (pki\/[a-z-]+\.(crt|pub)|storage\/orchlet\.db\.pid)$/.test(line),
  );
  assert.deepEqual(open, []);
});

test('nobody but root and its group enters the directories of an agent; files are of root alone, sockets of its group', () => {
  assert.equal(lstatSync(join(files, 'root')).mode & 0o027, 0);
  // What is below `pods` and the logs belongs to containers, which have their own users.
  const open = openToOthers(join(files, 'root')).filter((line) => !line.includes(' pods/'));
  const sockets = open.filter((line) => line.endsWith('.sock'));
  const folders = open.filter((line) => !line.endsWith('.sock'));
  assert.deepEqual(
    sockets.filter((line) => !line.startsWith('60 ')),
    [],
  );
  assert.deepEqual(
    folders.filter((line) => !line.startsWith('50 ') || !lstatSync(join(files, 'root', line.slice(3))).isDirectory()),
    [],
  );
  assert.ok(sockets.length >= 2 && folders.length >= 2, open.join('\n'));
});
