/** A static pod that the node refuses after a restart of the agent does not go on running, as with the kubelet. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { keepAlive, systemClock } from '../../../api/machinery/clock.ts';
import { startAgentInMemory } from '../../fakes/agent-in-memory.ts';
import { createFakeHost, FakeRuntime } from '../../fakes/fake-runtime.ts';
import { until } from '../../until.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

const alive = keepAlive();
after(() => alive.cancel());

test('a static pod that is refused after a restart is terminated, and its status says why', async () => {
  const directory = temporaryFolder();
  const podManifestPath = join(directory, 'manifests');
  await mkdir(podManifestPath);
  writeFileSync(
    join(podManifestPath, 'a.yaml'),
    'apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {terminationGracePeriodSeconds: 1, nodeSelector: {disk: fast}, containers: [{name: c, image: "shell:1", imagePullPolicy: Never, command: [sleep, "1000"]}]}\n',
  );
  const host = createFakeHost(['shell:1']);
  const start = (nodeLabels: Record<string, string>) =>
    startAgentInMemory(directory, { podManifestPath, nodeLabels }, { runtime: new FakeRuntime(systemClock, host) });
  const runs = (): boolean => [...host.containers.values()].some(({ status }) => status.state === 'running');
  let agent = await start({ disk: 'fast' });
  try {
    await until('the pod', runs);
    await agent.close();
    assert.ok(runs());
    agent = await start({});
    await until('the end of the static pod', () => !runs());
    const shown = () => agent.pods.pods().find(({ metadata }) => metadata.name === 'a-n1')?.status;
    const status = await until('the terminated container in the status', () =>
      shown()?.containerStatuses?.[0]?.state?.terminated === undefined ? undefined : shown(),
    );
    const { phase, reason, message } = status;
    assert.deepEqual(
      { phase, reason, message },
      {
        phase: 'Failed',
        reason: 'NodeAffinity',
        message: "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
      },
    );
  } finally {
    await agent.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
});
