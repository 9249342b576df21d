/**
 * Implements `authorizer` in CEL expressions.
 *
 * If the decision is not available at once, the expression is suspended (`Pending`) and run again when the decision is
 * available.
 */
import { stringifyJson } from '../codec/json.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../meta/names.ts';
import { type FunctionRow, method, type Spending } from './functions.ts';
import { bool, opaque, string } from './types.ts';
import { CelError, OpaqueValue, Pending } from './values.ts';

/** The attributes that the chain of calls has collected. Absent texts are '', and an absent version is `*`. */
export interface CheckAttributes {
  readonly serviceAccount?: { readonly namespace: string; readonly name: string };
  /** Set for a non-resource path. */
  readonly path?: string;
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
  readonly fieldSelector?: string;
  readonly labelSelector?: string;
  readonly verb: string;
}

/** The decision, as `allowed()`, `reason()` and `error()` return it. */
export interface CheckDecision {
  readonly allowed: boolean;
  readonly reason: string;
  readonly error?: string;
}

type Check = (attributes: CheckAttributes) => CheckDecision | Promise<CheckDecision>;

const NOTHING: CheckAttributes = {
  group: '',
  version: '*',
  resource: '',
  subresource: '',
  namespace: '',
  name: '',
  verb: '',
};

class Decider {
  readonly #check: Check;
  readonly #decided = new Map<string, CheckDecision>();

  constructor(check: Check) {
    this.#check = check;
  }

  decide(attributes: CheckAttributes): CheckDecision {
    const key = stringifyJson(attributes);
    const decided = this.#decided.get(key);
    if (decided !== undefined) return decided;
    const decision = this.#check(attributes);
    if (decision instanceof Promise) {
      throw new Pending(
        decision.then((value) => {
          this.#decided.set(key, value);
        }),
      );
    }
    this.#decided.set(key, decision);
    return decision;
  }
}

class Builder extends OpaqueValue {
  readonly typeName: string;
  readonly decider: Decider;
  readonly attributes: CheckAttributes;
  constructor(typeName: string, decider: Decider, attributes: CheckAttributes) {
    super();
    this.typeName = typeName;
    this.decider = decider;
    this.attributes = attributes;
  }
  equals(other: OpaqueValue): boolean {
    return other === this;
  }
  with(typeName: string, more: Partial<CheckAttributes>): Builder {
    return new Builder(typeName, this.decider, { ...this.attributes, ...more });
  }
}

class DecisionValue extends OpaqueValue {
  readonly typeName = 'kubernetes.authorization.Decision';
  readonly decision: CheckDecision;
  constructor(decision: CheckDecision) {
    super();
    this.decision = decision;
  }
  equals(other: OpaqueValue): boolean {
    return other === this;
  }
}

const AUTHORIZER = 'kubernetes.authorization.Authorizer';
const GROUP = 'kubernetes.authorization.GroupCheck';
const RESOURCE = 'kubernetes.authorization.ResourceCheck';
const PATH = 'kubernetes.authorization.PathCheck';

/** The type of the variable `authorizer`. */
export const authorizerType = opaque(AUTHORIZER);
const group = opaque(GROUP);
const resource = opaque(RESOURCE);
const path = opaque(PATH);
const decision = opaque('kubernetes.authorization.Decision');

class Root extends Builder {
  readonly #request: CheckAttributes;
  constructor(decider: Decider, request: CheckAttributes) {
    super(AUTHORIZER, decider, NOTHING);
    this.#request = request;
  }
  override member(name: string): Builder | undefined {
    return name === 'requestResource' ? new Builder(RESOURCE, this.decider, this.#request) : undefined;
  }
}

/** Creates the value of `authorizer`. `request` holds the attributes of `requestResource`. */
export function authorizerValue(check: Check, request: Omit<CheckAttributes, 'verb'> = NOTHING): OpaqueValue {
  return new Root(new Decider(check), { ...request, verb: '' });
}

/** Declares the method that sets an attribute of a resource check. */
const set = (name: string, typeName: string, more: (value: string) => Partial<CheckAttributes>): FunctionRow =>
  method(name, [resource, string], resource, (builder: Builder, value: string) => builder.with(typeName, more(value)));

/** The cost of a check, which allows two of them in an expression (k8s.io/apiserver/pkg/cel/library). */
export const CHECK_COST = 350_000;

function check(builder: Builder, verb: string, spending: Spending): DecisionValue {
  const decided = new DecisionValue(builder.decider.decide({ ...builder.attributes, verb }));
  // The call itself has cost 1 already.
  spending.spend(CHECK_COST - 1);
  return decided;
}

function notBlank(text: string, why: string): string {
  if (text.trim() === '') throw new CelError(why);
  return text;
}

/** The methods of the library, with Kubernetes' signatures. */
export const authorizerFunctions: readonly FunctionRow[] = [
  method('group', [authorizerType, string], group, (builder: Builder, name: string) =>
    builder.with(GROUP, { group: name }),
  ),
  method(
    'serviceAccount',
    [authorizerType, string, string],
    authorizerType,
    (builder: Builder, namespace: string, name: string) => {
      if (dnsSubdomainErrors(name).length > 0) throw new CelError('Invalid service account name');
      if (dnsLabelErrors(namespace).length > 0) throw new CelError('Invalid service account namespace');
      return builder.with(AUTHORIZER, { serviceAccount: { namespace, name } });
    },
  ),
  method('path', [authorizerType, string], path, (builder: Builder, text: string) =>
    builder.with(PATH, { path: notBlank(text, 'path must not be empty') }),
  ),
  method('resource', [group, string], resource, (builder: Builder, name: string) =>
    builder.with(RESOURCE, { resource: notBlank(name, 'resource must not be empty') }),
  ),
  set('subresource', RESOURCE, (subresource) => ({ subresource })),
  set('namespace', RESOURCE, (namespace) => ({ namespace })),
  set('name', RESOURCE, (name) => ({ name })),
  set('fieldSelector', RESOURCE, (fieldSelector) => ({ fieldSelector })),
  set('labelSelector', RESOURCE, (labelSelector) => ({ labelSelector })),
  method('check', [resource, string], decision, check),
  method('check', [path, string], decision, check),
  method('allowed', [decision], bool, (value: DecisionValue) => value.decision.allowed),
  method('reason', [decision], string, (value: DecisionValue) => value.decision.reason),
  method('errored', [decision], bool, (value: DecisionValue) => value.decision.error !== undefined),
  method('error', [decision], string, (value: DecisionValue) => value.decision.error ?? ''),
];
