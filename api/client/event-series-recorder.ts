/**
 * Reports events of events.k8s.io. Of equal events, the first one is created. Each further one within six minutes of the last
 * turns it into a series, or increments the count of the series.
 */
import { isNotFound } from '../meta/status-error.ts';
import { formatMicroTime } from '../machinery/clock.ts';
import type { EventRecorderOptions } from './event-recorder.ts';
import type { EventRecorder } from './event-report.ts';
import { EventWrites, namespaceOf, remember, subjectOf, type Report } from './event-writes.ts';
import { eventsV1 } from './resources.ts';

const SERIES_ENDS_AFTER_MS = 360_000;
/** The API's limit for `note`. */
const MAX_NOTE_BYTES = 1024;
/** The end of a note that was cut, as in kube-scheduler. */
const CUT_MARK = ' ...';

interface Series {
  readonly name: string;
  readonly namespace: string;
  count: number;
  at: number;
}

/** Records events as series. */
export class EventSeriesRecorder implements EventRecorder {
  readonly event: EventRecorder['event'];
  readonly #options: EventRecorderOptions;
  readonly #series = new Map<string, Series>();
  readonly #writes = new EventWrites();

  constructor(options: EventRecorderOptions) {
    this.#options = options;
    this.event = this.#writes.recording(options.clock, (report) => this.#record(report));
  }

  flush(): Promise<void> {
    return this.#writes.flush();
  }

  async #record(report: Report): Promise<void> {
    try {
      await this.#write(report);
    } catch (error) {
      this.#options.logger.debug({ reason: report.reason, err: error }, 'An event was not recorded');
    }
  }

  async #write(report: Report): Promise<void> {
    const { client, component, host = '' } = this.#options;
    const { regarding, type, reason, message, options, at } = report;
    // As in client-go, `resourceVersion` is part of the key: an object that was changed meanwhile has another series.
    const key = [subjectOf(regarding), regarding.resourceVersion, type, reason, options.action].join('\u0000');
    const previous = this.#series.get(key);
    this.#series.delete(key);
    if (previous !== undefined && at - previous.at <= SERIES_ENDS_AFTER_MS) {
      const series = { count: previous.count + 1, lastObservedTime: formatMicroTime(at) };
      try {
        await client.patch(eventsV1, previous.namespace, previous.name, { type: 'strategic', body: { series } });
        remember(this.#series, key, { ...previous, count: series.count, at });
        return;
      } catch (error) {
        if (!isNotFound(error)) throw error;
      }
    }
    const name = this.#writes.nameOf(regarding, at);
    const namespace = namespaceOf(regarding);
    await client.create(eventsV1, namespace, {
      apiVersion: 'events.k8s.io/v1',
      kind: 'Event',
      metadata: {
        name,
        namespace,
        ...(options.annotations === undefined ? {} : { annotations: { ...options.annotations } }),
      },
      eventTime: formatMicroTime(at),
      reportingController: component,
      reportingInstance: `${component}${host === '' ? '' : `-${host}`}`,
      action: options.action ?? reason,
      reason,
      regarding: { ...regarding },
      note: shorten(message),
      type,
    });
    remember(this.#series, key, { name, namespace, count: 1, at });
  }
}

function shorten(message: string): string {
  if (Buffer.byteLength(message) <= MAX_NOTE_BYTES) return message;
  const shortened = Buffer.from(message).subarray(0, MAX_NOTE_BYTES - CUT_MARK.length);
  // A character that was cut in the middle is dropped.
  return shortened.toString('utf8').replace(/�+$/, '') + CUT_MARK;
}
