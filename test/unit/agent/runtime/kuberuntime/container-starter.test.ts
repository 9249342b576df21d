/** Tests the postStart hook of a container that the starter has started, and what a failed start reports. */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { Container, Pod } from '../../../../../agent/base/model/pod.ts';
import { ContainerStarter, type Session } from '../../../../../agent/runtime/kuberuntime/container-starter.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const container = { name: 'c', image: 'i', lifecycle: { postStart: { exec: { command: ['hook'] } } } } as Container;
const pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u' }, spec: { containers: [container] } } as unknown as Pod;

interface Outcome {
  /** The reasons of the events. */
  readonly events: readonly string[];
  readonly messages: readonly string[];
  readonly failed: Awaited<ReturnType<ContainerStarter['start']>>;
}

/** Starts the container, whose hook calls `during` and fails. */
async function outcomeOf(
  during: (abort: AbortController) => void,
  faults: object = {},
  directory = temporaryFolder(),
): Promise<Outcome> {
  const events: string[] = [];
  const messages: string[] = [];
  const abort = new AbortController();
  const starter = new ContainerStarter({
    runtime: {
      createContainer: () => Promise.resolve('id'),
      startContainer: () => Promise.resolve(),
      stopContainer: () => Promise.resolve(),
      execSync: () => {
        during(abort);
        return Promise.reject(new Error('the hook failed'));
      },
      ...faults,
    },
    clock: new FakeClock(),
    logger: silentLogger,
    events: {
      event: (_pod: Pod, _type: string, reason: string, message: string) => {
        events.push(reason);
        messages.push(message);
      },
    },
    images: { ensure: () => Promise.resolve({ id: 'image' }) },
    containerLogsDirectory: undefined,
    config: {
      settings: {
        podLogsDirectory: directory,
        rootDirectory: directory,
        dns: { clusterDns: [], clusterDomain: '', resolvConf: '' },
        security: { seccompDirectory: directory, seccompDefault: false },
        resources: () => ({}),
      },
      services: { list: () => [] },
      objects: {},
      volumes: {
        containerMounts: () => Promise.resolve({ mounts: [], devices: [] }),
        extraSupplementalGroups: () => [],
      },
      userNamespaces: { mapping: () => Promise.resolve(undefined) },
      hostIps: () => [],
      allocatable: () => ({}),
    },
  } as unknown as ConstructorParameters<typeof ContainerStarter>[0]);
  const session = {
    ...{ pod, sandboxId: 's', ips: ['10.1.0.2'], signal: abort.signal },
    status: { sandboxes: [], containers: [], ips: [] },
    sandbox: { logDirectory: directory },
  } as unknown as Session;
  const failed = await starter.start(session, container, 'regular').catch(() => undefined);
  return { events, messages, failed };
}

const eventsOf = async (during: (abort: AbortController) => void): Promise<readonly string[]> =>
  (await outcomeOf(during)).events;

describe('a postStart hook', () => {
  it('that fails causes an event, and ends the container', async () =>
    assert.deepEqual(await eventsOf(() => undefined), ['Created', 'Started', 'FailedPostStartHook', 'Killing']));
  it('has not failed if its pod terminates', async () =>
    assert.deepEqual(await eventsOf((abort) => abort.abort(new Error('the pod is deleted'))), ['Created', 'Started']));
});

describe('a failed start', () => {
  it('is one event for all attempts, because its message has the name of the container instead of its id', async () => {
    const { failed, messages } = await outcomeOf(() => undefined, {
      createContainer: () => Promise.resolve('0f3a'),
      startContainer: () => Promise.reject(new Error('cannot mount task/0f3a/rootfs of 0f3a')),
    });
    assert.equal(messages.at(-1), 'Error: cannot mount task/c/rootfs of c');
    assert.equal(failed?.message, 'cannot mount task/0f3a/rootfs of 0f3a');
  });

  it('says whether the runtime has created the container', async () => {
    const fault = (): Promise<never> => Promise.reject(new Error('no such command'));
    const { failed } = await outcomeOf(() => undefined, { startContainer: fault });
    assert.equal(failed?.reason, 'RunContainerError');
    const { failed: earlier } = await outcomeOf(() => undefined, { createContainer: fault });
    assert.equal(earlier?.reason, 'CreateContainerError');
  });
});

describe('the log of a container', () => {
  it('gets no folder where a link takes the place of that of its pod, and the runtime is not called', async () => {
    const directory = temporaryFolder();
    mkdirSync(join(directory, 'host'));
    symlinkSync(join(directory, 'host'), join(directory, 'ns_p_u'));
    const { failed, events } = await outcomeOf(() => undefined, {}, directory);
    assert.equal(failed?.reason, 'RunContainerError');
    assert.deepEqual([events, readdirSync(join(directory, 'host'))], [[], []]);
  });
});
