/**
 * Defines the handler chain of the API server as one list, and the handlers behind it: the verbs for resources, and path
 * handlers for other paths.
 */
import { isLongRunning } from './long-running.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Authenticator } from '../security/authentication/authentication.ts';
import type { Authorizer } from '../security/authorization/authorization.ts';
import type { ResourceCatalog } from '../model/rest.ts';
import type { TextDecoders } from './body.ts';
import type { Connector } from './connect/connector.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import { deprecationOf } from './deprecations.ts';
import type { Encodings } from '../model/encoding.ts';
import { auditFilter, type AuditSink } from './filters/audit.ts';
import { authenticationFilter } from './filters/authentication.ts';
import { authorizationFilter } from './filters/authorization.ts';
import { chain } from './filters/chain.ts';
import { freshnessFilter } from './filters/freshness.ts';
import { deliveryFilter } from './filters/delivery.ts';
import { guardFilter } from './filters/guard.ts';
import { impersonationFilter } from './filters/impersonation.ts';
import { InFlight, type InFlightOptions } from './filters/in-flight.ts';
import { priorityAndFairnessFilter, type PriorityAndFairnessOptions } from './filters/priority-and-fairness.ts';
import { requestInfoFilter } from './filters/request-info.ts';
import { pageNotFound, type PathHandlers } from './path-handlers.ts';
import type { ApiRequest, Handler, MaybePromise } from './request.ts';
import type { RequestObserver } from './request-metrics.ts';
import { notFound, Router, type Verb } from './router.ts';
import { create } from './verbs/create.ts';
import { remove } from './verbs/delete.ts';
import { removeCollection } from './verbs/delete-collection.ts';
import { get } from './verbs/get.ts';
import { list } from './verbs/list.ts';
import { patch } from './verbs/patch.ts';
import { update } from './verbs/update.ts';
import { WatchMemory } from './watch-memory.ts';
import { WatchSelectors } from './watch-selectors.ts';
import type { VerbContext, VerbHandler } from './verbs/verb.ts';
import { watch } from './verbs/watch.ts';

interface HandlerOptions {
  readonly catalog: ResourceCatalog;
  readonly authenticator: Authenticator;
  readonly authorizer: Authorizer;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly encodings: Encodings;
  readonly decoders: TextDecoders;
  readonly paths: PathHandlers;
  readonly connector: Connector;
  readonly observer: RequestObserver;
  readonly audit: AuditSink | undefined;
  readonly requestTimeoutMs: number;
  /** The options of priority and fairness. If it is `undefined`, requests in flight are only counted. */
  readonly fairness: PriorityAndFairnessOptions | undefined;
  readonly inFlight: InFlightOptions;
  readonly watchMemoryBytes: number | undefined;
  /** Handles requests for aggregated servers. Returns `undefined` for all others. */
  readonly aggregated?: ((request: ApiRequest) => MaybePromise<void> | undefined) | undefined;
}

/**
 * Creates the handler of all requests: the filters, then the paths and verbs. The order of the filters is that of
 * kube-apiserver, which has no filters like `freshnessFilter` and `deliveryFilter`.
 */
export function createHandler(options: HandlerOptions): Handler {
  const { authorizer, catalog } = options;
  return chain(
    [
      guardFilter(options),
      requestInfoFilter(),
      ...(catalog.catchUp === undefined ? [] : [freshnessFilter(catalog)]),
      authenticationFilter(options),
      auditFilter(options.audit),
      impersonationFilter(authorizer),
      options.fairness === undefined
        ? new InFlight(options.inFlight).filter
        : priorityAndFairnessFilter(options.fairness),
      authorizationFilter(authorizer),
      deliveryFilter(options),
    ],
    dispatcher(options),
  );
}

function dispatcher(options: HandlerOptions): Handler {
  const router = new Router(options.catalog);
  const verbs: Readonly<Record<Verb, VerbHandler>> = {
    get,
    list,
    watch,
    create,
    update,
    patch,
    delete: remove,
    deletecollection: removeCollection,
    connect: (request, rest) => options.connector.connect(request, rest),
  };
  const context: VerbContext = {
    ...options,
    watchSelectors: new WatchSelectors(),
    watchMemory: new WatchMemory(options.watchMemoryBytes),
  };
  const serve: Handler = (request) => {
    const warnOf = (info: ResourceInfo): void => {
      const { warning, removedRelease } = deprecationOf(info);
      if (warning === '') return;
      request.warn(warning);
      request.annotate('k8s.io/deprecated', 'true');
      if (removedRelease !== '') request.annotate('k8s.io/removed-release', removedRelease);
      options.observer.deprecated(request, removedRelease);
    };
    // A request for a path that a custom resource does not have also gets the warning of its deprecated version.
    const custom = router.customResource(request.info);
    if (custom !== undefined) warnOf(custom);
    const { rest, verb } = router.route(request.exchange.method, request.info);
    request.rest = rest;
    if (custom === undefined) warnOf(rest.info);
    if (isLongRunning(request.info)) options.observer.longRunning(request);
    return verbs[verb](request, rest, context);
  };
  return (request) => {
    const passed = options.aggregated?.(request);
    if (passed !== undefined) return passed;
    const { info } = request;
    if (!info.isResource) return servePath(request, options.paths, router);
    if (router.serves(info)) return serve(request);
    // A client may know that a custom resource is established before this server serves it.
    const settled = options.catalog.settled?.(info.group, info.resource);
    if (settled === undefined) return pageNotFound(request);
    return settled.then(() => (router.serves(info) ? serve(request) : pageNotFound(request)));
  };
}

/**
 * Serves a path that is no resource. `/api` and `/apis/<served group>` belong to the API, which has its own error for missing
 * paths.
 */
function servePath(request: ApiRequest, paths: PathHandlers, router: Router): MaybePromise<void> {
  const { path } = request.info;
  const handler = paths.find(path);
  if (handler !== undefined) return handler(request);
  const [prefix, group = '', version] = path.split('/').filter((segment) => segment !== '');
  if (prefix === 'api' && group !== '') throw notFound();
  if (prefix === 'apis' && version !== undefined && router.isBuiltInGroup(group)) throw notFound();
  return pageNotFound(request);
}
