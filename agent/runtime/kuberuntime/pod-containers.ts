/** Rules about the containers of a pod's specification: kinds, hashes and restarts. Pure. */
import { createHash } from 'node:crypto';
import type { Container, Pod } from '../../base/model/pod.ts';
import type { ContainerStatus } from '../runtime.ts';

/** The list of the specification in which a container stands. A sidecar is an init container. */
export type ContainerKind = 'init' | 'regular' | 'ephemeral';

interface KindedContainer {
  readonly kind: ContainerKind;
  readonly container: Container;
}

/** Whether an init container keeps running beside the regular ones. */
export function isSidecar(container: Container): boolean {
  return container.restartPolicy === 'Always';
}

/** Returns the containers of all kinds: the init containers first, then the regular, then the ephemeral ones. */
export function allContainers(pod: Pod): readonly KindedContainer[] {
  return [
    ...(pod.spec.initContainers ?? []).map((container) => ({ kind: 'init' as const, container })),
    ...pod.spec.containers.map((container) => ({ kind: 'regular' as const, container })),
    ...(pod.spec.ephemeralContainers ?? []).map((container) => ({
      kind: 'ephemeral' as const,
      container: container as Container,
    })),
  ];
}

/** Returns the container with this name, of any kind; `undefined` if the pod has none. */
export function findKinded(pod: Pod, name: string): KindedContainer | undefined {
  return allContainers(pod).find((entry) => entry.container.name === name);
}

/** Returns the field path of a container for events, such as `spec.initContainers{name}`. */
export function fieldPathOf(kind: ContainerKind, name: string): string {
  const list = { init: 'initContainers', regular: 'containers', ephemeral: 'ephemeralContainers' }[kind];
  return `spec.${list}{${name}}`;
}

/** Returns the hash of the fields whose change recreates a running container: its name and its image. */
export function containerHash(container: Container): string {
  return createHash('sha256')
    .update(JSON.stringify([container.name, container.image ?? '']))
    .digest('hex')
    .slice(0, 8);
}

/** Returns the name of a pod in messages of the kubelet: `name_namespace`. */
export function podFullName(pod: Pod): string {
  return `${pod.metadata.name}_${pod.metadata.namespace}`;
}

/** Returns `name_namespace(uid)`, the form of the kubelet's messages. */
export function formatPod(pod: Pod): string {
  return `${podFullName(pod)}(${pod.metadata.uid})`;
}

/** Returns the action of the first restart rule that matches the exit code; `undefined` if none matches. */
function ruledAction(container: Container, exitCode: number): string | undefined {
  const met = (container.restartPolicyRules ?? []).find(({ exitCodes }) => {
    if (exitCodes === undefined) return false;
    const listed = (exitCodes.values ?? []).includes(exitCode);
    return exitCodes.operator === 'In' ? listed : !listed;
  });
  return met?.action;
}

/** Whether the exit of this container restarts all containers of its pod. */
export function restartsAll(container: Container, exitCode: number): boolean {
  return ruledAction(container, exitCode) === 'RestartAllContainers';
}

/** Whether the pod has a container whose exit may restart all containers. */
export function mayRestartAll(pod: Pod): boolean {
  return allContainers(pod).some(({ container }) =>
    (container.restartPolicyRules ?? []).some(({ action }) => action === 'RestartAllContainers'),
  );
}

/** Whether a terminated container is restarted, by its own rules and policy, else by the pod's policy. */
export function restartsAfter(pod: Pod, container: Container, exitCode: number): boolean {
  const action = ruledAction(container, exitCode);
  if (action === 'Restart' || action === 'RestartAllContainers') return true;
  switch (container.restartPolicy ?? pod.spec.restartPolicy ?? 'Always') {
    case 'Never':
      return false;
    case 'OnFailure':
      return exitCode !== 0;
    default:
      return true;
  }
}

/** Whether to start a container that does not run. No container of a pod that is being deleted is started. */
export function shouldStart(pod: Pod, container: Container, status: ContainerStatus | undefined): boolean {
  if (pod.metadata.deletionTimestamp !== undefined) return false;
  if (status === undefined) return true;
  if (status.state === 'running') return false;
  if (status.state === 'unknown' || status.state === 'created') return true;
  return restartsAfter(pod, container, status.exitCode);
}

/** Whether a regular container of the pod may be restarted after a failure. Init containers, also sidecars, do not count. */
export function restartsOnFailure(pod: Pod): boolean {
  if ((pod.spec.restartPolicy ?? 'Always') !== 'Never') return true;
  return pod.spec.containers.some(
    (container) =>
      (container.restartPolicyRules ?? []).length > 0 ||
      (container.restartPolicy !== undefined && container.restartPolicy !== 'Never'),
  );
}
