/**
 * Handles watches: a stream that begins with code 200 and ends with the client, its timeout, or the compaction of the history
 * that it needs. Later errors are ERROR events.
 */
import {
  isExpired,
  isResourceVersionTooLarge,
  newMethodNotSupported,
  newStatusError,
} from '../../../api/meta/status-error.ts';
import type { Rest, WatchHandle, WatchOptions, WatchSink } from '../../model/rest.ts';
import type { Upgrade } from '../exchange.ts';
import { contentTypeOf, type OutputMediaType } from '../media-type.ts';
import { parseListOptions, validateListOptions, watchOptionsOf, type ListRequest } from '../options.ts';
import type { ApiRequest, MaybePromise } from '../request.ts';
import { includeObject } from '../response.ts';
import { createWatchEncoder, type WatchEncoder } from '../watch-encoding.ts';
import { outputOf, pathNamespace, type VerbContext, type VerbHandler } from './verb.ts';
import type { WatchCarrier } from './watch-carrier.ts';

/** A watch without a timeout ends after a time in this range, so that clients spread over servers and time. */
const SHORTEST_DEFAULT_S = 1800;
/** The time between the last bookmark of a watch and its end. */
const LAST_BOOKMARK_MS = 2000;

/** A name in the path selects as a field selector does. */
export const watch: VerbHandler = async (request, rest, context) => {
  if (rest.watch === undefined)
    throw newMethodNotSupported({ group: rest.info.group, resource: rest.info.resource }, 'watch');
  const media = outputOf(request, rest, context, 'watch');
  const list = watchRequest(request);
  validateListOptions(list);
  const timeoutS = list.timeoutSeconds ?? 0;
  const timeoutMs = (timeoutS === 0 ? SHORTEST_DEFAULT_S * (1 + Math.random()) : Math.max(0, timeoutS)) * 1000;
  // A name in the path (`/watch/…/name`) selects like a field selector.
  const options = watchOptionsOf(list, request.info.parts[1] ?? '');
  const release = context.watchSelectors.take(request.user.name, options);
  try {
    const carried = carrierOf(request, rest, media, context);
    const carrier = carried instanceof Promise ? await carried : carried;
    await stream({ request, rest, options, carrier, context, media, timeoutMs });
  } finally {
    release();
  }
};

function watchRequest(request: ApiRequest): ListRequest {
  const parsed = parseListOptions(request.query);
  return parsed.watch ? parsed : { ...parsed, watch: true };
}

function carrierOf(
  request: ApiRequest,
  rest: Rest,
  media: OutputMediaType,
  context: VerbContext,
): MaybePromise<WatchCarrier> {
  const encoder = createWatchEncoder({
    rest,
    media,
    include: includeObject(request),
    encodings: context.encodings,
    nowMs: () => context.clock.now(),
    sent: context.observer.watched(rest),
  });
  const upgrade = request.exchange.takeUpgrade();
  if (upgrade !== undefined) return overWebSocket(request, upgrade, encoder, media);
  const { exchange } = request;
  return {
    start(contentType) {
      request.status = 200;
      exchange.start(200, request.responseHeaders(contentType));
    },
    write: (events) => exchange.write(encoder.encode(events)),
    end: () => exchange.end(),
    onDrain: (listener) => exchange.onDrain(listener),
    onClose: (listener) => exchange.onClose(listener),
  };
}

/**
 * Opens the WebSocket of a watch. Its code is loaded at the first use, because it takes several megabytes and is rarely used.
 */
async function overWebSocket(
  request: ApiRequest,
  upgrade: Upgrade,
  encoder: WatchEncoder,
  media: OutputMediaType,
): Promise<WatchCarrier> {
  const { openWebSocket } = await import('./watch-websocket.ts');
  const carrier = openWebSocket(upgrade, encoder, media.format === 'protobuf');
  const start = (): void => {
    request.status = 101;
    carrier.start('');
  };
  return { ...carrier, start };
}

interface Stream {
  readonly request: ApiRequest;
  readonly rest: Rest;
  readonly options: WatchOptions;
  readonly carrier: WatchCarrier;
  readonly context: VerbContext;
  readonly media: OutputMediaType;
  readonly timeoutMs: number;
}

async function stream({ request, rest, options, carrier, context, media, timeoutMs }: Stream): Promise<void> {
  const ended = Promise.withResolvers<void>();
  let handle: WatchHandle | undefined;
  let over = false;
  const contentType =
    media.format === 'protobuf' ? `${contentTypeOf(media.format)};stream=watch` : contentTypeOf(media.format);
  let started = false;
  const start = (): void => {
    if (started) return;
    started = true;
    carrier.start(contentType);
  };
  const finish = (): void => {
    if (over) return;
    over = true;
    timer.cancel();
    bookmarkTimer?.cancel();
    handle?.close();
    carrier.end();
    ended.resolve();
  };
  const sink: WatchSink = {
    onEvents(events) {
      if (over) return true;
      start();
      // An event is not a list, so kube-apiserver fails to encode the first one and ends the watch.
      if (media.as === 'PartialObjectMetadataList') {
        finish();
        return true;
      }
      return carrier.write(events);
    },
    onEnd: finish,
  };
  const timer = context.clock.after(timeoutMs, finish);
  const bookmarkTimer =
    options.allowWatchBookmarks && timeoutMs > LAST_BOOKMARK_MS
      ? context.clock.after(timeoutMs - LAST_BOOKMARK_MS, () => handle?.bookmark?.())
      : undefined;
  if (timeoutMs === 0) {
    start();
    finish();
    return;
  }
  carrier.onClose(finish);
  carrier.onDrain(() => handle?.resume());
  try {
    handle = await rest.watch?.(request, pathNamespace(request, rest), options, sink);
  } catch (error) {
    timer.cancel();
    bookmarkTimer?.cancel();
    // The stream reports versions that are gone or have not come as an event, and not as an error of the request.
    if (started || isExpired(error) || isResourceVersionTooLarge(error)) {
      sink.onEvents([
        { type: 'ERROR', error: error instanceof Error ? error : newStatusError(500, '', String(error)) },
      ]);
      finish();
      return;
    }
    over = true;
    throw error;
  }
  // The work of a watch is its beginning, so it takes no seats afterwards.
  request.place?.leave();
  if (over) handle?.close();
  else start();
  await ended.promise;
}
