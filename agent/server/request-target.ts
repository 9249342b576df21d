/**
 * Parses the path and query of a request to the agent's server. Authorization, routing, streams and metrics use the same
 * result. A path that could be parsed differently (dot segments, empty segments, encoded slashes, backslashes) is rejected,
 * because no path of the agent has them.
 */
import {
  apiForwardingFault,
  parseRequestPath,
  type RequestPath,
  RequestPathError,
  splitTarget,
} from '../../api/http/request-path.ts';
import { newBadRequest } from '../../api/meta/status-error.ts';

/** A parsed path, and the query that was sent with it. */
export interface RequestTarget {
  readonly path: RequestPath;
  /** The query without the question mark. */
  readonly query: string;
}

/** Parses the target of an HTTP request. Throws a `StatusError` with code 400 for a target that is not valid. */
export function parseTarget(target: string | undefined): RequestTarget {
  const { path: raw, query } = splitTarget(target ?? '/');
  const path = readPath(raw);
  const fault = apiForwardingFault(path, query);
  if (fault !== '') throw newBadRequest(`the path is not valid: ${fault}`);
  return { path, query };
}

function readPath(raw: string): RequestPath {
  try {
    return parseRequestPath(raw);
  } catch (error) {
    if (error instanceof RequestPathError) throw newBadRequest(error.message);
    throw error;
  }
}
