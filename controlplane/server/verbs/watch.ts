/**
 * Handles watches: a stream that begins with code 200, or 101 over a WebSocket, and ends with the client, at its timeout, or
 * after an error, which is an ERROR event.
 */
import {
  isExpired,
  isResourceVersionTooLarge,
  newErrorWithoutReason,
  newMethodNotSupported,
} from '../../../api/meta/status-error.ts';
import type { Rest, WatchEvent, WatchHandle, WatchOptions, WatchSink } from '../../model/rest.ts';
import type { Upgrade } from '../exchange.ts';
import { contentTypeOf, type OutputMediaType } from '../media-type.ts';
import { parseListOptions, validateListOptions, watchOptionsOf, type ListRequest } from '../options.ts';
import type { ApiRequest, MaybePromise } from '../request.ts';
import { includeObject } from '../response.ts';
import { createWatchEncoder, type WatchEncoder } from '../watch-encoding.ts';
import { outputOf, pathNamespace, type VerbContext, type VerbHandler } from './verb.ts';
import { overBody } from './watch-body.ts';
import type { WatchCarrier } from './watch-carrier.ts';
import { WatchLimits } from './watch-limits.ts';

/** The minimum time of a watch without a timeout. */
const MIN_DEFAULT_S = 1800;
/** The time between the last bookmark of a watch and its end. */
const LAST_BOOKMARK_MS = 2000;

/**
 * Handles a watch of a resource. Before the stream begins, it throws a 405 if the resource cannot be watched, a 406, the errors
 * of the options (400 and 422), and `TooManyRequests` if the client's watches exceed a limit.
 */
export const watch: VerbHandler = async (request, rest, context) => {
  if (rest.watch === undefined)
    throw newMethodNotSupported({ group: rest.info.group, resource: rest.info.resource }, 'watch');
  // An encoding that lists of the resource do not have is refused before the options are parsed. One that streams do not have
  // is refused after that.
  outputOf(request, rest, context, 'collection');
  const list = watchRequest(request);
  validateListOptions(list);
  const media = outputOf(request, rest, context, 'watch');
  const timeoutS = list.timeoutSeconds ?? 0;
  const timeoutMs = (timeoutS === 0 ? MIN_DEFAULT_S * (1 + Math.random()) : Math.max(0, timeoutS)) * 1000;
  // A name in the path (`/watch/…/name`) selects like a field selector.
  const options = watchOptionsOf(list, request.info.parts[1] ?? '');
  const release = context.watchSelectors.take(request.user.name, options);
  try {
    await streamWithinLimits({ request, rest, options, context, media, timeoutMs });
  } finally {
    release();
  }
};

/** Counts the watch for the memory of its priority level, and sends it. Throws `TooManyRequests` if the memory is used up. */
async function streamWithinLimits(accepted: Omit<Stream, 'carrier' | 'limits'>): Promise<void> {
  const { request, rest, context, media } = accepted;
  const limits = new WatchLimits(request, context);
  try {
    const carried = carrierOf(request, rest, media, context);
    const carrier = carried instanceof Promise ? await carried : carried;
    limits.carry(carrier);
    await stream({ ...accepted, carrier, limits });
  } finally {
    limits.release();
  }
}

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
  return overBody(request.exchange, encoder, (contentType) => {
    request.status = 200;
    request.exchange.start(200, request.responseHeaders(contentType));
  });
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
  const begin = (): void => void (request.status = 101);
  return openWebSocket(upgrade, { encoder, binary: media.format === 'protobuf', begin });
}

interface Stream {
  readonly request: ApiRequest;
  readonly rest: Rest;
  readonly options: WatchOptions;
  readonly carrier: WatchCarrier;
  readonly limits: WatchLimits;
  readonly context: VerbContext;
  readonly media: OutputMediaType;
  readonly timeoutMs: number;
}

function watchTypeOf({ format }: OutputMediaType): string {
  return format === 'protobuf' ? `${contentTypeOf(format)};stream=watch` : contentTypeOf(format);
}

const errorEvent = (error: unknown): WatchEvent => ({
  type: 'ERROR',
  error: error instanceof Error ? error : newErrorWithoutReason(String(error)),
});

async function stream({ request, rest, options, carrier, limits, context, media, timeoutMs }: Stream): Promise<void> {
  const ended = Promise.withResolvers<void>();
  let handle: WatchHandle | undefined;
  let over = false;
  let started = false;
  const start = (): void => {
    if (!started) carrier.start(watchTypeOf(media));
    started = true;
  };
  const finish = (): void => {
    if (over) return;
    over = true;
    timer.cancel();
    bookmarkTimer?.cancel();
    handle?.close();
    carrier.end();
    // Events that the client has not taken yet count until it has taken them.
    if (carrier.isTaken) ended.resolve();
    else limits.waiting();
  };
  const sink: WatchSink = {
    isPatient: true,
    onEvents(events) {
      if (over) return true;
      start();
      // An event is not a list, so kube-apiserver fails to encode the first one and ends the watch.
      if (media.as === 'PartialObjectMetadataList') {
        finish();
        return true;
      }
      const takesMore = carrier.write(events);
      if (!takesMore) limits.waiting();
      return takesMore;
    },
    onEnd: finish,
  };
  const timer = context.clock.after(timeoutMs, finish);
  const bookmarkTimer =
    options.allowWatchBookmarks && timeoutMs > LAST_BOOKMARK_MS
      ? context.clock.after(timeoutMs - LAST_BOOKMARK_MS, () => handle?.bookmark?.())
      : undefined;
  carrier.onClose(() => {
    finish();
    ended.resolve();
  });
  carrier.onDrain(() => {
    limits.taken();
    handle?.resume();
  });
  try {
    if (timeoutMs > 0) handle = await rest.watch?.(request, pathNamespace(request, rest), options, sink);
  } catch (error) {
    timer.cancel();
    bookmarkTimer?.cancel();
    // The stream reports versions that are gone or have not come as an event, and not as an error of the request.
    if (started || isExpired(error) || isResourceVersionTooLarge(error)) {
      sink.onEvents([errorEvent(error)]);
      finish();
      return ended.promise;
    }
    over = true;
    throw error;
  }
  // The work of a watch is its beginning, so it takes no seats afterwards.
  request.place?.leave();
  if (over) handle?.close();
  else start();
  if (timeoutMs === 0) finish();
  return ended.promise;
}
