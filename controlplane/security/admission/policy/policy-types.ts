/** Defines the types of the parts of admission policies and bindings that are evaluated. Both kinds of policies share them. */
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { Webhook } from '../webhook/matching.ts';
import type { NamedCondition } from './expressions.ts';

type Rule = NonNullable<Webhook['rules']>[number];

/** A rule of operations and resources that can be restricted to objects by name. */
interface NamedRule extends Rule {
  readonly resourceNames?: string[];
}

/** Selects requests by rules, namespace labels and object labels; a request must match all three. */
export interface MatchResources {
  readonly resourceRules?: readonly NamedRule[];
  readonly excludeResourceRules?: readonly NamedRule[];
  readonly matchPolicy?: string;
  readonly namespaceSelector?: Webhook['namespaceSelector'];
  readonly objectSelector?: Webhook['objectSelector'];
}

/** A CEL expression that must be true, with the message and reason of a refusal. */
interface Validation {
  readonly expression: string;
  readonly message?: string;
  readonly messageExpression?: string;
  readonly reason?: string;
}

/** How a request is changed. `patchType` says which of the two members is set. */
interface Mutation {
  readonly patchType: string;
  readonly applyConfiguration?: { readonly expression?: string };
  readonly jsonPatch?: { readonly expression?: string };
}

/** A ValidatingAdmissionPolicy or a MutatingAdmissionPolicy. */
export interface Policy extends KubeObject {
  spec?: {
    readonly paramKind?: { readonly apiVersion?: string; readonly kind?: string };
    readonly matchConstraints?: MatchResources;
    readonly matchConditions?: readonly NamedCondition[];
    readonly variables?: readonly NamedCondition[];
    readonly failurePolicy?: string;
    readonly validations?: readonly Validation[];
    readonly auditAnnotations?: readonly { readonly key: string; readonly valueExpression: string }[];
    readonly mutations?: readonly Mutation[];
    readonly reinvocationPolicy?: string;
  };
}

/** Puts a policy into effect for some requests and parameters. */
export interface PolicyBinding extends KubeObject {
  spec?: {
    readonly policyName?: string;
    readonly paramRef?: {
      readonly name?: string;
      readonly namespace?: string;
      readonly selector?: object;
      readonly parameterNotFoundAction?: string;
    };
    readonly matchResources?: MatchResources;
    readonly validationActions?: readonly string[];
  };
}
