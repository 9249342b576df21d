/** Implements TokenReview: whether a bearer token is valid, for which user and for which audiences. */
import { newBadRequest } from '../../../api/meta/status-error.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import type { TokenReview } from '../../../api/kinds/kinds.ts';
import type { Authenticated, TokenAuthenticator } from '../../security/authentication/authentication.ts';
import { INVALID_BEARER_TOKEN, reviewedToken } from '../../security/authentication/bearer.ts';
import { messagesOf } from '../../security/authentication/union.ts';
import type { Reviewer } from './review-rest.ts';
import { userInfoJson } from '../../model/user-info.ts';

interface TokenReviewerOptions {
  readonly tokens: TokenAuthenticator;
  /** The audiences of a review that names none. */
  readonly apiAudiences: readonly string[];
  /**
   * The result for a text without a token. kube-apiserver passes it through its whole chain of authenticators, of which the
   * last one makes it anonymous. It is `undefined` if anonymous requests are refused, or only accepted on some paths.
   */
  readonly anonymous: Authenticated | undefined;
}

/** Implements TokenReview. Throws 400 without a text, and for a review with a namespace. */
export function tokenReviewer({ tokens, apiAudiences, anonymous }: TokenReviewerOptions): Reviewer {
  return async ({ object }) => {
    const { spec } = object as KubeObject as TokenReview;
    const text = spec?.token ?? '';
    if (text === '') throw newBadRequest('token is required for TokenReview in authentication');
    if ((object.metadata.namespace ?? '') !== '')
      throw newBadRequest(`namespace is not allowed on this type: ${object.metadata.namespace}`);
    const requested = spec.audiences ?? [];
    const wanted = requested.length > 0 ? requested : apiAudiences;
    const token = reviewedToken(text);
    object['status'] =
      token !== undefined
        ? await statusOf(tokens, token, wanted)
        : anonymous === undefined
          ? { user: {} }
          : authenticated({ ...anonymous, audiences: wanted });
    return object;
  };
}

async function statusOf(
  tokens: TokenAuthenticator,
  token: string,
  wanted: readonly string[],
): Promise<Record<string, unknown>> {
  try {
    const result = await tokens.authenticateToken(token, wanted);
    if (result === undefined) return { user: {}, error: INVALID_BEARER_TOKEN };
    return authenticated(result);
  } catch (error) {
    return { user: {}, error: `[${[INVALID_BEARER_TOKEN, ...messagesOf(error)].join(', ')}]` };
  }
}

function authenticated({ user, audiences = [] }: Authenticated): Record<string, unknown> {
  return { authenticated: true, user: userInfoJson(user), ...(audiences.length === 0 ? {} : { audiences }) };
}
