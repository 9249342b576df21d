/**
 * What happens to a CRI runtime's containers, as the boundary's events. A runtime with container events is listened to;
 * for an older one the lists are compared, at once when containerd's own event service stirs, else every second.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { type RuntimeEvent, RuntimeError } from '../runtime.ts';
import type { CriClient } from './cri-client.ts';
import { LABEL_POD_UID } from './cri-states.ts';
import { CRI, type Answer } from './schema.ts';

const RETRY_MS = 1_000;
const POLL_MS = 1_000;
/** While containerd's events come in: only the net under them. */
const QUIET_POLL_MS = 10_000;
/** Its CRI part learns of an end by the same event as we do: the lists show it a moment later. */
const LOOK_AGAIN_MS = [10, 40, 160, 640, 2_500] as const;
/** What comes at once is one look. */
const GATHER_MS = 5;

export interface CriEventsDeps {
  readonly client: CriClient;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface Seen {
  readonly podUid: string;
  readonly state: number;
  readonly sandbox: boolean;
}

type View = ReadonlyMap<string, Seen>;

export async function followCriEvents(
  deps: CriEventsDeps,
  signal: AbortSignal,
  onEvent: (event: RuntimeEvent) => void,
  onDisconnect: () => void,
): Promise<void> {
  const { client, clock, logger } = deps;
  let hasEvents = true;
  while (!signal.aborted) {
    try {
      if (hasEvents) {
        onDisconnect();
        await client.containerEvents(signal, (event) => tell(event, onEvent), onDisconnect);
      } else await compareLists(deps, signal, onEvent, onDisconnect);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof RuntimeError && error.code === 'unsupported') {
        hasEvents = false;
        continue;
      }
      logger.debug({ error }, 'The event stream of the container runtime broke off');
      hasEvents = true;
    }
    if (signal.aborted) return;
    onDisconnect();
    await clock.sleep(RETRY_MS, signal).catch(() => undefined);
  }
}

function tell(event: Answer<'getContainerEvents'>, onEvent: (event: RuntimeEvent) => void): void {
  const sandbox = event.podSandboxStatus;
  const podUid = sandbox?.metadata?.uid ?? '';
  const isSandbox = sandbox?.id === event.containerId;
  onEvent({
    type: isSandbox ? 'sandbox-changed' : (CRI.events[event.containerEventType] ?? 'sandbox-changed'),
    podUid,
    containerId: event.containerId,
  });
}

async function look(client: CriClient): Promise<View> {
  const [{ items }, { containers }] = await Promise.all([
    client.call('listPodSandbox', {}),
    client.call('listContainers', {}),
  ]);
  const view = new Map<string, Seen>();
  for (const item of items)
    view.set(item.id, { podUid: item.labels[LABEL_POD_UID] ?? '', state: item.state, sandbox: true });
  for (const container of containers)
    view.set(container.id, { podUid: container.labels[LABEL_POD_UID] ?? '', state: container.state, sandbox: false });
  return view;
}

/** Pure: what happened between two looks. */
export function changes(before: View, after: View): readonly RuntimeEvent[] {
  const events: RuntimeEvent[] = [];
  for (const [id, is] of after) {
    const was = before.get(id);
    if (was?.state === is.state) continue;
    const add = (type: RuntimeEvent['type']): void => void events.push({ type, podUid: is.podUid, containerId: id });
    if (is.sandbox) {
      add('sandbox-changed');
      continue;
    }
    const state = CRI.containerStates[is.state];
    if (was === undefined) add('created');
    if (state === 'running' || (state === 'exited' && CRI.containerStates[was?.state ?? 0] !== 'running'))
      add('started');
    if (state === 'exited' || state === 'unknown') add('stopped');
  }
  for (const [id, was] of before) {
    if (!after.has(id))
      events.push({ type: was.sandbox ? 'sandbox-changed' : 'deleted', podUid: was.podUid, containerId: id });
  }
  return events.filter((event) => event.podUid !== '');
}

async function compareLists(
  { client, clock, logger }: CriEventsDeps,
  signal: AbortSignal,
  onEvent: (event: RuntimeEvent) => void,
  onDisconnect: () => void,
): Promise<void> {
  let stirred = 0;
  let wake = new AbortController();
  let flowing = true;
  const ended = new AbortController();
  const topics = client
    .containerdEvents(
      AbortSignal.any([signal, ended.signal]),
      () => {
        stirred++;
        wake.abort();
      },
      () => undefined,
    )
    .catch((error: unknown) => {
      flowing = false;
      wake.abort();
      logger.debug({ error }, 'The container runtime has no events: its lists are compared every second');
    });
  try {
    let view = await look(client);
    onDisconnect();
    let again = 0;
    let handled = 0;
    while (!signal.aborted) {
      const waitMs = again > 0 ? (LOOK_AGAIN_MS[LOOK_AGAIN_MS.length - again] ?? 0) : flowing ? QUIET_POLL_MS : POLL_MS;
      wake = new AbortController();
      if (stirred === handled) await clock.sleep(waitMs, AbortSignal.any([signal, wake.signal])).catch(() => undefined);
      if (signal.aborted) return;
      if (stirred !== handled) {
        await clock.sleep(GATHER_MS, signal).catch(() => undefined);
        handled = stirred;
        again = LOOK_AGAIN_MS.length;
      } else if (again > 0) again--;
      const next = await look(client);
      const found = changes(view, next);
      view = next;
      for (const event of found) onEvent(event);
    }
  } finally {
    ended.abort();
    await topics;
  }
}
