/** The mirror pod of a static pod whose manifest was removed stays until its containers have stopped, as with the kubelet. */
import assert from 'node:assert/strict';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { keepAlive, systemClock } from '../../../api/machinery/clock.ts';
import { nodes, pods } from '../../../api/client/resources.ts';
import type { ContainerId } from '../../../agent/runtime/runtime-identity.ts';
import { startControlPlane } from '../../../controlplane/main.ts';
import { startAgentInMemory } from '../../fakes/agent-in-memory.ts';
import { createFakeHost, FakeRuntime } from '../../fakes/fake-runtime.ts';
import { until } from '../../until.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

const alive = keepAlive();
after(() => alive.cancel());

/** A runtime whose containers stop when the test allows it. */
class PatientRuntime extends FakeRuntime {
  readonly released = Promise.withResolvers<void>();
  stops = 0;

  override async stopContainer(id: ContainerId, gracePeriodSeconds: number): Promise<void> {
    this.stops += 1;
    await this.released.promise;
    return super.stopContainer(id, gracePeriodSeconds);
  }
}

/** The labels of the series that are counted: `config`, `lifecycle` and `static`. */
const KINDS = ['desired,sync,', 'desired,sync,true', 'orphan,terminating,true', 'runtime_only,sync,unknown'];

test('a mirror pod runs while its static pod terminates, which counts as an orphan', async () => {
  const directory = temporaryFolder();
  const [kubeconfig, podManifestPath] = [join(directory, 'kubeconfig'), join(directory, 'manifests')];
  const plane = await startControlPlane({ memory: true });
  await writeFile(kubeconfig, plane.kubeconfig);
  await mkdir(podManifestPath);
  const runtime = new PatientRuntime(systemClock, createFakeHost(['shell:1']));
  const agent = await startAgentInMemory(directory, { kubeconfig, podManifestPath }, { runtime });
  const { client } = plane;
  const mirror = async (): Promise<readonly [uid: string | undefined, phase: string | undefined] | undefined> => {
    const found = await client.get(pods, 'default', 'a-n1').catch(() => undefined);
    return found && [found.metadata.uid, (found['status'] as { phase?: string } | undefined)?.phase];
  };
  const counts = (): readonly (string | undefined)[] =>
    KINDS.map((kind) => {
      const [config, lifecycle, isStatic] = kind.split(',');
      const series = `kubelet_working_pods{config="${config}",lifecycle="${lifecycle}",static="${isStatic}"} `;
      const line = agent.metrics
        .text()
        .split('\n')
        .find((each) => each.startsWith(series));
      return line?.slice(series.length);
    });
  const path = join(podManifestPath, 'a.yaml');
  try {
    await until('the node', () => client.get(nodes, '', 'n1').catch(() => undefined));
    await writeFile(
      path,
      'apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: "shell:1", imagePullPolicy: Never, command: [sleep, "1000"]}]}\n',
    );
    const running = await until('the mirror pod', async () => {
      const found = await mirror();
      return found?.[1] === 'Running' ? found : undefined;
    });
    assert.deepEqual(counts(), ['0', '1', '0', '0']);
    assert.match(agent.metrics.text(), /^kubelet_desired_pods\{static=""\} 0$/m);
    assert.match(agent.metrics.text(), /^kubelet_active_pods\{static="true"\} 1$/m);
    await rm(path);
    await until('the termination', () => runtime.stops > 0);
    // Housekeeping has run several times since then.
    await systemClock.sleep(5_000);
    assert.deepEqual(await mirror(), running);
    assert.deepEqual(counts(), ['0', '0', '1', '0']);
    runtime.released.resolve();
    await until('the end of the mirror pod', async () => (await mirror()) === undefined);
    await until('the end of the worker', () => counts().every((count) => count === '0'));
  } finally {
    runtime.released.resolve();
    await agent.close();
    await plane.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
});
