/** Implements TokenReview: whether a bearer token is valid, for which user and for which audiences. */
import { newBadRequest } from '../../api/meta/status-error.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { TokenReview } from '../../api/kinds/kinds.ts';
import type { TokenAuthenticator } from '../authentication/authentication.ts';
import { INVALID_BEARER_TOKEN } from '../authentication/bearer.ts';
import { messagesOf } from '../authentication/union.ts';
import type { Reviewer } from './review-rest.ts';
import { userInfoJson } from '../model/user-info.ts';

/** Implements TokenReview. `apiAudiences` are the audiences of a review that names none. Throws 400 without a token. */
export function tokenReviewer(tokens: TokenAuthenticator, apiAudiences: readonly string[]): Reviewer {
  return async ({ object }) => {
    const { spec } = object as KubeObject as TokenReview;
    const token = spec?.token ?? '';
    if (token === '') throw newBadRequest('token is required for TokenReview in authentication');
    if ((object.metadata.namespace ?? '') !== '')
      throw newBadRequest(`namespace is not allowed on this type: ${object.metadata.namespace}`);
    const asked = spec.audiences ?? [];
    const wanted = asked.length > 0 ? asked : apiAudiences;
    object['status'] = await statusOf(tokens, token, wanted);
    return object;
  };
}

async function statusOf(
  tokens: TokenAuthenticator,
  token: string,
  wanted: readonly string[],
): Promise<Record<string, unknown>> {
  try {
    const known = await tokens.authenticateToken(token, wanted);
    if (known === undefined) return { user: {}, error: INVALID_BEARER_TOKEN };
    const audiences = known.audiences ?? [];
    return {
      authenticated: true,
      user: userInfoJson(known.user),
      ...(audiences.length === 0 ? {} : { audiences }),
    };
  } catch (error) {
    return { user: {}, error: `[${[INVALID_BEARER_TOKEN, ...messagesOf(error)].join(', ')}]` };
  }
}
