/**
 * A static pod whose manifest is removed and immediately recreated is started again, as by the kubelet. Its restart counts
 * include the previous containers.
 */
import assert from 'node:assert/strict';
import { unlinkSync, writeFileSync } from 'node:fs';
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

test('a manifest that is removed and created again restarts its pod once', async () => {
  const directory = temporaryFolder();
  const podManifestPath = join(directory, 'manifests');
  await mkdir(podManifestPath);
  const path = join(podManifestPath, 'a.yaml');
  const text =
    'apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "shell:1", imagePullPolicy: Never, command: [sleep, "1000"]}]}\n';
  const runtime = new FakeRuntime(systemClock, createFakeHost(['shell:1']));
  const agent = await startAgentInMemory(directory, { podManifestPath }, { runtime });
  const attempts = (): readonly number[] =>
    [...runtime.host.containers.values()]
      .filter(({ status }) => status.state === 'running')
      .map(({ status }) => status.attempt);
  try {
    writeFileSync(path, text);
    await until('the pod', () => attempts().length === 1);
    assert.deepEqual(attempts(), [0]);
    unlinkSync(path);
    writeFileSync(path, text);
    await until('the restart of the container', () => attempts()[0] === 1);
    const shown = (): number | undefined =>
      agent.pods.pods().find(({ metadata }) => metadata.name === 'a-n1')?.status?.containerStatuses?.[0]?.restartCount;
    await until('the status with the restart', () => shown() === 1);
    assert.deepEqual(attempts(), [1]);
  } finally {
    await agent.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
});
