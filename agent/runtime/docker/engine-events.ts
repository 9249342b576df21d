/** Follows the engine's events about this agent's containers, and reconnects when the stream breaks. */
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { periodically } from '../../../api/machinery/periodic.ts';
import type { RuntimeEvent } from '../runtime.ts';
import { valuesOf } from './bounded-responses.ts';
import type { DockerClient } from './docker-client.ts';
import { LABEL_INSTANCE } from '../instance.ts';
import { LABEL_POD_UID, LABEL_SANDBOX, LABEL_TYPE } from './labels.ts';

const RETRY_MS = 1_000;

interface EngineEventsOptions {
  readonly client: DockerClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly instance: string;
  /** Resolves when the engine's container list shows the exit of the container. */
  readonly settled: (containerId: string) => Promise<void>;
}

/** Follows the events until the signal aborts. `onDisconnect` means that events may have been lost. */
export async function followEvents(
  { client, clock, logger, instance, settled }: EngineEventsOptions,
  signal: AbortSignal,
  onEvent: (event: RuntimeEvent) => void,
  onDisconnect: () => void,
): Promise<void> {
  const follow = async (): Promise<void> => {
    const filters = { type: ['container'], label: [`${LABEL_INSTANCE}=${instance}`] };
    const stream = await client.docker.getEvents({ filters: JSON.stringify(filters), abortSignal: signal });
    onDisconnect();
    for await (const value of valuesOf(stream)) {
      const event = eventOf(value as EngineEvent);
      if (event === undefined) continue;
      if (!event.ended) onEvent(event);
      else
        background(
          settled(event.containerId).finally(() => onEvent(event)),
          { logger, what: 'Waiting for the end of a container', fields: { container: event.containerId }, signal },
        );
    }
    if (!signal.aborted) onDisconnect();
  };
  const onError = (error: unknown): void => {
    logger.debug({ err: error }, 'The event stream of Docker was interrupted, opening it again');
    onDisconnect();
  };
  await periodically(follow, { clock, periodMs: RETRY_MS, signal, onError });
}

interface EngineEvent {
  readonly Action: string;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
}

const TYPES: ReadonlyMap<string, RuntimeEvent['type']> = new Map(
  Object.entries({
    create: 'created',
    start: 'started',
    die: 'stopped',
    destroy: 'deleted',
  }),
);

function eventOf(event: EngineEvent): (RuntimeEvent & { readonly ended: boolean }) | undefined {
  const type = TYPES.get(event.Action);
  const { Attributes: labels, ID: id } = event.Actor;
  const podUid = labels[LABEL_POD_UID];
  if (type === undefined || podUid === undefined) return undefined;
  const sandbox = labels[LABEL_TYPE] === 'podsandbox' || labels[LABEL_SANDBOX] === undefined;
  return {
    type: sandbox && type !== 'created' ? 'sandbox-changed' : type,
    podUid,
    containerId: id,
    ended: event.Action === 'die',
  };
}
