/**
 * Implements SelfSubjectRulesReview: what the caller may do in a namespace, as far as the authorizers can enumerate it.
 */
import { newBadRequest } from '../../../api/meta/status-error.ts';
import type { SelfSubjectRulesReview } from '../../../api/kinds/kinds.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import type { ResourceRule, RuleResolver } from '../../security/authorization/authorization.ts';
import type { Reviewer } from './review-rest.ts';

/** Implements SelfSubjectRulesReview. Throws 400 without a namespace. */
export function rulesReviewer(rules: RuleResolver): Reviewer {
  return ({ object, user }) => {
    const { spec } = object as KubeObject as SelfSubjectRulesReview;
    const namespace = spec?.namespace ?? '';
    if (namespace === '') throw newBadRequest('no namespace on request');
    const found = rules.rulesFor(user, namespace);
    return {
      apiVersion: object.apiVersion ?? '',
      kind: object.kind ?? '',
      metadata: {},
      spec: {},
      status: {
        resourceRules: found.resourceRules.map(ruleJson),
        nonResourceRules: found.nonResourceRules,
        incomplete: found.incomplete,
        ...(found.evaluationError === undefined ? {} : { evaluationError: found.evaluationError }),
      },
    };
  };
}

function ruleJson(rule: ResourceRule): Record<string, unknown> {
  return {
    verbs: rule.verbs,
    ...(rule.apiGroups.length === 0 ? {} : { apiGroups: rule.apiGroups }),
    ...(rule.resources.length === 0 ? {} : { resources: rule.resources }),
    ...(rule.resourceNames === undefined ? {} : { resourceNames: rule.resourceNames }),
  };
}
