/**
 * Serves `/statusz` and `/flagz`, which kube-apiserver 1.36 serves by default (`ComponentStatusz`, `ComponentFlagz`). The role
 * `system:monitoring` may read both.
 */
import {
  type Flagz,
  flagzResponse,
  type Statusz,
  statuszResponse,
  type ZpageRequest,
  type ZpageResponse,
} from '../../api/http/zpages.ts';
import type { PathHandler, PathHandlers } from './path-handlers.ts';

/** The data of both pages, computed for each request. */
interface ZpagesOptions {
  readonly statusz: () => Omit<Statusz, 'paths'>;
  readonly flagz: () => Flagz;
}

/** The name of kube-apiserver on its pages. */
const COMPONENT = 'apiserver';

/** The paths of APIs, which `/statusz` does not list. */
const NOT_LISTED: ReadonlySet<string> = new Set([
  '/',
  '/index.html',
  '/api',
  '/apis',
  '/openid',
  '/openapi',
  '/.well-known',
]);

/** Serves both pages. `/statusz` lists the first segments of the paths that are handled. */
export function installZpages(paths: PathHandlers, { statusz, flagz }: ZpagesOptions): void {
  paths.exact(
    '/flagz',
    page((request) => flagzResponse(request, COMPONENT, flagz())),
  );
  paths.exact(
    '/statusz',
    page((request) => {
      const listed = new Set(paths.paths().map((path) => /^\/[^/]*/.exec(path)?.[0] ?? ''));
      return statuszResponse(request, COMPONENT, {
        ...statusz(),
        paths: [...listed].filter((path) => !NOT_LISTED.has(path)).toSorted(),
      });
    }),
  );
}

function page(respond: (request: ZpageRequest) => ZpageResponse): PathHandler {
  return (request) => {
    const {
      status,
      type,
      parameters = '',
      body,
      warning,
    } = respond({
      accept: request.header('accept'),
      pretty: request.query.get('pretty'),
      userAgent: request.userAgent,
    });
    const headers = request.responseHeaders(type + parameters);
    if (warning !== undefined) headers['warning'] = warning;
    request.sendWith(status, headers, body);
  };
}
