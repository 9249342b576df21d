/**
 * Housekeeping lists the runtime's pods while pods are added and deleted. A pod that was added in the meantime is no orphan.
 */
import assert from 'node:assert/strict';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { SandboxConfig } from '../../../agent/runtime/runtime.ts';
import type { ContainerId, SandboxId } from '../../../agent/runtime/runtime-identity.ts';
import { keepAlive, systemClock } from '../../../api/machinery/clock.ts';
import { startAgentInMemory } from '../../fakes/agent-in-memory.ts';
import { createFakeHost, FakeRuntime } from '../../fakes/fake-runtime.ts';
import { until } from '../../until.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

const alive = keepAlive();
after(() => alive.cancel());

/** A runtime whose lists of all pods wait while `held` is set. Reads of one pod do not wait. */
class SlowRuntime extends FakeRuntime {
  held: Promise<void> | undefined;
  waiting = 0;
  readonly stopped: string[] = [];
  lastSandbox: SandboxConfig | undefined;

  override runSandbox(config: SandboxConfig): Promise<SandboxId> {
    this.lastSandbox = config;
    return super.runSandbox(config);
  }

  override async listSandboxes(filter: { readonly podUid?: string } = {}): ReturnType<FakeRuntime['listSandboxes']> {
    if (filter.podUid === undefined && this.held !== undefined) {
      this.waiting++;
      await this.held;
    }
    return super.listSandboxes(filter);
  }

  override stopContainer(id: ContainerId, gracePeriodSeconds: number): Promise<void> {
    this.stopped.push(this.host.containers.get(id)?.status.labels['io.kubernetes.pod.name'] ?? '');
    return super.stopContainer(id, gracePeriodSeconds);
  }

  /** Whether the pod has a running container. */
  runs(pod: string): boolean {
    return [...this.host.containers.values()].some(
      ({ status }) => status.state === 'running' && status.labels['io.kubernetes.pod.name'] === pod,
    );
  }
}

test('a pod that appears during housekeeping is not terminated as an orphan; an undesired one is', async () => {
  const directory = temporaryFolder();
  const podManifestPath = join(directory, 'manifests');
  await mkdir(podManifestPath);
  const manifest = (name: string): string => join(podManifestPath, `${name}.yaml`);
  const put = (name: string): Promise<void> =>
    writeFile(
      manifest(name),
      `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}}\nspec: {containers: [{name: c, image: "shell:1", imagePullPolicy: Never, command: [sleep, "1000"]}]}\n`,
    );
  const runtime = new SlowRuntime(systemClock, createFakeHost(['shell:1']));
  const agent = await startAgentInMemory(directory, { podManifestPath }, { runtime });
  const gate = Promise.withResolvers<void>();
  try {
    await put('first');
    await until('the first pod', () => runtime.runs('first-n1'));
    runtime.held = gate.promise;
    // Housekeeping lists the running pods after a pod has terminated.
    await rm(manifest('first'));
    await until(
      'the end of the first pod, and a list of the running pods',
      () => !runtime.runs('first-n1') && runtime.waiting > 0,
    );
    await put('second');
    await until('the second pod', () => runtime.runs('second-n1'));
    const stray = { uid: 'stray', name: 'stray', namespace: 'default' };
    assert.ok(runtime.lastSandbox);
    await runtime.runSandbox({ ...runtime.lastSandbox, pod: { ...runtime.lastSandbox.pod, ...stray } });
    runtime.held = undefined;
    gate.resolve();
    await until('the end of the stray pod', () =>
      [...runtime.host.sandboxes.values()].every(({ pod, state }) => pod.uid !== 'stray' || state !== 'ready'),
    );
    assert.deepEqual(runtime.stopped, ['first-n1']);
    assert.ok(runtime.runs('second-n1'));
  } finally {
    gate.resolve();
    await agent.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
});
