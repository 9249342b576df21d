/** Replaces the CA of a cluster while a node and its clients run: `orchlet certs rotate-ca`, stage by stage. */
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { copyFileSync, existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import type { Agent } from '../../agent/main.ts';
import { type Clock, keepAlive, systemClock } from '../../api/machinery/clock.ts';
import { newKubeconfig, writeKubeconfig } from '../../api/client/kubeconfig.ts';
import { startAgentInMemory } from '../fakes/agent-in-memory.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { freePort } from './free-port.ts';
import { unmountBelow } from '../mounts.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');
const TOKEN = 'abcdef.0123456789abcdef';

/** How often an agent reads the CA bundle of its cluster. */
const CHECK_MS = 600_000;

/** Periodic work runs every second instead of every few minutes. Timeouts stay as they are. */
const hurried: Clock = {
  ...systemClock,
  after: (delayMs, callback) => systemClock.after(delayMs === CHECK_MS ? 1000 : delayMs, callback),
  sleep: (delayMs, signal) => systemClock.sleep(Math.min(delayMs, 1000), signal),
};

const certificatesOf = (pem: string): X509Certificate[] =>
  (pem.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g) ?? []).map(
    (block) => new X509Certificate(block),
  );

describe("the cluster's CA", { timeout: 200_000 }, () => {
  const alive = keepAlive();
  const directory = temporaryFolder();
  const kubeconfig = join(directory, 'kubeconfig');
  let plane: ControlPlaneProcess;
  let agent: Agent | undefined;

  const orchlet = (...args: readonly string[]): { readonly code: number | null; readonly output: string } => {
    const done = spawnSync(ORCHLET, [...args, '--data-dir', plane.directory], { encoding: 'utf8', timeout: 60_000 });
    return { code: done.status, output: `${done.stdout}${done.stderr}` };
  };
  const stage = async (name: string): Promise<void> => {
    const done = orchlet('certs', 'rotate-ca', '--stage', name);
    assert.equal(done.code, 0, done.output);
    await plane.stop();
    await plane.launch();
  };
  const trusted = (): X509Certificate[] => certificatesOf(readFileSync(join(plane.directory, 'pki', 'ca.crt'), 'utf8'));
  const kubectl = (...args: readonly string[]) => plane.kubectl(args);
  /** Runs kubectl with a kubeconfig from before the rotation. */
  const asBefore = (file: string) => plane.kubectl(['--kubeconfig', join(directory, file), 'get', 'namespaces']);
  const trustedByAgent = (): number => {
    const data = /certificate-authority-data: "?([^\s"]+)/.exec(readFileSync(kubeconfig, 'utf8'))?.[1] ?? '';
    return certificatesOf(Buffer.from(data, 'base64').toString()).length;
  };
  const renewed = (): string =>
    kubectl('get', 'lease', '-n', 'kube-node-lease', 'n1', '-o', 'jsonpath={.spec.renewTime}').stdout;
  /** Waits until the node renews its lease and responds to the API server. */
  const nodeGoesOn = async (): Promise<void> => {
    const before = renewed();
    await until('a renewed lease', () => {
      const now = renewed();
      return now !== '' && now !== before ? true : undefined;
    });
    // The call must not block, because the agent responds in this process.
    const env = { ...process.env, KUBECONFIG: plane.kubeconfig };
    await until('an answer of the agent', async () => {
      const path = '/api/v1/nodes/n1/proxy/healthz';
      const { stdout } = await promisify(execFile)('kubectl', ['get', '--raw', path], { env, timeout: 10_000 });
      return stdout === 'ok' ? true : undefined;
    });
  };

  before(async () => {
    plane = await ControlPlaneProcess.start(['--loopback-targets', 'node/n1']);
    const made = orchlet('token', 'create', TOKEN);
    assert.equal(made.code, 0, made.output);
    const clientCaFile = join(directory, 'ca.crt');
    copyFileSync(join(plane.directory, 'pki', 'ca.crt'), clientCaFile);
    const bootstrapKubeconfig = join(directory, 'bootstrap.kubeconfig');
    await writeKubeconfig(
      bootstrapKubeconfig,
      newKubeconfig({
        cluster: 'c',
        server: `https://127.0.0.1:${plane.port}`,
        ca: readFileSync(clientCaFile, 'utf8'),
        user: 'u',
        credentials: { token: TOKEN },
      }),
    );
    agent = await startAgentInMemory(
      directory,
      {
        kubeconfig,
        bootstrapKubeconfig,
        clientCaFile,
        anonymousAuth: false,
        rotateServerCertificates: true,
        nodeIp: ['127.0.0.1'],
        port: await freePort(),
      },
      { clock: hurried },
    );
  });
  after(async () => {
    await agent?.close();
    await plane?.remove();
    unmountBelow(directory);
    rmSync(directory, { recursive: true, force: true });
    alive.cancel();
  });

  test('signs the serving certificate of a node after orchlet certs approve', async () => {
    // The node is on the host of the API server, so its address is also that of the API server.
    const request = await until('a request of the node', () => {
      const { output } = orchlet('certs', 'approve');
      return /(csr-\S+) is not approved: "\S+" names the API server/.exec(output)?.[1];
    });
    const { code, output } = orchlet('certs', 'approve', request);
    assert.equal(code, 0, output);
    assert.match(output, /^approved csr-\S+ of system:node:n1$/m);
    await until('the certificate', () =>
      existsSync(join(directory, 'root', 'pki', 'kubelet-server-current.pem')) ? true : undefined,
    );
    assert.match(orchlet('certs', 'approve').output, /No request waits for approval/);
  });

  test('gets a successor that is trusted everywhere before it signs anything', async () => {
    const [old] = trusted();
    copyFileSync(plane.kubeconfig, join(directory, 'first.kubeconfig'));
    await stage('prepare');
    assert.equal(trusted().length, 2);
    assert.equal(trusted()[0]?.fingerprint, old?.fingerprint);
    assert.equal(asBefore('first.kubeconfig').code, 0);
    assert.match(orchlet('certs', 'rotate-ca', '--stage', 'finish').output, /run --stage switch first/);
    await until('the agent trusts both', () => (trustedByAgent() === 2 ? true : undefined));
    await nodeGoesOn();
  });

  test('stops signing after the switch, and its certificates are valid during the overlap', async () => {
    copyFileSync(plane.kubeconfig, join(directory, 'overlap.kubeconfig'));
    const [former, next] = trusted();
    await stage('switch');
    assert.deepEqual(
      trusted().map(({ fingerprint }) => fingerprint),
      [next?.fingerprint, former?.fingerprint],
    );
    assert.equal(asBefore('overlap.kubeconfig').code, 0);
    await until('a certificate of the new CA for the node', () => {
      const pem = readFileSync(join(directory, 'root', 'pki', 'kubelet-client-current.pem'), 'utf8');
      const [leaf] = certificatesOf(pem);
      return leaf !== undefined && next !== undefined && leaf.verify(next.publicKey) ? true : undefined;
    });
    await nodeGoesOn();
  });

  test('is no longer trusted at the end, and everything works with the new CA', async () => {
    await stage('finish');
    assert.equal(trusted().length, 1);
    assert.notEqual(asBefore('overlap.kubeconfig').code, 0);
    await nodeGoesOn();
    await until('the agent trusts one', () => (trustedByAgent() === 1 ? true : undefined));
    assert.match(kubectl('get', 'configmap', 'kube-root-ca.crt', '-o', 'yaml').stdout, /BEGIN CERTIFICATE/);
  });
});
