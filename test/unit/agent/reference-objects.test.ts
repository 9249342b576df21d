/** The objects that the agent writes and serves have the form that was recorded from the kubelet. */
import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { Agent } from '../../../agent/main.ts';
import { keepAlive } from '../../../api/machinery/clock.ts';
import { leases, nodes } from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { type ControlPlane, startControlPlane } from '../../../controlplane/main.ts';
import { startAgentInMemory } from '../../fakes/agent-in-memory.ts';
import { until } from '../../until.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

interface NodeStatus {
  readonly conditions: readonly Readonly<Record<string, string>>[];
  readonly declaredFeatures: readonly string[];
  readonly addresses: readonly { readonly type: string }[];
}

interface PodItem {
  readonly metadata: { readonly uid: string; readonly annotations: Readonly<Record<string, string>> };
  readonly spec: Readonly<Record<string, unknown>>;
}

interface PodList {
  readonly items: readonly PodItem[];
}

const recorded = JSON.parse(await readFile(join(import.meta.dirname, 'reference-objects.json'), 'utf8')) as {
  readonly node: KubeObject & { readonly status: NodeStatus };
  readonly lease: KubeObject;
  readonly pods: PodList;
};
const recordedPod = firstOf(recorded.pods);

function firstOf({ items: [pod] }: PodList): PodItem {
  assert.ok(pod !== undefined);
  return pod;
}

const IMAGE = 'shell:1';
let directory = '';
let plane: ControlPlane;
let agent: Agent;
const alive = keepAlive();

before(async () => {
  directory = temporaryFolder();
  plane = await startControlPlane({ memory: true });
  const [kubeconfig, podManifestPath] = [join(directory, 'kubeconfig'), join(directory, 'manifests')];
  await writeFile(kubeconfig, plane.kubeconfig);
  await mkdir(podManifestPath);
  await writeFile(join(podManifestPath, 'web.json'), JSON.stringify(manifest()));
  agent = await startAgentInMemory(directory, {
    kubeconfig,
    podManifestPath,
    authorizationMode: 'AlwaysAllow',
    anonymousAuth: true,
  });
});
after(async () => {
  alive.cancel();
  await agent.close();
  await plane.close();
});

/** Returns the recorded pod as a user would write it, without defaults and additions of the agent. */
function manifest(): object {
  const { containers, initContainers, volumes, terminationGracePeriodSeconds } = recordedPod.spec;
  const added = new Set([
    ...['terminationMessagePath', 'terminationMessagePolicy', 'protocol', 'timeoutSeconds', 'scheme'],
    ...['successThreshold', 'failureThreshold'],
  ]);
  const text = JSON.stringify(
    {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'web', labels: { app: 'web' } },
      spec: { containers, initContainers, volumes, terminationGracePeriodSeconds },
    },
    (key, value: unknown) => (added.has(key) ? undefined : value),
  );
  return JSON.parse(text.replaceAll('docker.io/library/busybox:1.35', IMAGE)) as object;
}

function pathsOf(value: unknown, path = ''): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((entry) => pathsOf(entry, `${path}[]`));
  if (typeof value !== 'object' || value === null) return [path];
  return Object.entries(value).flatMap(([key, entry]) => pathsOf(entry, `${path}.${key}`));
}

/** Fields that the recording omits, that newer runtimes report, or that only nodes of this project have. */
const UNRECORDED =
  /^\.metadata\.(managedFields|annotations\.orchlet\.local\/)|^\.spec\.podCIDRs?|^\.status\.(runtimeHandlers|features)/;

function sameForm(expected: unknown, actual: unknown): void {
  const paths = (value: unknown): readonly string[] =>
    [...new Set(pathsOf(value))].filter((path) => !UNRECORDED.test(path)).toSorted();
  assert.deepEqual(paths(actual), paths(expected));
}

test('the Node has the fields, conditions and features of the recorded one', async () => {
  const node = await until('a ready node', async () => {
    const found = await plane.client.get(nodes, '', 'n1').catch(() => undefined);
    const { conditions = [] } = (found?.['status'] ?? {}) as Partial<NodeStatus>;
    const isReady = conditions.some(({ type, status }) => type === 'Ready' && status === 'True');
    // The controllers have handled the new node.
    const isSettled = found?.['spec'] !== undefined && (found['spec'] as { taints?: unknown }).taints === undefined;
    return isReady && isSettled && found.metadata.annotations?.['node.alpha.kubernetes.io/ttl'] === '0'
      ? found
      : undefined;
  });
  sameForm(recorded.node, node);
  const facts = ({ status }: { readonly status: NodeStatus }): object => ({
    conditions: status.conditions.map(({ type, status: value, reason, message }) => [type, value, reason, message]),
    declaredFeatures: status.declaredFeatures,
    addresses: status.addresses.map(({ type }) => type),
  });
  assert.deepEqual(facts(node as unknown as { status: NodeStatus }), facts(recorded.node));
});

test('the Lease has the fields of the recorded one', async () => {
  const lease = await until('the lease', () =>
    plane.client.get(leases, 'kube-node-lease', 'n1').catch(() => undefined),
  );
  sameForm(recorded.lease, lease);
  const spec = lease['spec'] as Record<string, unknown>;
  assert.deepEqual([spec['holderIdentity'], spec['leaseDurationSeconds']], ['n1', 40]);
  assert.match(String(spec['renewTime']), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
});

function getPods(): Promise<PodList> {
  return new Promise((resolve, reject) => {
    request(
      { host: '127.0.0.1', port: agent.port, path: '/pods', rejectUnauthorized: false, agent: false },
      (answer) => {
        let text = '';
        answer.on('data', (part: Buffer) => (text += part.toString('utf8')));
        answer.on('end', () => resolve(JSON.parse(text) as PodList));
      },
    )
      .on('error', reject)
      .end();
  });
}

test('/pods shows a static pod with all defaults of the recorded one, and its hash as its uid', async () => {
  const list = await until('the pod', async () => {
    const found = await getPods();
    return found.items.length === 1 ? found : undefined;
  });
  const pod = firstOf(list);
  const { items: _items, ...rest } = list;
  const { items: _recorded, ...expected } = recorded.pods;
  assert.deepEqual(rest, expected);
  assert.deepEqual(Object.keys(pod).toSorted(), Object.keys(recordedPod).toSorted());
  sameForm(recordedPod.metadata, pod.metadata);
  assert.equal(recordedPod.metadata.annotations['kubernetes.io/config.hash'], recordedPod.metadata.uid);
  assert.equal(pod.metadata.annotations['kubernetes.io/config.hash'], pod.metadata.uid);
  assert.deepEqual(pod.spec, {
    ...(JSON.parse(JSON.stringify(recordedPod.spec).replaceAll('docker.io/library/busybox:1.35', IMAGE)) as object),
    nodeName: 'n1',
  });
});
