/**
 * Produces the runtime boundary's events for a CRI runtime. If the runtime has container events, this module subscribes
 * to them. For an older runtime it compares the lists of containers: after requests of this agent that changed them, except
 * first starts, which it reports without a list, after an exit event from containerd's own event service (until the lists show
 * the exit), and otherwise periodically.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import { type RuntimeEvent, RuntimeError } from '../runtime.ts';
import type { CriClient } from './cri-client.ts';
import { LABEL_POD_UID } from './cri-states.ts';
import { CRI, type Answer } from './schema.ts';

const RETRY_MS = 1_000;
const POLL_MS = 1_000;
/** The poll interval while containerd's events arrive. */
const QUIET_POLL_MS = 10_000;
/**
 * The pauses before the lists that follow an exit event. containerd's CRI plugin learns of an exit from the same event as this
 * module, so the lists show it shortly after.
 */
const LIST_AGAIN_MS = [10, 40, 160, 640, 2_500, 5_000] as const;
/** How long to collect events before one list request serves them all. */
const GATHER_MS = 5;

interface CriEventsDeps {
  readonly client: CriClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /**
   * Registers a listener that is called after each request of this agent that changes the lists. The listener gets what the
   * request started, if that is known. Returns a function that removes the listener.
   */
  readonly onOwnChange: (listener: (started?: Started) => void) => () => void;
}

/** A container or sandbox that a request of this agent started. */
export interface Started {
  readonly id: string;
  readonly podUid: string;
  readonly sandbox: boolean;
}

/** The state of a container or sandbox in a list. */
interface ListedState {
  readonly podUid: string;
  readonly state: number;
  readonly sandbox: boolean;
}

type View = ReadonlyMap<string, ListedState>;

const RUNNING = CRI.containerStates.indexOf('running');

/**
 * Follows the events of the runtime until the signal aborts: by its event stream, or by comparing lists if it has none.
 * `onDisconnect` is called whenever events may have been lost, so that the caller lists again.
 */
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
        await client.containerEvents(signal, (event) => notify(event, onEvent), onDisconnect);
      } else await compareLists(deps, signal, onEvent, onDisconnect);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof RuntimeError && error.code === 'unsupported') {
        hasEvents = false;
        continue;
      }
      logger.debug({ err: error }, 'The event stream of the container runtime was interrupted, opening it again');
      hasEvents = true;
    }
    if (signal.aborted) return;
    onDisconnect();
    await pause(clock, RETRY_MS, signal);
  }
}

function notify(event: Answer<'getContainerEvents'>, onEvent: (event: RuntimeEvent) => void): void {
  const sandbox = event.podSandboxStatus;
  const podUid = sandbox?.metadata?.uid ?? '';
  const isSandbox = sandbox?.id === event.containerId;
  onEvent({
    type: isSandbox ? 'sandbox-changed' : (CRI.events[event.containerEventType] ?? 'sandbox-changed'),
    podUid,
    containerId: event.containerId,
  });
}

async function listStates(client: CriClient): Promise<Map<string, ListedState>> {
  const [{ items }, { containers }] = await Promise.all([
    client.call('listPodSandbox', {}),
    client.call('listContainers', {}),
  ]);
  const view = new Map<string, ListedState>();
  for (const item of items)
    view.set(item.id, { podUid: item.labels[LABEL_POD_UID] ?? '', state: item.state, sandbox: true });
  for (const container of containers)
    view.set(container.id, { podUid: container.labels[LABEL_POD_UID] ?? '', state: container.state, sandbox: false });
  return view;
}

