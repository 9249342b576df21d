import type { Pod } from '../../base/model/pod.ts';

interface RunningContainer {
  readonly name: string;
  readonly id: string;
  readonly image: string;
  readonly startedAtMs: number;
}

/** Returns the containers of all kinds that run according to the status of the pod. */
export function runningContainers(pod: Pod): readonly RunningContainer[] {
  const { status } = pod;
  return [
    ...(status?.initContainerStatuses ?? []),
    ...(status?.containerStatuses ?? []),
    ...(status?.ephemeralContainerStatuses ?? []),
  ].flatMap((container) => {
    const started = container.state?.running;
    const id = container.containerID ?? '';
    if (started === undefined || id === '') return [];
    return [
      {
        name: container.name,
        id: id.slice(id.indexOf('://') + 3),
        image: container.image,
        startedAtMs: Date.parse(started.startedAt ?? ''),
      },
    ];
  });
}
