/**
 * Serves `/statusz` and `/flagz`, which kube-apiserver 1.36 serves by default (`ComponentStatusz`, `ComponentFlagz`). The role
 * `system:monitoring` may read both.
 */
import { type Flagz, flagzResponse, type Statusz, statuszResponse, type ZpageResponse } from '../../api/http/zpages.ts';
import type { PathHandler, PathHandlers } from './path-handlers.ts';

/** The data of both pages, computed for each request. */
interface ZpagesOptions {
  readonly statusz: () => Omit<Statusz, 'paths'>;
  readonly flagz: () => Flagz;
}

/** The name of kube-apiserver on its pages. */
const COMPONENT = 'apiserver';

/** The paths of APIs, which `/statusz` does not list. */
const NOT_LISTED: ReadonlySet<string> = new Set(['/', '/api', '/apis', '/openid', '/openapi', '/.well-known']);

/** Serves both pages. `/statusz` lists the first segments of the paths that are handled. */
export function installZpages(paths: PathHandlers, { statusz, flagz }: ZpagesOptions): void {
  paths.exact(
    '/flagz',
    page((accept) => flagzResponse(accept, COMPONENT, flagz())),
  );
  paths.exact(
    '/statusz',
    page((accept) => {
      const listed = new Set(paths.paths().map((path) => /^\/[^/]*/.exec(path)?.[0] ?? ''));
      return statuszResponse(accept, COMPONENT, {
        ...statusz(),
        paths: [...listed].filter((path) => !NOT_LISTED.has(path)).toSorted(),
      });
    }),
  );
}

function page(respond: (accept: string | undefined) => ZpageResponse): PathHandler {
  return (request) => {
    const { status, type, parameters = '', body, warning } = respond(request.header('accept'));
    const headers = request.responseHeaders(type + parameters);
    if (warning !== undefined) headers['warning'] = warning;
    request.status = status;
    request.responseBytes = body.length;
    request.exchange.send(status, headers, body);
  };
}
