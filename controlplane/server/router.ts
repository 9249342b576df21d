/**
 * Finds the resource and the verb for a request, or throws kube-apiserver's 404 and 405. It reads only the `RequestInfo` that
 * authorization has used, so that both decide about the same resource.
 */
import type { ResourceInfo } from '../../api/schema/schema.ts';
import { newBadRequest, newMethodNotSupported, newNotFound, type StatusError } from '../../api/meta/status-error.ts';
import type { ResourceCatalog, Rest } from '../model/rest.ts';
import { routeError } from './media-type.ts';
import type { RequestInfo } from './request-info.ts';
import { namespaces } from '../../api/client/resources.ts';
import { isResource } from '../../api/meta/group-resource.ts';

/** A verb of a resource, as `Rest` has it. */
export type Verb = 'get' | 'list' | 'watch' | 'create' | 'update' | 'patch' | 'delete' | 'deletecollection' | 'connect';

/** The row of the catalog that serves the request, and the verb. */
interface Route {
  readonly rest: Rest;
  readonly verb: Verb;
}

/** Builds kube-apiserver's 404 for a path that no resource has. */
export const notFound = (): StatusError =>
  routeError(404, 'NotFound', 'the server could not find the requested resource');
/** Builds kube-apiserver's 405 for a method that the resource does not have. */
export const methodNotAllowed = (): StatusError =>
  routeError(405, 'MethodNotAllowed', 'the server does not allow this method on the requested resource');

/** Lookups read the catalog as it is at the request. */
export class Router {
  readonly #catalog: ResourceCatalog;
  readonly #verbs = new WeakMap<Rest, PathVerbs>();
  #groups: ReadonlySet<string> | undefined;

  constructor(catalog: ResourceCatalog) {
    this.#catalog = catalog;
    catalog.onChange(() => {
      this.#groups = undefined;
    });
  }

  /** Whether the path belongs to the API: any path of a built-in group, and custom resources that are served in that scope. */
  serves(info: RequestInfo): boolean {
    if (this.isBuiltInGroup(info.group)) return true;
    const rest = this.#catalog.find(info.group, info.version, info.resource, '');
    if (rest === undefined || !scopeFits(rest, info)) return false;
    // Objects of all namespaces are listed and watched, and nothing else.
    return !rest.info.namespaced || info.namespace !== '' || info.verb === 'list' || info.verb === 'watch';
  }

  /**
   * Whether the group is built in. The API responds with a Status to unknown paths of a built-in group, and with plain text to
   * paths of other groups.
   */
  isBuiltInGroup(group: string): boolean {
    if (group === '') return true;
    this.#groups ??= builtInGroups(this.#catalog);
    return this.#groups.has(group);
  }

  /** Returns the custom resource of a path, whether or not it has the subresource. */
  customResource({ group, version, resource }: RequestInfo): ResourceInfo | undefined {
    const info = this.#catalog.find(group, version, resource, '')?.info;
    return info?.custom === undefined ? undefined : info;
  }

  /**
   * Throws a 404 if no resource has the path, a 405 if the resource does not have the method, and a 400 for a PUT to a
   * collection of custom resources.
   */
  route(method: string, info: RequestInfo): Route {
    const rest = this.#find(info);
    const fits = rest !== undefined && scopeFits(rest, info);
    if (rest === undefined || !fits) throw this.#missing(info);
    if (rest.connect !== undefined) return connectRoute(method, rest, info);
    const verbs = this.#verbsOf(rest, info);
    if (verbs.size === 0) throw notFound();
    const verb = rest.info.custom === undefined ? verbs.get(method) : this.#customVerb(verbs, method, rest, info);
    if (verb === undefined) throw rest.info.custom === undefined ? methodNotAllowed() : unsupported(method, rest, info);
    // The handler of watches refuses a resource that cannot be watched.
    return info.watchPrefix || (verb === 'list' && info.verb === 'watch') ? { rest, verb: 'watch' } : { rest, verb };
  }

