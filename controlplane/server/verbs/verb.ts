/** Defines the parts of the server that verbs use. */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Rest } from '../../model/rest.ts';
import type { TextDecoders } from '../body.ts';
import type { RequestObserver } from '../request-metrics.ts';
import type { Encodings } from '../../model/encoding.ts';
import { negotiateOutput, type NegotiationScope, type OutputMediaType } from '../media-type.ts';
import type { ApiRequest, MaybePromise } from '../request.ts';
import type { WatchMemory } from '../watch-memory.ts';
import type { WatchSelectors } from '../watch-selectors.ts';

/** What all verbs share. */
export interface VerbContext {
  readonly clock: Clock;
  readonly encodings: Encodings;
  readonly decoders: TextDecoders;
  readonly observer: Pick<RequestObserver, 'watched'>;
  readonly watchSelectors: WatchSelectors;
  readonly watchMemory: WatchMemory;
  readonly requestTimeoutMs: number;
}

/** Answers the request, or throws a `StatusError`. */
export type VerbHandler = (request: ApiRequest, rest: Rest, context: VerbContext) => MaybePromise<void>;

interface Scopes {
  readonly plain: NegotiationScope;
  readonly collection: NegotiationScope;
  readonly watch: NegotiationScope;
}

/** The subresources of stored objects that kube-apiserver serves without Tables. */
const WITHOUT_TABLES: ReadonlySet<string> = new Set([
  'apiservices/status',
  'certificatesigningrequests/approval',
  'customresourcedefinitions/status',
  'devicetaintrules/status',
  'namespaces/finalize',
  'pods/ephemeralcontainers',
  'pods/resize',
  'resourceclaims/status',
]);

const pathOf = ({ info, subresource }: Rest): string => `${info.resource}/${subresource?.name ?? ''}`;

const scopes = new WeakMap<Rest, Scopes>();

function scopesOf(rest: Rest, encodings: Encodings): Scopes {
  let cached = scopes.get(rest);
  if (cached === undefined) {
    const protobuf = hasProtobuf(rest, encodings);
    // Resources that are only created (reviews, tokens, bindings) are not stored, so they have no Tables.
    const table = (rest.get !== undefined || rest.list !== undefined) && !WITHOUT_TABLES.has(pathOf(rest));
    const base = { protobuf, table, routeCheck: protobuf };
    const possible = rest.watch === undefined ? 'never' : 'possible';
    cached = {
      plain: { ...base, watch: 'never' },
      collection: { ...base, watch: possible },
      watch: { ...base, watch: 'now' },
    };
    scopes.set(rest, cached);
  }
  return cached;
}

/** Whether the objects of the resource have a protobuf form. Custom resources have none. */
export function hasProtobuf(rest: Rest, encodings: Encodings): boolean {
  return encodings.hasProtobuf(rest.info.group, rest.info.version, rest.info.kind);
}

/** Negotiates the encoding of the response. Throws a 406. */
export function outputOf(
  request: ApiRequest,
  rest: Rest,
  context: VerbContext,
  use: keyof Scopes = 'plain',
): OutputMediaType {
  return negotiateOutput(request.header('accept'), scopesOf(rest, context.encodings)[use]);
}

/** Returns the name in the path. */
export const pathName = (request: ApiRequest): string => request.info.parts[1] ?? '';

/** Returns the namespace in the path. Cluster-scoped objects have none, namespaces included. */
export const pathNamespace = (request: ApiRequest, rest: Rest): string =>
  rest.info.namespaced ? request.info.namespace : '';
