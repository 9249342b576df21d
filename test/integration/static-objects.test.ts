/** Tests static pods with ConfigMaps and Secrets that lie beside them, on an agent without an API server. */
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Runtime } from '../../agent/runtime/runtime.ts';
import { AgentProcess } from './agent-process.ts';
import { skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

for (const [on, skip] of [
  ['docker', skipWithoutDocker],
  ['containerd', skipWithoutContainerd],
] as const)
  describe(`static pods with objects beside them, on ${on}`, { skip, timeout: 120_000 }, () => {
    const folder = join(temporaryFolder(), 'manifests');
    let agent: AgentProcess;
    let runtime: Runtime;

    const put = (name: string, object: object, mode = 0o600): void =>
      writeFileSync(join(folder, name), JSON.stringify({ apiVersion: 'v1', ...object }), { mode });
    const settings = (value: string): void =>
      put('settings.json', { kind: 'ConfigMap', metadata: { name: 'settings' }, data: { key: value } });
    /** Runs a command in the container of the pod; `undefined` while there is none. */
    async function inPod(command: string): Promise<string | undefined> {
      // Other tests may have pods on the same runtime.
      const name = `web-${agent.nodeName}`;
      const running = (await runtime.listContainers()).find(
        ({ state, labels }) => state === 'running' && labels['io.kubernetes.pod.name'] === name,
      );
      if (running === undefined) return undefined;
      const { stdout } = await runtime.execSync(running.id, ['sh', '-c', command], { timeoutMs: 10_000 });
      return stdout.toString();
    }

    before(async () => {
      mkdirSync(folder);
      agent = await AgentProcess.prepare(on, ['--pod-manifest-path', folder, '--sync-frequency', '1s']);
      agent.launch();
      runtime = await agent.openRuntime();
    });
    after(async () => {
      await runtime?.close();
      await agent?.remove();
      rmSync(join(folder, '..'), { recursive: true, force: true });
    });

    test('they get values in variables and files once the objects are there', async () => {
      put('pod.json', {
        kind: 'Pod',
        metadata: { name: 'web' },
        spec: {
          terminationGracePeriodSeconds: 0,
          containers: [
            {
              name: 'c',
              image: DEMO_IMAGE,
              command: ['sleep', '1000'],
              env: [{ name: 'PASSWORD', valueFrom: { secretKeyRef: { name: 'login', key: 'password' } } }],
              volumeMounts: [
                { name: 'settings', mountPath: '/settings' },
                { name: 'login', mountPath: '/login' },
              ],
            },
          ],
          volumes: [
            { name: 'settings', configMap: { name: 'settings' } },
            { name: 'login', secret: { secretName: 'login' } },
          ],
        },
      });
      settings('one');
      put('login.json', { kind: 'Secret', metadata: { name: 'login' }, stringData: { password: 'hidden' } });
      const command = 'echo $PASSWORD $(cat /settings/key) $(cat /login/password)';
      assert.equal(await until('the pod', () => inPod(command), 60_000), 'hidden one hidden\n');
    });

    test('files of their volumes follow a changed file', async () => {
      settings('two');
      await until('the new value', async () => (await inPod('cat /settings/key')) === 'two');
    });
  });
