/** What a pod's specification says of its containers: kinds, hashes, restart rules. Pure. */
import { createHash } from 'node:crypto';
import type { Container, Pod } from '../../model/core-types.ts';
import type { ContainerStatus } from '../runtime.ts';

export type ContainerKind = 'init' | 'regular' | 'ephemeral';

export interface KindedContainer {
  readonly kind: ContainerKind;
  readonly container: Container;
}

export function isSidecar(container: Container): boolean {
  return container.restartPolicy === 'Always';
}

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

export function findKinded(pod: Pod, name: string): KindedContainer | undefined {
  return allContainers(pod).find((entry) => entry.container.name === name);
}

/** `spec.initContainers{name}`: what an event about a container points at. */
export function fieldPathOf(kind: ContainerKind, name: string): string {
  const list = { init: 'initContainers', regular: 'containers', ephemeral: 'ephemeralContainers' }[kind];
  return `spec.${list}{${name}}`;
}

/** What makes a running container another one: its name and its image. */
export function containerHash(container: Container): string {
  return createHash('sha256')
    .update(JSON.stringify([container.name, container.image ?? '']))
    .digest('hex')
    .slice(0, 8);
}

export function podFullName(pod: Pod): string {
  return `${pod.metadata.name}_${pod.metadata.namespace}`;
}

/** `name_namespace(uid)`, as messages write it. */
export function formatPod(pod: Pod): string {
  return `${podFullName(pod)}(${pod.metadata.uid})`;
}

/** The action of the first rule that the exit code meets. */
function ruledAction(container: Container, exitCode: number): string | undefined {
  const met = (container.restartPolicyRules ?? []).find(({ exitCodes }) => {
    if (exitCodes === undefined) return false;
    const listed = (exitCodes.values ?? []).includes(exitCode);
    return exitCodes.operator === 'In' ? listed : !listed;
  });
  return met?.action;
}

/** Whether the end of this container starts all of its pod anew. */
export function restartsAll(container: Container, exitCode: number): boolean {
  return ruledAction(container, exitCode) === 'RestartAllContainers';
}

/** Whether the pod has a container whose end may start all anew. */
export function mayRestartAll(pod: Pod): boolean {
  return allContainers(pod).some(({ container }) =>
    (container.restartPolicyRules ?? []).some(({ action }) => action === 'RestartAllContainers'),
  );
}

/** Whether an ended container is run again, by its own rules and policy, else by the pod's. */
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

/** A regular container that does not run: is it to be started? */
export function shouldStart(pod: Pod, container: Container, status: ContainerStatus | undefined): boolean {
  if (pod.metadata.deletionTimestamp !== undefined) return false;
  if (status === undefined) return true;
  if (status.state === 'running') return false;
  if (status.state === 'unknown' || status.state === 'created') return true;
  return restartsAfter(pod, container, status.exitCode);
}

/** Some container of the pod may be run again after it failed. */
export function restartsOnFailure(pod: Pod): boolean {
  if ((pod.spec.restartPolicy ?? 'Always') !== 'Never') return true;
  return pod.spec.containers.some(
    (container) =>
      (container.restartPolicyRules ?? []).length > 0 ||
      (container.restartPolicy !== undefined && container.restartPolicy !== 'Never'),
  );
}
