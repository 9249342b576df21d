/**
 * Finds the handlers of paths other than those of resources: exact paths and prefixes, each with its methods. The verbs respond
 * to unknown paths of the API; the response to all others is `404 page not found`.
 */
import type { ApiRequest, MaybePromise } from './request.ts';
import { methodNotAllowed } from './router.ts';
import { TEXT_TYPE } from '../../api/http/media-types.ts';

/** Sends the response, or throws a `StatusError`. */
export type PathHandler = (request: ApiRequest) => MaybePromise<void>;

/** An exact path outweighs a prefix. */
export class PathHandlers {
  readonly #exact = new Map<string, PathHandler>();
  readonly #trees: { readonly prefix: string; readonly handler: PathHandler }[] = [];

  /** Handles a path such as `/version`. A trailing slash of the request's path is ignored. */
  exact(path: string, handler: PathHandler): void {
    this.#exact.set(path, handler);
  }

  /** Handles all paths below `prefix`, which must end with a slash. */
  tree(prefix: string, handler: PathHandler): void {
    this.#trees.push({ prefix, handler });
    this.#trees.sort((a, b) => b.prefix.length - a.prefix.length);
  }

  /** Returns the exact paths in order, without the prefixes. */
  paths(): string[] {
    return [...this.#exact.keys()].sort();
  }

  /** Returns the handler of a path: the exact one, or else the first whose prefix the path has. */
  find(path: string): PathHandler | undefined {
    const bare = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
    const exact = this.#exact.get(bare);
    if (exact !== undefined) return exact;
    return this.#trees.find((tree) => path.startsWith(tree.prefix))?.handler;
  }
}

/** Wraps a handler of a path that is only read. */
export function reading(handler: PathHandler): PathHandler {
  return (request) => {
    if (request.exchange.method !== 'GET') throw methodNotAllowed();
    return handler(request);
  };
}

/** Browsers must not guess another type (`nosniff`). */
export function sendText(request: ApiRequest, status: number, text: string): void {
  const headers = request.responseHeaders(TEXT_TYPE);
  headers['x-content-type-options'] = 'nosniff';
  request.status = status;
  request.responseBytes = text.length;
  request.exchange.send(status, headers, text);
}

/** The response to unknown paths, with kube-apiserver's text. */
export const pageNotFound: PathHandler = (request) => sendText(request, 404, '404 page not found\n');
