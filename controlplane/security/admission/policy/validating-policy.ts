/**
 * ValidatingAdmissionPolicy: policies in CEL validate requests. The actions of a binding decide whether a violation is denied,
 * returned as a warning, or only written to the audit log.
 */
import { stringifyJson } from '../../../../api/codec/json.ts';
import {
  validatingAdmissionPolicies,
  validatingAdmissionPolicyBindings,
  type ResourceOf,
} from '../../../../api/client/resources.ts';
import { newForbidden, newStatusError, type StatusError } from '../../../../api/meta/status-error.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import { TimeSlice } from '../../../../api/machinery/time-slice.ts';
import { typeNameOf } from '../../../../api/cel/values.ts';
import type { Authorizer } from '../../authorization/authorization.ts';
import type { AdmissionAttributes, AdmissionPlugin } from '../admission.ts';
import { namespaceOf } from '../pod-attributes.ts';
import { type CompiledPolicy, type CompiledValidation, compiledPolicy, variablesOf } from './compiled-policy.ts';
import {
  authorizerFor,
  Bindings,
  conditionsMatch,
  ExpressionError,
  requestValue,
  type RequestView,
} from './expressions.ts';
import { type PolicyInvocation, ParamsError, PolicyMatcher, type PolicyMatcherOptions } from './policy-matcher.ts';
import type { Policy, PolicyBinding } from './policy-types.ts';
import { viewOf } from './request-view.ts';

/** What both kinds of policies need. The authorizer answers the CEL variable `authorizer`. */
export interface PolicyPluginOptions extends Omit<PolicyMatcherOptions, 'policies' | 'bindings'> {
  readonly authorizer: Authorizer;
  readonly clock: Pick<Clock, 'monotonic'>;
}

interface Refusal {
  readonly policy: string;
  /** `''` if the error is in the policy itself. */
  readonly binding: string;
  readonly message: string;
  readonly reason: string;
  readonly index: number;
  /** Whether the request is denied whatever the actions of the binding are. */
  readonly always: boolean;
}

const CODES: ReadonlyMap<string, number> = new Map(
  Object.entries({
    Unauthorized: 401,
    Forbidden: 403,
    RequestEntityTooLarge: 413,
    Invalid: 422,
  }),
);
const FAILURES = 'validation.policy.admission.k8s.io/validation_failure';

/** Creates the plugin, which refuses with the HTTP status that belongs to the reason of the violated validation. */
export function validatingAdmissionPolicy(options: PolicyPluginOptions): AdmissionPlugin {
  const matcher = new PolicyMatcher({
    ...options,
    policies: validatingAdmissionPolicies as ResourceOf<Policy>,
    bindings: validatingAdmissionPolicyBindings as ResourceOf<PolicyBinding>,
  });
  return {
    name: 'ValidatingAdmissionPolicy',
    handles: () => true,
    async validate(attributes, signal) {
      const invocations = await matcher.invocations(attributes);
      if (invocations.length === 0) return;
      const namespace = await matcher.namespace(attributes.namespace);
      const denied: Refusal[] = [];
      const audited: object[] = [];
      const annotations = new AuditAnnotations();
      const slice = new TimeSlice(options.clock);
      const request: PolicyRequest = { matcher, attributes, namespace, options, annotations, slice, signal };
      for (const invocation of invocations) {
        const actions = invocation.binding.spec?.validationActions ?? [];
        for (const refusal of await refusalsOf(invocation, request)) {
          if (refusal.always || actions.includes('Deny')) denied.push(refusal);
          if (refusal.always) continue;
          if (actions.includes('Warn')) attributes.warn(warning(refusal));
          if (actions.includes('Audit')) audited.push(auditEntry(refusal, actions));
        }
      }
      // An audit annotation can be written once, so it has the first failure.
      if (audited.length > 0) attributes.annotate(FAILURES, stringifyJson(audited.slice(0, 1)));
      for (const [key, text] of annotations.texts()) attributes.annotate(key, text);
      const [first] = denied;
      if (first !== undefined) throw denial(attributes, first);
    },
  };
}

/** A request, with what the evaluation of each of its policies needs. */
interface PolicyRequest {
  readonly matcher: PolicyMatcher;
  readonly attributes: AdmissionAttributes;
  readonly namespace: KubeObject | undefined;
  readonly options: PolicyPluginOptions;
  readonly annotations: AuditAnnotations;
  readonly slice: TimeSlice;
  readonly signal: AbortSignal;
}

async function refusalsOf(invocation: PolicyInvocation, request: PolicyRequest): Promise<Refusal[]> {
  const policy = compiledPolicy(invocation.policy);
  const base = { policy: policy.name, binding: invocation.binding.metadata.name ?? '', reason: 'Invalid', index: 0 };
  try {
    const params = await request.matcher.params(invocation, namespaceOf(request.attributes));
    const refusals: Refusal[] = [];
    for (const param of params) {
      request.signal.throwIfAborted();
      for (const { message, validation, always = false } of await findingsOf(policy, invocation, param, request)) {
        const { index, reason } = validation ?? base;
        refusals.push({ ...base, message, index, reason, always });
      }
    }
    return refusals;
  } catch (error) {
    if (error instanceof ParamsError) {
      const binding = error.ofPolicy ? '' : base.binding;
      return policy.failsClosed ? [{ ...base, binding, message: error.message, always: true }] : [];
    }
    if (error instanceof ExpressionError) {
      return policy.failsClosed ? [{ ...base, message: error.message, always: false }] : [];
    }
    throw error;
  }
}

interface Finding {
  readonly message: string;
  readonly validation?: CompiledValidation;
  readonly always?: boolean;
}

