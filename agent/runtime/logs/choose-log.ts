/**
 * Chooses the container whose log is read, or whose previous log, by the status of the pod, as the kubelet does
 * (`validateContainerLogStatus`): while a container waits for its next start, its last termination is both its current and its
 * previous log. Pure.
 */
import type { ContainerStatusJson } from '../../base/model/pod.ts';

/** `containerID` has the form of the status, `containerd://...`. `problem` is the kubelet's message. */
type ChosenLog =
  | { readonly kind: 'container'; readonly containerID: string }
  | { readonly kind: 'none'; readonly problem: string };

/** Chooses the container whose log a request reads, or says why there is none. The runtime may have removed the container. */
export function chooseLog(
  of: { readonly pod: string; readonly container: string },
  status: ContainerStatusJson | undefined,
  { previous }: { readonly previous: boolean },
): ChosenLog {
  const subject = `container "${of.container}" in pod "${of.pod}"`;
  const none = (problem: string): ChosenLog => ({ kind: 'none', problem });
  if (status === undefined) return none(`${subject} is not available`);
  const { state, lastState } = status;
  const last = idOf(lastState?.terminated?.containerID);
  if (previous) return last ?? none(`previous terminated ${subject} not found`);
  if (state?.running !== undefined) return idOf(status.containerID) ?? none(`${subject} is not available`);
  if (state?.terminated !== undefined || lastState?.terminated !== undefined)
    return idOf(state?.terminated?.containerID) ?? last ?? none(`${subject} is terminated`);
  return none(`${subject} is waiting to start: ${whyWaiting(state?.waiting?.reason ?? 'ContainerCreating')}`);
}

function idOf(containerID: string | undefined): ChosenLog | undefined {
  return containerID === undefined || containerID === '' ? undefined : { kind: 'container', containerID };
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
