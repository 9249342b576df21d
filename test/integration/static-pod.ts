/**
 * Tests the whole agent without an API server on a real container runtime: a static pod from its manifest to running, over
 * restarts of the agent, to its termination.
 */
import assert from 'node:assert/strict';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { type Agent, type AgentOptions, startAgent } from '../../agent/main.ts';
import type { Runtime } from '../../agent/runtime/runtime.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { unmountBelow } from '../mounts.ts';

export interface RuntimeForAgent {
  /** Opens a client of the runtime that the agent uses. */
  readonly open: (agent: { readonly nodeName: string; readonly rootDir: string }) => Promise<Runtime>;
  readonly flags: NonNullable<AgentOptions['flags']>;
  readonly images: string;
}

const manifest = (image: string): string => `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: w, emptyDir: {}}]
  initContainers:
  - {name: prep, image: "${image}", command: [sh, -c, "echo hi > /w/index.html"], volumeMounts: [{name: w, mountPath: /w}]}
  containers:
  - name: httpd
    image: "${image}"
    command: [sh, -c, "echo serving $POD; exec httpd -f -p 8080 -h /w"]
    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [{name: w, mountPath: /w}]
    readinessProbe: {exec: {command: [test, -f, /w/index.html]}, periodSeconds: 1}
  - {name: crash, image: "${image}", command: [sh, -c, "echo why > /dev/termination-log; exit 3"]}
`;

/** Runs the test on a runtime, and removes the pod and its directories afterwards. */
export async function runStaticPod(on: RuntimeForAgent): Promise<void> {
  const directory = temporaryFolder();
  const rootDir = join(directory, 'root');
  const nodeName = `agent-${process.pid}`;
  const manifests = join(directory, 'manifests');
  await mkdir(manifests);
  const runtime = await on.open({ nodeName, rootDir });
  const references = await runtime.loadImages(on.images);
  const podInfraContainerImage = references.find((reference) => reference.includes('pause')) ?? '';
  const image = references.find((reference) => !reference.includes('pause')) ?? '';
  const start = (): Promise<Agent> =>
    startAgent({
      flags: {
        ...on.flags,
        hostnameOverride: nodeName,
        rootDir,
        podLogsDir: join(directory, 'logs'),
        podInfraContainerImage,
        podManifestPath: manifests,
        port: 0,
        readOnlyPort: 0,
        healthzPort: 0,
      },
    });
  let agent = await start();
  try {
    const status = (): ReturnType<typeof agent.pods.podByName> => agent.pods.podByName('default', `web-${nodeName}`);
    const container = (
      name: string,
    ):
      | NonNullable<NonNullable<NonNullable<ReturnType<typeof status>>['status']>['containerStatuses']>[number]
      | undefined => status()?.status?.containerStatuses?.find((entry) => entry.name === name);
    await writeFile(join(manifests, 'web.yaml'), manifest(image));
    await until('readiness', () => container('httpd')?.ready === true);
    const crashed = await until(
      'the back-off',
      () => container('crash')?.state?.waiting?.reason === 'CrashLoopBackOff' && container('crash'),
    );
    assert.match(crashed.state?.waiting?.message ?? '', /^back-off \d+s restarting failed container=crash pod=web-/);
    assert.deepEqual([crashed.lastState?.terminated?.exitCode, crashed.lastState?.terminated?.message], [3, 'why\n']);
    const out = new PassThrough();
    await agent.pods.logs(
      { namespace: 'default', pod: `web-${nodeName}`, container: 'httpd' },
      { follow: false, previous: false, timestamps: false },
      out,
      new AbortController().signal,
    );
    assert.equal(String(out.read()), `serving web-${nodeName}\n`);
    const id = container('httpd')?.containerID;

    await agent.close();
    assert.equal(
      (await runtime.listContainers()).some((entry) => entry.state === 'running'),
      true,
    );
    agent = await start();
    await until('readiness after a restart', () => container('httpd')?.ready === true);
    assert.equal(container('httpd')?.containerID, id);
    assert.equal(container('httpd')?.restartCount, 0);

    await rm(join(manifests, 'web.yaml'));
    await until(
      'the end of everything',
      async () => (await runtime.listContainers()).length === 0 && (await runtime.listSandboxes()).length === 0,
    );
    await assert.rejects(readFile(join(rootDir, 'pods')), { code: /EISDIR|ENOENT/ });
  } finally {
    await agent.close();
    for (const sandbox of await runtime.listSandboxes()) {
      await runtime.stopSandbox(sandbox.id);
      await runtime.removeSandbox(sandbox.id);
    }
    await runtime.close();
    unmountBelow(directory);
    await rm(directory, { recursive: true, force: true });
  }
}
