/** The agent's client certificate: asked for with a bootstrap token, renewed before it expires, and used without a restart. */
import assert from 'node:assert/strict';
import { mkdtemp, readlink, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { connectApi, type ApiClientOptions } from '../../agent/assembly/api-clients.ts';
import { effectiveOptions } from '../../agent/config/effective-options.ts';
import type { AgentFlags } from '../../agent/options.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { type Clock, systemClock } from '../../api/machinery/clock.ts';
import { newKubeconfig, writeKubeconfig } from '../../api/machinery/kubeconfig.ts';
import { nodes, secrets } from '../../api/machinery/resources.ts';
import { startControlPlane } from '../../controlplane/main.ts';
import { until } from './running-cluster.ts';

const DAY_MS = 86_400_000;

/** The system's clock, so many milliseconds ahead. */
function ahead(ms: number): Clock {
  return { ...systemClock, now: () => systemClock.now() + ms };
}

test(
  'the client certificate is renewed before it expires, and the clients go on with the new one',
  { timeout: 60_000 },
  async () => {
    const directory = await mkdtemp(join(tmpdir(), 'agent-certificates-'));
    const plane = await startControlPlane({ memory: true });
    const stop = new AbortController();
    try {
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
      const values: Partial<AgentFlags> = {
        bootstrapKubeconfig,
        kubeconfig: join(directory, 'kubeconfig'),
        rootDir: directory,
      };
      const { flags } = await effectiveOptions({ values, given: new Set(Object.keys(values)) });
      const options: Omit<ApiClientOptions, 'clock'> = {
        flags,
        logger: silentLogger,
        nodeName: 'n1',
        version: 'v1',
        certificateDirectory: flags.certDir,
        random: () => 0.5,
        signal: stop.signal,
      };
      const pair = (): Promise<string> => readlink(join(flags.certDir, 'kubelet-client-current.pem'));

      const first = await connectApi({ ...options, clock: systemClock });
      assert.ok(first);
      const before = await pair();
      await first.client.create(nodes, '', { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1' } });
      assert.equal(await pair(), before, 'a fresh certificate is left alone');
      first.close();

      // So near to its end that it is due; not over, so that no bootstrap is needed.
      const second = await connectApi({ ...options, clock: ahead(350 * DAY_MS) });
      assert.ok(second);
      await until('the new certificate', async () => ((await pair()) === before ? undefined : true), 30_000);
      for (const client of [second.client, second.events, second.heartbeats])
        assert.equal((await client.get(nodes, '', 'n1')).metadata.name, 'n1');
      second.close();
    } finally {
      stop.abort(new Error('the test is over'));
      await plane.close();
      await rm(directory, { recursive: true, force: true });
    }
  },
);
