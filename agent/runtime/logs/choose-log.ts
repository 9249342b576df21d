/**
 * Chooses the attempt of a container for the log and the previous log, by the container's status. The current log is that of
 * the attempt that runs or ran last. While a container waits for its next start, the last terminated attempt is both its
 * current and its previous one. Pure.
 */
import type { ContainerStatusJson } from '../../model/pod.ts';
import type { ContainerStatus } from '../runtime.ts';

/** Returns the attempt whose log is requested, or `undefined` if there is none. `attempts` has the newest first. */
export function chooseLog(
  attempts: readonly ContainerStatus[],
  status: ContainerStatusJson | undefined,
  { previous }: { readonly previous: boolean },
): ContainerStatus | undefined {
  const [newest, second] = attempts.filter(({ state }) => state !== 'created');
  if (!previous) return newest;
  const isNext = attempts[0] !== newest;
  const isOver = newest?.state !== 'running' && status?.state?.waiting !== undefined;
  return isNext || isOver ? newest : second;
}

/** Returns the kubelet's message for a container without the requested log. */
export function whyNoLog(
  { pod, container }: { readonly pod: string; readonly container: string },
  status: ContainerStatusJson | undefined,
  { previous }: { readonly previous: boolean },
): string {
  const subject = `container "${container}" in pod "${pod}"`;
  if (status === undefined) return `${subject} is not available`;
  if (previous) return `previous terminated ${subject} not found`;
  const { state, lastState } = status;
  if (state?.terminated !== undefined || lastState?.terminated !== undefined) return `${subject} is terminated`;
  return `${subject} is waiting to start: ${whyWaiting(state?.waiting?.reason ?? 'ContainerCreating')}`;
}

function whyWaiting(reason: string): string {
  switch (reason) {
    case 'ErrImagePull':
      return "image can't be pulled";
    case 'ImagePullBackOff':
      return 'trying and failing to pull image';
    default:
      return reason;
  }
}
