/**
 * Tests the agent's certificates: they are requested with a bootstrap token, renewed before they expire, and used without a
 * restart.
 */
import assert from 'node:assert/strict';
import { readlink, rm } from 'node:fs/promises';
import { Agent as HttpsAgent, request } from 'node:https';
import { join } from 'node:path';
import { after, test, type TestContext } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { connectApi, type ApiClientOptions } from '../../agent/assembly/api-clients.ts';
import { readPair } from '../../agent/node/certificates/certificate-store.ts';
import { effectiveOptions } from '../../agent/options/config/effective-options.ts';
import type { AgentFlags } from '../../agent/options/agent-options.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { type Clock, keepAlive, systemClock } from '../../api/machinery/clock.ts';
import { newKubeconfig, writeKubeconfig } from '../../api/client/kubeconfig.ts';
import { runReflector } from '../../api/client/reflector.ts';
import { certificateSigningRequests, nodes, secrets } from '../../api/client/resources.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { startAgentInMemory } from '../fakes/agent-in-memory.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const DAY_MS = 86_400_000;
/**
 * The lifetime of certificates. It is so short that a test sees several ones, and so long that a busy machine renews them in
 * time.
 */
const SHORT_LIFE_MS = 8_000;

// The agent's timers do not keep the process alive.
const alive = keepAlive();
after(() => alive.cancel());

/** Returns the system's clock, shifted by this number of milliseconds. */
function ahead(ms: number): Clock {
  return { ...systemClock, now: () => systemClock.now() + ms };
}

interface Joining {
  readonly plane: ControlPlane;
  readonly directory: string;
  /** The flags with which an agent joins. */
  readonly flags: Partial<AgentFlags> & { readonly rootDir: string };
  readonly signal: AbortSignal;
}

/** Starts a control plane that signs certificates for this duration, and creates a token for a node. */
async function joining(t: TestContext, signForMs?: number): Promise<Joining> {
  const directory = temporaryFolder();
  const plane = await startControlPlane({
    memory: true,
    ...(signForMs === undefined ? {} : { flags: { clusterSigningDuration: signForMs } }),
  });
  const stop = new AbortController();
  t.after(async () => {
    stop.abort(new Error('the test is over'));
    await plane.close();
    await rm(directory, { recursive: true, force: true });
  });
  await plane.client.create(secrets, 'kube-system', {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'bootstrap-token-abcdef', namespace: 'kube-system' },
    type: 'bootstrap.kubernetes.io/token',
    data: Object.fromEntries(
      Object.entries({
        'token-id': 'abcdef',
        'token-secret': '0123456789abcdef',
        'usage-bootstrap-authentication': 'true',
        'auth-extra-groups': 'system:bootstrappers:kubeadm:default-node-token',
      }).map(([key, value]) => [key, Buffer.from(value).toString('base64')]),
    ),
  });
  const bootstrapKubeconfig = join(directory, 'bootstrap.kubeconfig');
  await writeKubeconfig(
    bootstrapKubeconfig,
    newKubeconfig({
      cluster: 'c',
      server: `https://127.0.0.1:${plane.port}`,
      ca: plane.ca,
      user: 'u',
      credentials: { token: 'abcdef.0123456789abcdef' },
    }),
  );
  const flags = { bootstrapKubeconfig, kubeconfig: join(directory, 'kubeconfig'), rootDir: directory };
  return { plane, directory, flags, signal: stop.signal };
}

async function clientOptions({ flags: values, signal }: Joining): Promise<Omit<ApiClientOptions, 'clock'>> {
  const { flags } = await effectiveOptions({ values, given: new Set(Object.keys(values)) });
  const certificateDirectory = flags.certDir;
  return {
    flags,
    logger: silentLogger,
    nodeName: 'n1',
    version: 'v1',
    certificateDirectory,
    random: () => 0.5,
    signal,
  };
}

const nameOfPair = (directory: string, name: string): Promise<string> =>
  readlink(join(directory, `${name}-current.pem`));

