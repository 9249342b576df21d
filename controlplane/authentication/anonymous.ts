/** Whoever nobody knows, and nobody refused, is `system:anonymous`. Last in the list. */
import { UNAUTHENTICATED_GROUP } from './union.ts';
import type { Authenticator } from './authentication.ts';

const ANONYMOUS_USER = 'system:anonymous';

/** `paths`: only there; absent: everywhere. */
export function anonymousAuthenticator(paths?: readonly string[]): Authenticator {
  const anonymous = { user: { name: ANONYMOUS_USER, groups: [UNAUTHENTICATED_GROUP] } };
  return {
    authenticate: (credentials) =>
      paths === undefined || paths.includes(credentials.path ?? '') ? anonymous : undefined,
  };
}
