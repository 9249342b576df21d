/** Reads the state of a pod from the runtime: its sandboxes and containers, the newest first. */
import { byName } from './by-name.ts';
import { podAddresses } from './pod-addresses.ts';
import type { ContainerStatus, Runtime, SandboxStatus } from '../runtime.ts';

/** The sandboxes and containers of one pod. */
export interface RuntimePodStatus {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  /** The newest comes first. */
  readonly sandboxes: readonly SandboxStatus[];
  /** All attempts, the newest first. */
  readonly containers: readonly ContainerStatus[];
  /** The addresses of the newest ready sandbox; empty for pods on the host's network. */
  readonly ips: readonly string[];
}

/**
 * Reads the sandboxes and containers of a pod from the runtime. Rejects with a `RuntimeError` if the runtime does not answer.
 */
export async function readRuntimeStatus(
  runtime: Runtime,
  pod: { readonly uid: string; readonly name: string; readonly namespace: string },
): Promise<RuntimePodStatus> {
  const [sandboxes, containers] = await Promise.all([
    runtime.listSandboxes({ podUid: pod.uid }),
    runtime.listContainers({ podUid: pod.uid }),
  ]);
  return assembleRuntimeStatus(pod, sandboxes, containers);
}

/** Sorts what the runtime listed, the newest first. Pure. */
export function assembleRuntimeStatus(
  pod: { readonly uid: string; readonly name: string; readonly namespace: string },
  sandboxes: readonly SandboxStatus[],
  containers: readonly ContainerStatus[],
): RuntimePodStatus {
  // Sandboxes are sorted by attempt first, because the clock may have been set back.
  const ordered = sandboxes.toSorted((a, b) => b.pod.attempt - a.pod.attempt || b.createdAtMs - a.createdAtMs);
  const ready = ordered.find((sandbox) => sandbox.state === 'ready');
  return {
    uid: pod.uid,
    name: pod.name,
    namespace: pod.namespace,
    sandboxes: ordered,
    containers: containers.toSorted((a, b) => b.attempt - a.attempt || b.createdAtMs - a.createdAtMs),
    ips: podAddresses(ready?.ips ?? []),
  };
}

/** Returns the newest container with the name; `undefined` if the runtime has none. */
export function findContainer(status: RuntimePodStatus, name: string): ContainerStatus | undefined {
  return byName(status.containers).get(name);
}
