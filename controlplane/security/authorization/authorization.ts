/** Defines the interface of authorizers. */
import type { UserInfo } from '../../model/user-info.ts';

/** One requirement of a label or field selector that a request is restricted to. */
export interface SelectorRequirement {
  readonly key: string;
  readonly operator: string;
  readonly values: readonly string[];
}

/** What an authorizer may know of a request: the fields of a SubjectAccessReview. */
export interface AuthorizationAttributes {
  readonly user: UserInfo;
  readonly verb: string;
  readonly isResourceRequest: boolean;
  /** The API group of a resource request; it is empty otherwise, like the fields below. */
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
  /**
   * The path of the request. Empty for resources if the attributes are those of an access review, an admission plugin or a
   * client in this process.
   */
  readonly path: string;
  readonly fieldSelector?: readonly SelectorRequirement[];
  readonly labelSelector?: readonly SelectorRequirement[];
}

/** The answer of an authorizer. The reason is shown to the client and stands in the audit log. */
export interface Decision {
  readonly decision: 'allow' | 'deny' | 'no-opinion';
  readonly reason: string;
  readonly evaluationError?: string;
}

/** Decides whether a user may do something. `no-opinion` leaves the decision to the next authorizer. */
export interface Authorizer {
  /**
   * Authorizes a request. Never throws: a fault becomes `no-opinion` or `deny` with an `evaluationError`. It returns
   * synchronously if possible.
   */
  authorize(attributes: AuthorizationAttributes): Decision | Promise<Decision>;
}

/** A rule as SelfSubjectRulesReview lists it. */
export interface ResourceRule {
  readonly verbs: readonly string[];
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
}

/** A rule for paths, as SelfSubjectRulesReview lists it. A URL may end in `*`. */
export interface NonResourceRule {
  readonly verbs: readonly string[];
  readonly nonResourceURLs: readonly string[];
}

/** Enumerates rules for SelfSubjectRulesReview. */
export interface RuleResolver {
  rulesFor(
    user: UserInfo,
    namespace: string,
  ): {
    readonly resourceRules: readonly ResourceRule[];
    readonly nonResourceRules: readonly NonResourceRule[];
    readonly incomplete: boolean;
    readonly evaluationError?: string;
  };
}