async function findingsOf(
  policy: CompiledPolicy,
  invocation: PolicyInvocation,
  param: KubeObject | undefined,
  request: PolicyRequest,
): Promise<Finding[]> {
  const view = await viewOf(request.attributes, invocation.as, request.options.conversion);
  const bindings = policyBindings(policy, { ...request, view, param });
  if (!(await conditionsMatch(policy.conditions, bindings))) return [];
  const findings: Finding[] = [];
  for (const validation of policy.validations) {
    try {
      if ((await validation.expression.evaluate(bindings)) === true) continue;
      findings.push({ message: await messageOf(validation, bindings), validation });
    } catch (error) {
      if (!(error instanceof ExpressionError)) throw error;
      // If the evaluation fails, the failurePolicy decides.
      if (policy.failsClosed)
        findings.push({ message: error.message, validation: { ...validation, reason: 'Invalid' } });
    }
  }
  findings.push(...(await annotationFindings(policy, bindings, request.annotations)));
  return findings;
}

/** The maximum number of characters of one audit annotation. kube-apiserver has the same number of bytes. */
const MAX_CHARACTERS = 10 * 1024;
/** The maximum of all audit annotations of a request together: a binding may select thousands of parameters. */
const MAX_TOTAL_CHARACTERS = 256 * 1024;

/** The audit annotations of one request: the distinct values of each key, as far as they fit. */
class AuditAnnotations {
  readonly #values = new Map<string, Set<string>>();
  #left = MAX_TOTAL_CHARACTERS;

  add(key: string, value: string): void {
    const text = value.slice(0, MAX_CHARACTERS);
    const values = this.#values.get(key);
    if (values?.has(text) === true || text.length > this.#left) return;
    this.#left -= text.length;
    if (values === undefined) this.#values.set(key, new Set([text]));
    else values.add(text);
  }

  /** Returns each key with its values as one text. */
  texts(): [key: string, text: string][] {
    return [...this.#values].map(([key, values]) => [key, [...values].join(', ')]);
  }
}

/** Adds the audit annotations of a policy. Returns findings for wrong types and, if the policy fails closed, for failures. */
async function annotationFindings(
  policy: CompiledPolicy,
  bindings: Bindings,
  annotations: AuditAnnotations,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const { key, value } of policy.audits) {
    try {
      const result = await value.evaluate(bindings);
      if (result !== null && typeof result !== 'string') {
        // The failurePolicy does not apply to this error.
        const why = `resulted in unsupported return type: ${typeNameOf(result)}. Return type must be either string or null.`;
        findings.push({ message: `valueExpression '${value.source}' ${why}`, always: true });
        continue;
      }
      const text = (result ?? '').trim();
      if (text === '') continue;
      annotations.add(`${policy.name}/${key}`, text);
    } catch (error) {
      if (!(error instanceof ExpressionError)) throw error;
      if (policy.failsClosed) findings.push({ message: error.message, always: true });
    }
  }
  return findings;
}

/** Returns the variables that a policy's expressions can use. */
export function policyBindings(
  policy: CompiledPolicy,
  parts: {
    readonly attributes: AdmissionAttributes;
    readonly namespace: KubeObject | undefined;
    readonly view: RequestView;
    readonly param: KubeObject | undefined;
    readonly options: Pick<PolicyPluginOptions, 'authorizer'>;
    readonly slice: TimeSlice;
  },
): Bindings {
  const { attributes, namespace, view, param, options, slice } = parts;
  const bindings: Bindings = new Bindings(
    {
      object: () => view.object,
      oldObject: () => view.oldObject,
      request: () => requestValue(attributes, view),
      params: () => param,
      namespaceObject: () => namespace,
      authorizer: () => authorizerFor(options.authorizer, attributes),
      variables: () => variablesOf(policy, () => bindings),
    },
    slice,
  );
  return bindings;
}

/** The maximum number of characters of a message that an expression computes. kube-apiserver has the same number of bytes. */
const MAX_MESSAGE_CHARACTERS = 5 * 1024;

/** Returns the message of a failed validation: the result of its expression, if it is usable, or else the fixed message. */
async function messageOf(validation: CompiledValidation, bindings: Bindings): Promise<string> {
  const plain = validation.message === '' ? `failed expression: ${validation.expression.source}` : validation.message;
  if (validation.messageExpression === undefined) return plain;
  try {
    const result = await validation.messageExpression.evaluate(bindings);
    if (typeof result !== 'string') return plain;
    const text = result.trim();
    return text === '' || text.includes('\n') || text.length > MAX_MESSAGE_CHARACTERS ? plain : text;
  } catch (error) {
    if (error instanceof ExpressionError) return plain;
    throw error;
  }
}

const quoted = ({ policy, binding }: Refusal): string =>
  `ValidatingAdmissionPolicy '${policy}'${binding === '' ? '' : ` with binding '${binding}'`}`;

function warning(refusal: Refusal): string {
  return `Validation failed for ${quoted(refusal)}: ${refusal.message}`;
}

function auditEntry({ message, policy, binding, index }: Refusal, actions: readonly string[]): object {
  return { message, policy, binding, expressionIndex: index, validationActions: actions };
}

function denial(attributes: AdmissionAttributes, refusal: Refusal): StatusError {
  const { group, resource } = attributes.resource;
  const message = `${quoted(refusal)} denied request: ${refusal.message}`;
  const name =
    attributes.name || attributes.object?.metadata.name || attributes.object?.metadata.generateName || 'Unknown';
  const { status } = newForbidden({ group, resource }, name, message);
  const reason = CODES.has(refusal.reason) ? refusal.reason : 'Invalid';
  return newStatusError(CODES.get(reason) ?? 422, reason, status.message ?? message, {
    details: { ...status.details, causes: [{ message }] },
  });
}
