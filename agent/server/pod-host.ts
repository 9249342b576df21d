/**
 * Implements the operations on pods for the agent's server: the list of pods, logs, and the ids of containers and sandboxes to
 * connect to.
 */
import { existsSync } from 'node:fs';
import type { Clock } from '../../api/machinery/clock.ts';
import { newBadRequest, newStatusError } from '../../api/meta/status-error.ts';
import type { ContainerStatusJson, Pod } from '../base/model/pod.ts';
import type { PodTable } from '../pods/pod-table.ts';
import { allContainers } from '../runtime/kuberuntime/pod-containers.ts';
import { runningPods } from '../runtime/kuberuntime/running-pods.ts';
import { findContainer, readRuntimeStatus, type RuntimePodStatus } from '../runtime/kuberuntime/runtime-status.ts';
import { chooseLog } from '../runtime/logs/choose-log.ts';
import { LogError } from '../runtime/logs/log-entry.ts';
import { type LogOptions, readLog } from '../runtime/logs/log-reader.ts';
import type { Pleg } from '../runtime/pleg/pleg.ts';
import { type Runtime, type StreamIo, RuntimeError } from '../runtime/runtime.ts';
import type { ContainerId, SandboxId } from '../runtime/runtime-identity.ts';

/**
 * The operations on pods that the agent's server needs. Errors of a request are `StatusError`s with the kubelet's messages, as
 * 404 for an unknown pod or container and 400 for a container that waits to start. Errors of the runtime pass unchanged.
 */
export interface PodHost {
  pods(): readonly Pod[];
  /** Returns the pods that the runtime has, with name, namespace, uid and running containers. */
  runningPods(): Promise<readonly Pod[]>;
  podByName(namespace: string, name: string): Pod | undefined;
  /**
   * Writes the log to `out`. A log that is gone after its container has stopped, or that has an unknown format, is reported in
   * the text, because the response has begun. Rejects after any other error of reading, unless a running container has no log.
   */
  logs(of: LoggedContainer, options: LogOptions, out: NodeJS.WritableStream, signal: AbortSignal): Promise<void>;
  /**
   * Returns the id of a container that runs; `undefined` if the container does not exist or does not run. The uid of a static
   * pod may be that of its mirror pod. Throws a 404 for an unknown pod.
   */
  runningContainer(of: RequestedContainer): Promise<ContainerId | undefined>;
  /**
   * Returns the id of the pod's sandbox that is ready. An empty uid stands for whatever pod has the name. Throws a 404 for an
   * unknown pod, and a 500 for a pod without a sandbox that is ready.
   */
  resolveSandbox(namespace: string, podName: string, uid: string): Promise<SandboxId>;
  /** Resolves to the exit code of the command. */
  exec(id: ContainerId, command: readonly string[], io: StreamIo): Promise<number>;
  attach(id: ContainerId, io: StreamIo): Promise<void>;
  portForward(id: SandboxId, port: number, signal: AbortSignal): Promise<NodeJS.ReadWriteStream>;
  /** Returns the problem of the PLEG, on which the sync loop depends, or an empty string, for `/healthz/syncloop`. */
  syncLoopHealth(): string;
  /** Returns the problem of the socket where device plugins register, or an empty string, for `/healthz/device-plugin`. */
  devicePluginHealth(): string;
}

/** The container of a request, by names. An empty uid stands for whatever pod has the name. */
export interface RequestedContainer {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  readonly container: string;
}

/** The container whose log is read, by names. */
interface LoggedContainer {
  readonly namespace: string;
  readonly pod: string;
  readonly container: string;
}

interface PodHostOptions {
  readonly runtime: Runtime;
  readonly table: PodTable;
  readonly pleg: Pick<Pleg, 'health'>;
  readonly clock: Clock;
  /** Where device plugins register. Absent without the feature gate DevicePlugins. */
  readonly devicePluginSocket: string | undefined;
}

