/** Which review answers under which path: what main.ts hands to the registry. */
import type { Clock } from '../../api/machinery/clock.ts';
import type { Sources } from '../admission/sources.ts';
import type { TokenAuthenticator } from '../authentication/authentication.ts';
import type { TokenIssuer } from '../authentication/token-issuer.ts';
import type { Authorizer, RuleResolver } from '../authorization/authorization.ts';
import { localSubjectAccessReviewer, selfSubjectAccessReviewer, subjectAccessReviewer } from './access-review.ts';
import type { ReviewEndpoint } from './review-rest.ts';
import { rulesReviewer } from './rules-review.ts';
import { selfSubjectReviewer } from './self-subject-review.ts';
import { tokenRequester } from './token-request.ts';
import { tokenReviewer } from './token-review.ts';

export interface ReviewersOptions {
  readonly clock: Clock;
  readonly sources: Sources;
  readonly authorizer: Authorizer;
  readonly rules: RuleResolver;
  readonly tokens: TokenAuthenticator;
  readonly apiAudiences: readonly string[];
  readonly issuer: TokenIssuer;
  /** `--service-account-extend-token-expiration`. */
  readonly extendExpiration: boolean;
  /** `--service-account-max-token-expiration`; 0: no limit. */
  readonly maxExpirationSeconds: number;
}

export function reviewers(options: ReviewersOptions): ReviewEndpoint[] {
  const authorization = 'authorization.k8s.io';
  const authentication = 'authentication.k8s.io';
  return [
    {
      group: authorization,
      resource: 'selfsubjectaccessreviews',
      review: selfSubjectAccessReviewer(options.authorizer),
    },
    { group: authorization, resource: 'subjectaccessreviews', review: subjectAccessReviewer(options.authorizer) },
    {
      group: authorization,
      resource: 'localsubjectaccessreviews',
      review: localSubjectAccessReviewer(options.authorizer),
    },
    { group: authorization, resource: 'selfsubjectrulesreviews', review: rulesReviewer(options.rules) },
    { group: authentication, resource: 'selfsubjectreviews', review: selfSubjectReviewer(options.clock) },
    { group: authentication, resource: 'tokenreviews', review: tokenReviewer(options.tokens, options.apiAudiences) },
    { group: '', resource: 'serviceaccounts', subresource: 'token', review: tokenRequester(options) },
  ];
}