/** Returns the events between two lists. Pure. */
export function changes(before: View, after: View): readonly RuntimeEvent[] {
  const events: RuntimeEvent[] = [];
  for (const [id, current] of after) {
    const previous = before.get(id);
    if (previous?.state === current.state) continue;
    const add = (type: RuntimeEvent['type']): void =>
      void events.push({ type, podUid: current.podUid, containerId: id });
    if (current.sandbox) {
      add('sandbox-changed');
      continue;
    }
    const state = CRI.containerStates[current.state];
    if (previous === undefined) add('created');
    if (state === 'running' || (state === 'exited' && CRI.containerStates[previous?.state ?? 0] !== 'running'))
      add('started');
    if (state === 'exited' || state === 'unknown') add('stopped');
  }
  for (const [id, was] of before) {
    if (!after.has(id))
      events.push({ type: was.sandbox ? 'sandbox-changed' : 'deleted', podUid: was.podUid, containerId: id });
  }
  return events.filter((event) => event.podUid !== '');
}

/** Whether the container or sandbox no longer runs. */
function isOver(listed: ListedState | undefined): boolean {
  if (listed === undefined) return true;
  return listed.sandbox ? listed.state !== CRI.sandboxReady : CRI.containerStates[listed.state] !== 'running';
}

/** Lists and reports the differences until the signal aborts. Rejects if the runtime cannot be listed. */
async function compareLists(
  { client, clock, logger, onOwnChange }: CriEventsDeps,
  signal: AbortSignal,
  onEvent: (event: RuntimeEvent) => void,
  onDisconnect: () => void,
): Promise<void> {
  let isListDue = false;
  let wake = new AbortController();
  let hasExitEvents = true;
  const pollMs = (): number => (hasExitEvents ? QUIET_POLL_MS : POLL_MS);
  /** Containers and sandboxes that have exited according to an event, but still run according to the lists. */
  const unlistedExits = new Set<string>();
  let listsSinceExit = 0;
  const requestList = (): void => {
    isListDue = true;
    wake.abort();
  };
  const ended = new AbortController();
  const either = AbortSignal.any([signal, ended.signal]);
  const onExitsEnd = (error?: unknown): void => {
    if (either.aborted) return;
    hasExitEvents = false;
    requestList();
    logger.debug({ err: error }, 'The container runtime sends no exit events, polling every second');
  };
  const onExit = (id: string): void => {
    unlistedExits.add(id);
    listsSinceExit = 0;
    requestList();
  };
  // A stream that the runtime ends without an error brings no further exits either.
  const exits = client.containerdExits(either, onExit).then(() => onExitsEnd(), onExitsEnd);
  let view: Map<string, ListedState> | undefined;
  const stopListening = onOwnChange((started) => {
    const previous = started === undefined ? undefined : view?.get(started.id);
    // Only the first start of a container or sandbox is reported without a list request.
    const isFirst = previous === undefined || CRI.containerStates[previous.state] === 'created';
    if (started === undefined || view === undefined || !hasExitEvents || !isFirst || unlistedExits.has(started.id))
      return requestList();
    const { id, podUid, sandbox } = started;
    view.set(id, { podUid, sandbox, state: sandbox ? CRI.sandboxReady : RUNNING });
    if (!sandbox && previous === undefined) onEvent({ type: 'created', podUid, containerId: id });
    onEvent({ type: sandbox ? 'sandbox-changed' : 'started', podUid, containerId: id });
  });
  try {
    view = await listStates(client);
    onDisconnect();
    while (!signal.aborted) {
      if (!isListDue) {
        wake = new AbortController();
        const waitMs = unlistedExits.size === 0 ? pollMs() : (LIST_AGAIN_MS[listsSinceExit++] ?? 0);
        await pause(clock, waitMs, AbortSignal.any([signal, wake.signal]));
      }
      if (isListDue) await pause(clock, GATHER_MS, signal);
      if (signal.aborted) return;
      isListDue = false;
      const next = await listStates(client);
      const found = changes(view, next);
      view = next;
      for (const id of unlistedExits) if (isOver(next.get(id))) unlistedExits.delete(id);
      // An exit that the lists do not show after the last retry is left to periodic polling.
      if (listsSinceExit >= LIST_AGAIN_MS.length) unlistedExits.clear();
      for (const event of found) onEvent(event);
    }
  } finally {
    stopListening();
    ended.abort();
    await exits;
  }
}