/** Creates the operations on pods that the server offers. */
export function createPodHost({ runtime, table, pleg, clock, devicePluginSocket }: PodHostOptions): PodHost {
  const runtimeStatus = ({ metadata: { uid, name, namespace } }: Pod): Promise<RuntimePodStatus> =>
    readRuntimeStatus(runtime, { uid, name, namespace });
  const find = (namespace: string, name: string, uid: string): Pod => {
    const pod = uid === '' ? table.byName(namespace, name) : table.byUid(uid);
    if (pod === undefined || pod.metadata.name !== name || pod.metadata.namespace !== namespace)
      throw newStatusError(404, 'NotFound', 'pod does not exist');
    return pod;
  };
  return {
    pods: () => table.pods(),
    runningPods: () => runningPods(runtime),
    podByName: (namespace, name) => table.byName(namespace, name),
    async logs({ namespace, pod: podName, container }, options, out, signal) {
      const pod = table.byName(namespace, podName);
      if (pod === undefined) throw newStatusError(404, 'NotFound', `pod "${podName}" does not exist`);
      const containerID = loggedContainerId(pod, container, options);
      const { containers } = await runtimeStatus(pod);
      const chosen = containers.find(({ id }) => containerID.endsWith(`://${id}`));
      // Sends the header of the response before the first line, because a client also follows a container that is silent.
      out.write('');
      if (chosen === undefined) {
        // The runtime has removed the container. The response has begun, as with the kubelet.
        out.write(`unable to retrieve container logs for ${containerID}`);
        return;
      }
      const isRunning = async (): Promise<boolean> => {
        try {
          return (await runtime.containerStatus(chosen.id)).state === 'running';
        } catch (error) {
          // Containers keep running while the runtime does not respond.
          return !(error instanceof RuntimeError && error.code === 'not-found');
        }
      };
      try {
        await readLog(chosen.logPath, options, { out, signal }, { clock, isRunning });
      } catch (error) {
        // The response has begun, so the error becomes a part of its text, as with the kubelet.
        if (error instanceof LogError) out.write(error.message);
        else if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
        // The container has written nothing yet, or the file is gone.
        else if (chosen.state !== 'running') out.write(`unable to retrieve container logs for ${containerID}`);
      }
    },
    async runningContainer({ namespace, pod, uid, container }) {
      const found = findContainer(await runtimeStatus(find(namespace, pod, uid)), container);
      return found?.state === 'running' ? found.id : undefined;
    },
    async resolveSandbox(namespace, podName, uid) {
      const pod = find(namespace, podName, '');
      if (uid !== '' && pod.metadata.uid !== uid) throw newStatusError(404, 'NotFound', 'pod not found');
      const { sandboxes } = await runtimeStatus(pod);
      const ready = sandboxes.find(({ state }) => state === 'ready');
      if (ready === undefined) throw newStatusError(500, 'InternalError', `pod not found ("${podName}_${namespace}")`);
      return ready.id;
    },
    exec: (id, command, io) => runtime.exec(id, command, io),
    attach: (id, io) => runtime.attach(id, io),
    portForward: (id, port, signal) => runtime.portForward(id, port, signal),
    syncLoopHealth: () => pleg.health(),
    devicePluginHealth: () =>
      devicePluginSocket === undefined || existsSync(devicePluginSocket)
        ? ''
        : `device registration error: ${devicePluginSocket} is gone and no device plugins can register`,
  };
}

/** Returns the id of the container whose log is read. Throws the kubelet's errors if there is no such container or log. */
function loggedContainerId(pod: Pod, container: string, options: LogOptions): string {
  const { name } = pod.metadata;
  if (!allContainers(pod).some((entry) => entry.container.name === container))
    throw newStatusError(404, 'NotFound', `container "${container}" not found in pod "${name}"`);
  const chosen = chooseLog({ pod: name, container }, containerStatus(pod, container), options);
  if (chosen.kind === 'none') throw newBadRequest(chosen.problem);
  return chosen.containerID;
}

function containerStatus({ status }: Pod, name: string): ContainerStatusJson | undefined {
  return [
    ...(status?.containerStatuses ?? []),
    ...(status?.initContainerStatuses ?? []),
    ...(status?.ephemeralContainerStatuses ?? []),
  ].find((entry) => entry.name === name);
}
