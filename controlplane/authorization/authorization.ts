/** What an authorizer is. `union.ts` asks them in the order of `--authorization-mode` until one decides. */
import type { UserInfo } from '../authentication/authentication.ts';

export interface SelectorRequirement {
  readonly key: string;
  readonly operator: string;
  readonly values: readonly string[];
}

export interface AuthorizationAttributes {
  readonly user: UserInfo;
  readonly verb: string;
  readonly isResourceRequest: boolean;
  /** Resource requests; empty strings otherwise. */
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
  /** Of the request; always set. */
  readonly path: string;
  readonly fieldSelector?: readonly SelectorRequirement[];
  readonly labelSelector?: readonly SelectorRequirement[];
}

export interface Decision {
  readonly decision: 'allow' | 'deny' | 'no-opinion';
  readonly reason: string;
  readonly evaluationError?: string;
}

export interface Authorizer {
  /** Never throws: a fault is `no-opinion` or `deny` with `evaluationError`. Synchronous where it can be: it is on the hot path. */
  authorize(attributes: AuthorizationAttributes): Decision | Promise<Decision>;
}

export interface ResourceRule {
  readonly verbs: readonly string[];
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
}

export interface NonResourceRule {
  readonly verbs: readonly string[];
  readonly nonResourceURLs: readonly string[];
}

/** For SelfSubjectRulesReview. */
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
