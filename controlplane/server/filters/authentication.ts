/** Authenticates the request: sets its user, or refuses it with a 401. */
import type { Logger } from '../../../api/component/logger.ts';
import { newUnauthorized } from '../../../api/meta/status-error.ts';
import type {
  Authenticated,
  Authenticator,
  ClientConnection,
  Credentials,
} from '../../security/authentication/authentication.ts';
import type { UserInfo } from '../../model/user-info.ts';
import type { RequestHeaders } from '../exchange.ts';
import type { AuditSink } from './audit.ts';
import type { ApiRequest, Filter, Handler, MaybePromise } from '../request.ts';
import { ANONYMOUS_USER, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP } from '../../../api/meta/system-users.ts';

/** The authenticator, and where its refusals are recorded. */
interface AuthenticationOptions {
  readonly authenticator: Authenticator;
  readonly logger: Logger;
  /** Called for requests that are refused here. The audit filter handles all others. */
  readonly audit?: AuditSink | undefined;
}

/** Answers 401 if no authenticator knows the client, or if one refuses it. */
export function authenticationFilter(options: AuthenticationOptions): Filter {
  const { authenticator } = options;
  return (request, next) => {
    let result: MaybePromise<Authenticated | undefined>;
    try {
      result = authenticator.authenticate(new RequestCredentials(request));
    } catch (error) {
      return refuse(request, error, options);
    }
    if (result instanceof Promise) {
      return result.then(
        (authenticated) => proceed(request, authenticated, next, options),
        (error: unknown) => refuse(request, error, options),
      );
    }
    return proceed(request, result, next, options);
  };
}

class RequestCredentials implements Credentials {
  readonly #request: ApiRequest;

  constructor(request: ApiRequest) {
    this.#request = request;
  }

  get headers(): RequestHeaders {
    return this.#request.exchange.headers;
  }

  get rawHeaders(): readonly string[] | undefined {
    return this.#request.exchange.rawHeaders;
  }

  get connection(): ClientConnection {
    return this.#request.exchange.connection;
  }

  get path(): string {
    return this.#request.info.path;
  }

  warn(text: string): void {
    this.#request.warn(text);
  }

  annotate(key: string, value: string): void {
    this.#request.annotate(key, value);
  }
}

/** Throws a 401: at once, or after audit has recorded the refusal if requests wait for it. */
function refuse(request: ApiRequest, error: unknown, { audit, logger }: AuthenticationOptions): MaybePromise<never> {
  logger.debug({ err: error }, 'Authentication failed');
  const recorded = audit?.received(request);
  if (recorded === undefined) throw newUnauthorized();
  return recorded.then(() => {
    throw newUnauthorized();
  });
}

function proceed(
  request: ApiRequest,
  authenticated: Authenticated | undefined,
  next: Handler,
  options: AuthenticationOptions,
): MaybePromise<void> {
  if (authenticated === undefined) return refuse(request, undefined, options);
  request.user = withAuthenticatedGroup(authenticated.user);
  if (authenticated.user.name !== ANONYMOUS_USER) request.exchange.connection.accepted?.();
  return next(request);
}

/** Adds the group of all authenticated users, except to the anonymous user and to a user of the unauthenticated group. */
function withAuthenticatedGroup(user: UserInfo): UserInfo {
  if (user.name === ANONYMOUS_USER) return user;
  const { groups } = user;
  if (groups.includes(AUTHENTICATED_GROUP) || groups.includes(UNAUTHENTICATED_GROUP)) return user;
  return { ...user, groups: [...groups, AUTHENTICATED_GROUP] };
}
