/** Passes every change of every pod to a history. It opens a new watch whenever one ends. */
import { systemClock } from '../../../api/machinery/clock.ts';
import type { Api, ApiObject, WatchFrame } from '../api.ts';
import { PODS } from './program.ts';
import type { PodHistory, SeenPod } from './records.ts';

export interface PodObject extends ApiObject {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly labels?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
  };
  readonly status?: {
    readonly phase?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly ContainerStatusObject[];
    readonly initContainerStatuses?: readonly ContainerStatusObject[];
  };
}

interface ContainerStatusObject {
  readonly name: string;
  readonly restartCount: number;
  readonly state?: { readonly terminated?: { readonly message?: string } };
  readonly resources?: { readonly limits?: { readonly cpu?: string } };
}

function seen(type: WatchFrame['type'], pod: PodObject): SeenPod {
  const { metadata, status } = pod;
  const containers = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
  return {
    type: type as SeenPod['type'],
    name: metadata.name,
    // A recreated mirror pod is another object with a new status.
    uid: metadata.uid,
    phase: status?.phase ?? '',
    restarts: new Map(containers.map(({ name, restartCount }) => [name, restartCount])),
  };
}

/** Watches the pods until the signal is aborted. After a watch that ends with an error, it begins at a new list. */
export async function follow(api: Api, history: PodHistory, signal: AbortSignal): Promise<void> {
  let revision = '';
  while (!signal.aborted) {
    if (revision === '') revision = (await api.call('GET', PODS)).body.metadata?.resourceVersion ?? '';
    const path = `${PODS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=${revision}`;
    const { over, watch } = api.watch(path, ({ type, object }) => {
      if (type === 'ERROR') {
        revision = '';
        return;
      }
      revision = object.metadata?.resourceVersion ?? revision;
      if (type !== 'BOOKMARK') history.see(seen(type, object as PodObject));
    });
    signal.addEventListener('abort', () => watch.close(), { once: true });
    if (signal.aborted) watch.close();
    await over;
    if (!signal.aborted) await systemClock.sleep(50);
  }
}
