/** Finds the handlers of paths other than those of resources, by exact paths and prefixes. */
import { METRICS_HEADERS, METRICS_TYPE } from '../../api/component/metrics.ts';
import type { ApiRequest, MaybePromise } from './request.ts';
import { methodNotAllowed } from './router.ts';
import { TEXT_TYPE } from '../../api/http/media-types.ts';

/** Sends the response, or throws a `StatusError`. */
export type PathHandler = (request: ApiRequest) => MaybePromise<void>;

/** An exact path outweighs a prefix. */
export class PathHandlers {
  readonly #exact = new Map<string, PathHandler>();
  readonly #services = new Set<string>();
  readonly #trees: { readonly prefix: string; readonly handler: PathHandler }[] = [];
  readonly #listedTrees = new Set<string>();

  /** Handles a path such as `/healthz`, without a trailing slash. */
  exact(path: string, handler: PathHandler): void {
    this.#exact.set(path, handler);
  }

  /** Handles a path such as `/version`, which kube-apiserver's router of resources serves: it ignores a trailing slash. */
  service(path: string, handler: PathHandler): void {
    this.#exact.set(path, handler);
    this.#services.add(path);
  }

  /** Handles all paths below `prefix`, which must end with a slash. If `isListed`, the prefix is one of `paths()`. */
  tree(prefix: string, handler: PathHandler, { isListed = false }: { readonly isListed?: boolean } = {}): void {
    if (isListed) this.#listedTrees.add(prefix);
    this.#trees.push({ prefix, handler });
    this.#trees.sort((a, b) => b.prefix.length - a.prefix.length);
  }

  /** Returns the exact paths and the listed prefixes in order. */
  paths(): string[] {
    return [...this.#exact.keys(), ...this.#listedTrees].sort();
  }

  /** Returns the handler of a path: the exact one, or else that of the longest prefix. Returns `undefined` if there is none. */
  find(path: string): PathHandler | undefined {
    const bare = path.endsWith('/') ? path.slice(0, -1) : path;
    const exact = this.#exact.get(this.#services.has(bare) ? bare : path);
    if (exact !== undefined) return exact;
    return this.#trees.find((tree) => path.startsWith(tree.prefix))?.handler;
  }
}

/** Wraps a handler of a path that is only read. The result throws a 405 for every method but GET. */
export function reading(handler: PathHandler): PathHandler {
  return (request) => {
    if (request.exchange.method !== 'GET') throw methodNotAllowed();
    return handler(request);
  };
}

/** Sends a page of metrics. */
export function sendMetrics(request: ApiRequest, text: string): void {
  const headers = Object.assign(request.responseHeaders(METRICS_TYPE), METRICS_HEADERS);
  request.status = 200;
  request.responseBytes = text.length;
  request.exchange.send(200, headers, text);
}

/** Sends a text. The header `nosniff` keeps browsers from guessing another type. */
export function sendText(request: ApiRequest, status: number, text: string): void {
  const headers = request.responseHeaders(TEXT_TYPE);
  headers['x-content-type-options'] = 'nosniff';
  request.status = status;
  request.responseBytes = text.length;
  request.exchange.send(status, headers, text);
}

/** Responds to unknown paths with a 404, with kube-apiserver's text. */
export const pageNotFound: PathHandler = (request) => sendText(request, 404, '404 page not found\n');
