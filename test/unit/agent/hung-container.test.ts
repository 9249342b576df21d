/**
 * Tests the whole agent on a runtime in memory whose calls for one pod never return. Only that pod waits, and the node stays
 * ready.
 */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, afterEach, beforeEach, test } from 'node:test';
import type { Agent } from '../../../agent/main.ts';
import type { ContainerConfig, SandboxConfig } from '../../../agent/runtime/runtime.ts';
import type { ContainerId, SandboxId } from '../../../agent/runtime/runtime-identity.ts';
import { keepAlive, systemClock } from '../../../api/machinery/clock.ts';
import { startAgentInMemory } from '../../fakes/agent-in-memory.ts';
import { createFakeHost, FakeRuntime } from '../../fakes/fake-runtime.ts';
import { until } from '../../until.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

const alive = keepAlive();
after(() => alive.cancel());

type Hang = 'create' | 'stop' | 'list';

/** Calls of one kind for a pod whose name begins with `hung` never return. */
class HangingRuntime extends FakeRuntime {
  hangs: Hang | undefined;

  override createContainer(
    sandbox: SandboxId,
    sandboxConfig: SandboxConfig,
    config: ContainerConfig,
  ): Promise<ContainerId> {
    return this.hangs === 'create' && sandboxConfig.pod.name.startsWith('hung')
      ? new Promise(() => undefined)
      : super.createContainer(sandbox, sandboxConfig, config);
  }

  override stopContainer(id: ContainerId, gracePeriodSeconds: number): Promise<void> {
    const name = this.host.containers.get(id)?.status.labels['io.kubernetes.pod.name'] ?? '';
    return this.hangs === 'stop' && name.startsWith('hung')
      ? new Promise(() => undefined)
      : super.stopContainer(id, gracePeriodSeconds);
  }

  override listContainers(filter: { readonly podUid?: string } = {}): ReturnType<FakeRuntime['listContainers']> {
    const isHung = [...this.host.sandboxes.values()].some(
      ({ pod }) => pod.uid === filter.podUid && pod.name.startsWith('hung'),
    );
    return this.hangs === 'list' && isHung ? new Promise(() => undefined) : super.listContainers(filter);
  }
}

let directory = '';
let agent: Agent;
let runtime: HangingRuntime;
const manifests = (): string => join(directory, 'manifests');
const put = (name: string): Promise<void> =>
  writeFile(
    join(manifests(), `${name}.yaml`),
    `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}}\nspec: {containers: [{name: c, image: "shell:1", imagePullPolicy: Never, command: [sleep, "1000"]}]}\n`,
  );
const phase = (name: string): string | undefined => agent.pods.podByName('default', `${name}-n1`)?.status?.phase;

beforeEach(async () => {
  directory = temporaryFolder();
  await mkdir(manifests());
  runtime = new HangingRuntime(systemClock, createFakeHost(['shell:1']));
  agent = await startAgentInMemory(directory, { podManifestPath: manifests() }, { runtime });
});
afterEach(() => agent.close());

for (const hangs of ['create', 'stop', 'list'] as const) {
  test(`a ${hangs} that hangs delays its own pod only`, async () => {
    if (hangs !== 'create') {
      await put('hung');
      await until('the pod', () => phase('hung') === 'Running');
    }
    runtime.hangs = hangs;
    if (hangs === 'create') {
      await put('hung');
      await until('the sandbox of the pod that hangs', () =>
        [...runtime.host.sandboxes.values()].some(({ pod }) => pod.name === 'hung-n1'),
      );
    } else if (hangs === 'stop') await rm(join(manifests(), 'hung.yaml'));
    await put('healthy');
    await until('the other pod', () => phase('healthy') === 'Running');
    await until(
      'a healthy node',
      () => agent.status.runtimeErrors().length === 0 && agent.pods.syncLoopHealth() === '',
    );
    // The other pod terminates normally.
    await rm(join(manifests(), 'healthy.yaml'));
    await until(
      'its termination',
      () =>
        ![...runtime.host.containers.values()].some(
          ({ status }) => status.state === 'running' && status.labels['io.kubernetes.pod.name'] === 'healthy-n1',
        ),
    );
  });
}