test(
  'the client certificate is renewed before it expires, and the clients go on with the new one',
  { timeout: 60_000 },
  async (t) => {
    const options = await clientOptions(await joining(t));
    const pair = (): Promise<string> => nameOfPair(options.certificateDirectory, 'kubelet-client');
    const first = await connectApi({ ...options, clock: systemClock });
    assert.ok(first);
    const before = await pair();
    await first.client.create(nodes, '', { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1' } });
    assert.equal(await pair(), before, 'a fresh certificate is left alone');
    first.close();

    // The certificate is about to expire, so it is renewed; it has not expired, so that no bootstrap is needed.
    const second = await connectApi({ ...options, clock: ahead(350 * DAY_MS) });
    assert.ok(second);
    await until('the new certificate', async () => ((await pair()) === before ? undefined : true), 30_000);
    for (const client of [second.client, second.events, second.heartbeats])
      assert.equal((await client.get(nodes, '', 'n1')).metadata.name, 'n1');
    second.close();
  },
);

test(
  'client certificates of seconds are renewed again and again; a watch loses nothing, and an expired node comes back',
  { timeout: 120_000 },
  async (t) => {
    const there = await joining(t, SHORT_LIFE_MS);
    const { plane, signal } = there;
    const options = await clientOptions(there);
    const pair = (): Promise<string> => nameOfPair(options.certificateDirectory, 'kubelet-client');
    const api = await connectApi({ ...options, clock: systemClock });
    assert.ok(api);
    await api.client.create(nodes, '', { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1' } });

    const stop = new AbortController();
    const counts: (string | undefined)[] = [];
    const revisions: number[] = [];
    let lists = 0;
    const watching = runReflector(
      {
        client: api.client,
        resource: nodes,
        fieldSelector: 'metadata.name=n1',
        clock: systemClock,
        logger: silentLogger,
      },
      {
        replace: () => void (lists += 1),
        apply({ object: { metadata } }) {
          counts.push(metadata.annotations?.['count']);
          revisions.push(Number(metadata.resourceVersion));
        },
      },
      AbortSignal.any([signal, stop.signal]),
    );
    await until('the first list', () => (lists > 0 ? true : undefined));
    const certificates = new Set([await pair()]);
    let written = 0;
    // Two more renewals, while objects change all the time.
    await until('two renewals', async () => {
      written += 1;
      await plane.client.patch(nodes, '', 'n1', {
        type: 'merge',
        body: { metadata: { annotations: { count: String(written) } } },
      });
      // The node's own requests always succeed.
      await api.heartbeats.get(nodes, '', 'n1');
      certificates.add(await pair());
      return certificates.size >= 3 ? true : undefined;
    });
    await until('the last change', () => (counts.at(-1) === String(written) ? true : undefined));
    // Each change arrives once and in order. Controllers change the node as well.
    for (let count = 1; count <= written; count += 1) assert.ok(counts.includes(String(count)), `change ${count}`);
    assert.deepEqual(
      revisions,
      revisions.toSorted((a, b) => a - b),
    );
    assert.equal(new Set(revisions).size, revisions.length);
    assert.equal(lists, 1);
    stop.abort(new Error('seen'));
    await watching;
    api.close();

    // The agent is stopped until its certificate has expired.
    const stopped = await readPair(options.certificateDirectory, 'kubelet-client');
    assert.ok(stopped);
    await until('the end of the certificate', () => (systemClock.now() > stopped.leaf.notAfterMs ? true : undefined));
    const again = await connectApi({ ...options, clock: systemClock });
    assert.ok(again);
    assert.equal((await again.client.get(nodes, '', 'n1')).metadata.name, 'n1');
    again.close();
  },
);

interface Answer {
  readonly status: number;
  readonly serial: string;
  readonly socket: TLSSocket;
}

function ask(port: number, agent: HttpsAgent | false): Promise<Answer> {
  return new Promise((resolve, reject) => {
    request({ host: '127.0.0.1', port, path: '/healthz', rejectUnauthorized: false, agent }, (response) => {
      const socket = response.socket as TLSSocket;
      const serial = socket.getPeerCertificate().serialNumber;
      response.resume();
      response.on('end', () => resolve({ status: response.statusCode ?? 0, serial, socket }));
    })
      .on('error', reject)
      .end();
  });
}

test(
  'serving certificates of seconds are asked for, approved and renewed; open connections stay',
  { timeout: 120_000 },
  async (t) => {
    const { plane, directory, flags, signal } = await joining(t, SHORT_LIFE_MS);
    const approve = async (): Promise<void> => {
      for (const csr of (await plane.client.list(certificateSigningRequests)).items) {
        const { spec, status } = csr as { spec?: { signerName?: string }; status?: { conditions?: unknown } };
        if (spec?.signerName !== 'kubernetes.io/kubelet-serving' || status?.conditions !== undefined) continue;
        const condition = { type: 'Approved', status: 'True', reason: 'Test', message: 'as an administrator does' };
        await plane.client.update(
          certificateSigningRequests,
          { ...csr, status: { conditions: [condition] } },
          { subresource: 'approval' },
        );
      }
    };
    const agent = await startAgentInMemory(directory, { ...flags, rotateServerCertificates: true }, { signal });
    const kept = new HttpsAgent({ keepAlive: true, maxSockets: 1 });
    try {
      const { socket, status } = await ask(agent.port, kept);
      assert.equal(status, 200);
      const serials = new Set<string>();
      await until('a self-signed certificate and two of the cluster', async () => {
        await approve();
        serials.add((await ask(agent.port, false)).serial);
        const onOld = await ask(agent.port, kept);
        assert.deepEqual([onOld.status, onOld.socket === socket], [200, true]);
        return serials.size >= 3 ? true : undefined;
      });
    } finally {
      kept.destroy();
      await agent.close();
    }
  },
);
