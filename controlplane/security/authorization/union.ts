/**
 * Combines authorizers in order, implements the simple ones (AlwaysAllow, AlwaysDeny, privileged groups), and formats
 * the message of a forbidden request.
 */
import { quote } from '../../../api/meta/field-error.ts';
import type { AuthorizationAttributes, Authorizer, Decision, RuleResolver } from './authorization.ts';

const NO_ANSWERS: readonly Decision[] = [];
const NO_OPINION: Decision = { decision: 'no-opinion', reason: '' };

/** The authorizer of `--authorization-mode=AlwaysAllow`. */
export const alwaysAllow: Authorizer & RuleResolver = {
  authorize: () => ({ decision: 'allow', reason: '' }),
  rulesFor: () => ({
    resourceRules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }],
    nonResourceRules: [{ verbs: ['*'], nonResourceURLs: ['*'] }],
    incomplete: false,
  }),
};

/** The authorizer of `--authorization-mode=AlwaysDeny`. It has no opinion, so that a later authorizer may allow. */
export const alwaysDeny: Authorizer & RuleResolver = {
  authorize: () => ({ decision: 'no-opinion', reason: 'Everything is forbidden.' }),
  rulesFor: () => ({ resourceRules: [], nonResourceRules: [], incomplete: false }),
};

/**
 * Allows everything to members of the groups, whatever the policy is, so that administrators cannot lock themselves
 * out.
 */
export function privilegedGroups(groups: readonly string[]): Authorizer {
  const allowed: Decision = { decision: 'allow', reason: '' };
  return {
    authorize: ({ user }) => (groups.some((group) => user.groups.includes(group)) ? allowed : NO_OPINION),
  };
}

/**
 * Calls the authorizers in order until one decides. Synchronous until an authorizer returns a promise. If no authorizer has an
 * opinion, the decision is `no-opinion` with all reasons and errors.
 */
export function unionAuthorizer(authorizers: readonly Authorizer[]): Authorizer {
  const authorizeFrom = (
    attributes: AuthorizationAttributes,
    from: number,
    before: readonly Decision[],
  ): Decision | Promise<Decision> => {
    let answers = before;
    for (let i = from; i < authorizers.length; i++) {
      const answer = authorizers[i]?.authorize(attributes) ?? NO_OPINION;
      if (answer instanceof Promise) {
        return answer.then((decision) =>
          decision.decision === 'no-opinion' ? authorizeFrom(attributes, i + 1, [...answers, decision]) : decision,
        );
      }
      if (answer.decision !== 'no-opinion') return answer;
      if (answer.reason !== '' || answer.evaluationError !== undefined) answers = [...answers, answer];
    }
    if (answers.length === 0) return NO_OPINION;
    const errors = answers.flatMap((answer) => answer.evaluationError ?? []);
    return {
      decision: 'no-opinion',
      reason: answers.flatMap((answer) => (answer.reason === '' ? [] : [answer.reason])).join('\n'),
      ...(errors.length === 0
        ? {}
        : { evaluationError: errors.length === 1 ? (errors[0] ?? '') : `[${errors.join(', ')}]` }),
    };
  };
  return { authorize: (attributes) => authorizeFrom(attributes, 0, NO_ANSWERS) };
}

/** Merges the rules of all resolvers. The result is incomplete if a resolver cannot enumerate its rules. */
export function unionRules(resolvers: readonly RuleResolver[]): RuleResolver {
  return {
    rulesFor(user, namespace) {
      const all = resolvers.map((resolver) => resolver.rulesFor(user, namespace));
      const errors = all.flatMap((rules) => rules.evaluationError ?? []);
      return {
        resourceRules: all.flatMap((rules) => rules.resourceRules),
        nonResourceRules: all.flatMap((rules) => rules.nonResourceRules),
        incomplete: all.some((rules) => rules.incomplete),
        ...(errors.length === 0 ? {} : { evaluationError: errors.join(', ') }),
      };
    },
  };
}

/** Returns a message such as `User "ann" cannot list resource "pods" in API group "" in the namespace "x"`. */
export function forbiddenMessage(attributes: AuthorizationAttributes): string {
  return plainMessage(attributes).replace(/[&<>]/g, (char) => ESCAPES.get(char) ?? char);
}

/** The escapes of the message. Clients choose the names and paths in it, and some show it as HTML. */
const ESCAPES: ReadonlyMap<string, string> = new Map(Object.entries({ '&': '&amp;', '<': '&lt;', '>': '&gt;' }));

function plainMessage(attributes: AuthorizationAttributes): string {
  const user = `User ${quote(attributes.user.name)} cannot ${attributes.verb}`;
  if (!attributes.isResourceRequest) return `${user} path ${quote(attributes.path)}`;
  const { resource, subresource } = attributes;
  const shown = subresource === '' ? resource : `${resource}/${subresource}`;
  const where =
    attributes.namespace === '' ? 'at the cluster scope' : `in the namespace ${quote(attributes.namespace)}`;
  return `${user} resource ${quote(shown)} in API group ${quote(attributes.group)} ${where}`;
}
