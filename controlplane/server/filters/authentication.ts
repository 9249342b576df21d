/** Who is asking. The credentials never go further than this. */
import type { Logger } from '../../../api/component/logger.ts';
import { newUnauthorized } from '../../../api/meta/status-error.ts';
import type { Authenticated, Authenticator, Credentials, UserInfo } from '../../authentication/authentication.ts';
import type { ApiRequest, Filter, Handler, MaybePromise } from '../request.ts';

export interface AuthenticationOptions {
  readonly authenticator: Authenticator;
  readonly logger: Logger;
}

const AUTHENTICATED = 'system:authenticated';
const UNAUTHENTICATED = 'system:unauthenticated';
const ANONYMOUS = 'system:anonymous';

export function authenticationFilter(options: AuthenticationOptions): Filter {
  const { authenticator } = options;
  return (request, next) => {
    const { exchange } = request;
    const credentials: Credentials = {
      headers: exchange.headers,
      ...(exchange.rawHeaders === undefined ? {} : { rawHeaders: exchange.rawHeaders }),
      peerCertificate: () => exchange.peerCertificate(),
      remoteAddress: exchange.remoteAddress,
      path: request.info.path,
      warn: (text) => request.warn(text),
      annotate: (key, value) => request.annotate(key, value),
    };
    let result: MaybePromise<Authenticated | undefined>;
    try {
      result = authenticator.authenticate(credentials);
    } catch (error) {
      return refuse(error, options.logger);
    }
    if (result instanceof Promise) {
      return result.then(
        (known) => proceed(request, known, next),
        (error: unknown) => refuse(error, options.logger),
      );
    }
    return proceed(request, result, next);
  };
}

function refuse(error: unknown, logger: Logger): never {
  logger.debug({ err: error }, 'Authentication failed');
  throw newUnauthorized();
}

function proceed(request: ApiRequest, known: Authenticated | undefined, next: Handler): MaybePromise<void> {
  if (known === undefined) throw newUnauthorized();
  request.user = withAuthenticatedGroup(known.user);
  return next(request);
}

/** Everybody who is known belongs to this group, whatever the authenticator says. */
export function withAuthenticatedGroup(user: UserInfo): UserInfo {
  if (user.name === ANONYMOUS) return user;
  const { groups } = user;
  if (groups.includes(AUTHENTICATED) || groups.includes(UNAUTHENTICATED)) return user;
  return { ...user, groups: [...groups, AUTHENTICATED] };
}