  /** Returns the verb of a method on a custom resource, as kube-apiserver's handler of custom resources selects it. */
  #customVerb(verbs: MethodVerbs, method: string, rest: Rest, info: RequestInfo): Verb | undefined {
    const verb = verbs.get(method === 'HEAD' ? 'GET' : method);
    if (verb !== undefined || info.subresource !== '') return verb;
    if (method === 'POST' && info.parts.length > 1 && rest.create !== undefined) return 'create';
    return method === 'PATCH' && info.parts.length === 1 && rest.patch !== undefined ? 'patch' : undefined;
  }

  #verbsOf(rest: Rest, info: RequestInfo): MethodVerbs {
    let verbs = this.#verbs.get(rest);
    if (verbs === undefined) this.#verbs.set(rest, (verbs = pathVerbs(rest)));
    if (info.subresource !== '') return verbs.subresource;
    if (info.parts.length > 1) return info.watchPrefix ? verbs.watchedObject : verbs.object;
    if (info.watchPrefix) return verbs.watchedCollection;
    return rest.info.namespaced && info.namespace === '' ? verbs.allNamespaces : verbs.collection;
  }

  /**
   * Builds the error of a path that has no row. For a missing subresource of a custom resource, it names the object as
   * missing.
   */
  #missing({ group, version, resource, parts }: RequestInfo): StatusError {
    const isCustom = this.#catalog.find(group, version, resource, '')?.info.custom !== undefined;
    return isCustom && parts.length > 2 ? newNotFound({ group, resource }, parts[1] ?? '') : notFound();
  }

  #find(info: RequestInfo): Rest | undefined {
    const { parts } = info;
    const rest = this.#catalog.find(info.group, info.version, info.resource, info.subresource);
    // kube-apiserver ignores what follows the subresource of a custom resource.
    if (parts.length > 3 && rest?.info.custom === undefined && rest?.subresource?.name !== 'proxy') return undefined;
    return rest;
  }
}

function builtInGroups(catalog: ResourceCatalog): ReadonlySet<string> {
  const builtIn = catalog.resources().filter((info) => info.custom === undefined);
  return new Set(builtIn.map((info) => info.group));
}

function scopeFits(rest: Rest, info: RequestInfo): boolean {
  const named = info.parts.length > 1;
  if (rest.info.namespaced) return info.namespace !== '' || !named;
  if (info.namespace === '') return true;
  return isResource(rest.info, namespaces) && info.namespace === info.parts[1];
}

const VERB_OF_METHOD: ReadonlyMap<string, string> = new Map(
  Object.entries({ POST: 'create', PUT: 'update', PATCH: 'patch', DELETE: 'delete', GET: 'get', HEAD: 'get' }),
);

/** Builds kube-apiserver's error for a method that a custom resource does not have. */
function unsupported(method: string, { info: { group, resource } }: Rest, { parts }: RequestInfo): StatusError {
  if (method === 'PUT' && parts.length === 1) return newBadRequest('name must be provided');
  return newMethodNotSupported({ group, resource }, VERB_OF_METHOD.get(method) ?? '');
}

type MethodVerbs = ReadonlyMap<string, Verb>;

/** The verbs of a resource by the form of the path. */
interface PathVerbs {
  readonly object: MethodVerbs;
  readonly collection: MethodVerbs;
  /** The objects of all namespaces can only be listed and watched. */
  readonly allNamespaces: MethodVerbs;
  readonly subresource: MethodVerbs;
  readonly watchedObject: MethodVerbs;
  readonly watchedCollection: MethodVerbs;
}

function pathVerbs(rest: Rest): PathVerbs {
  const verbs = (of: Readonly<Record<string, Verb | undefined>>): MethodVerbs =>
    new Map(Object.entries(of).flatMap(([method, verb]) => (verb === undefined ? [] : [[method, verb]])));
  const PUT = rest.update && 'update';
  const PATCH = rest.patch && 'patch';
  const DELETE = rest.delete && 'delete';
  const GET = rest.get && 'get';
  const POST = rest.create && 'create';
  const object = verbs({ GET, PUT, PATCH, DELETE });
  const watched = verbs({ GET: rest.watch && 'watch' });
  return {
    object,
    collection: verbs({ GET: rest.list && 'list', POST, DELETE: rest.deleteCollection && 'deletecollection' }),
    allNamespaces: verbs({ GET: rest.list && 'list' }),
    subresource: verbs({ GET, POST, PUT, PATCH, DELETE }),
    watchedObject: watched.size === 0 ? object : watched,
    watchedCollection: watched,
  };
}

const ANY_METHOD: ReadonlySet<string> = new Set(['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS']);

function connectRoute(method: string, rest: Rest, info: RequestInfo): Route {
  const name = rest.subresource?.name ?? '';
  const methods = name === 'proxy' ? ANY_METHOD : name === 'log' ? LOG_METHODS : STREAM_METHODS;
  if (!methods.has(method)) throw methodNotAllowed();
  if (info.parts.length > 3 && name !== 'proxy') throw notFound();
  return { rest, verb: 'connect' };
}

const LOG_METHODS: ReadonlySet<string> = new Set(['GET']);
const STREAM_METHODS: ReadonlySet<string> = new Set(['GET', 'POST']);
