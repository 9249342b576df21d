/** Lists the review endpoints and their paths. */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Listers } from '../../model/listers.ts';
import type { Authenticated, TokenAuthenticator } from '../../security/authentication/authentication.ts';
import type { TokenIssuer } from '../../security/authentication/token-issuer.ts';
import type { Authorizer, RuleResolver } from '../../security/authorization/authorization.ts';
import { localSubjectAccessReviewer, selfSubjectAccessReviewer, subjectAccessReviewer } from './access-review.ts';
import type { ReviewEndpoint, Reviewer } from './review-rest.ts';
import { rulesReviewer } from './rules-review.ts';
import { selfSubjectReviewer } from './self-subject-review.ts';
import { tokenRequestDefaults, tokenRequester } from './token-request.ts';
import { tokenReviewer } from './token-review.ts';

/** What the reviewers of all endpoints need. */
interface ReviewersOptions {
  readonly clock: Clock;
  readonly listers: Listers;
  readonly authorizer: Authorizer;
  readonly rules: RuleResolver;
  readonly tokens: TokenAuthenticator;
  /** The user whom a TokenReview reports if its text contains no token. `undefined` if the review then reports no user. */
  readonly anonymous: Authenticated | undefined;
  readonly apiAudiences: readonly string[];
  readonly issuer: TokenIssuer;
  /** The value of `--service-account-extend-token-expiration`. */
  readonly extendExpiration: boolean;
  /** The value of `--service-account-max-token-expiration`; 0 means no limit. */
  readonly maxExpirationSeconds: number;
}

interface ReviewPath extends Omit<ReviewEndpoint, 'review'> {
  make(options: ReviewersOptions): Reviewer;
}

const AUTHORIZATION = 'authorization.k8s.io';
const AUTHENTICATION = 'authentication.k8s.io';

const REVIEW_PATHS: readonly ReviewPath[] = [
  {
    group: AUTHORIZATION,
    resource: 'selfsubjectaccessreviews',
    make: ({ authorizer }) => selfSubjectAccessReviewer(authorizer),
  },
  {
    group: AUTHORIZATION,
    resource: 'subjectaccessreviews',
    make: ({ authorizer }) => subjectAccessReviewer(authorizer),
  },
  {
    group: AUTHORIZATION,
    resource: 'localsubjectaccessreviews',
    make: ({ authorizer }) => localSubjectAccessReviewer(authorizer),
  },
  { group: AUTHORIZATION, resource: 'selfsubjectrulesreviews', make: ({ rules }) => rulesReviewer(rules) },
  { group: AUTHENTICATION, resource: 'selfsubjectreviews', make: ({ clock }) => selfSubjectReviewer(clock) },
  {
    group: AUTHENTICATION,
    resource: 'tokenreviews',
    make: (options) => tokenReviewer(options),
  },
  {
    group: '',
    resource: 'serviceaccounts',
    subresource: 'token',
    applyDefaults: tokenRequestDefaults,
    make: (options) => tokenRequester(options),
  },
];

/** Returns the review endpoints. */
export function reviewEndpoints(options: ReviewersOptions): ReviewEndpoint[] {
  return REVIEW_PATHS.map(({ make, ...path }) => ({ ...path, review: make(options) }));
}
