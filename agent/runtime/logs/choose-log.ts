/**
 * Which of a container's attempts is meant by "the log" and "the previous log", as its status tells it: the current one is
 * what runs or ran last; one that waits for its next start shows what ended before, as its previous log too. Pure.
 */
import type { ContainerStatusJson } from '../../model/core-types.ts';
import type { ContainerStatus } from '../runtime.ts';

/** Newest first, as the runtime has them. `undefined`: there is none. */
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

/** Why there is no log yet. */
export function whyNoLog(status: ContainerStatusJson | undefined): string {
  const reason = status?.state?.waiting?.reason ?? 'ContainerCreating';
  switch (reason) {
    case 'ErrImagePull':
      return "image can't be pulled";
    case 'ImagePullBackOff':
      return 'trying and failing to pull image';
    default:
      return reason;
  }
}
