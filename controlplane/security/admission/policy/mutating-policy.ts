/**
 * MutatingAdmissionPolicy: policies in CEL change the object of a request by an apply configuration or a JSON patch. Policies
 * that ask for reinvocation run once more if any policy changed the object.
 */
import { applyJsonPatch, isTestFailure, patchFailure } from '../../../../api/codec/json-patch.ts';
import { merge } from '../../../../api/codec/structured-merge/merge.ts';
import { mergeTypeOf } from '../../../../api/codec/structured-merge/merge-types.ts';
import { toJson } from '../../../../api/cel/json-value.ts';
import { adapt, CelError, type CelValue, entriesOf } from '../../../../api/cel/values.ts';
import {
  mutatingAdmissionPolicies,
  mutatingAdmissionPolicyBindings,
  type ResourceOf,
} from '../../../../api/client/resources.ts';
import { cloneJson, jsonEqual } from '../../../../api/meta/json-equality.ts';
import { ownMember } from '../../../../api/meta/own-member.ts';
import {
  type GroupVersionKind,
  type JsonValue,
  type KubeObject,
  parseApiVersion,
} from '../../../../api/meta/object.ts';
import { TimeSlice } from '../../../../api/machinery/time-slice.ts';
import { newStatusError, type StatusError } from '../../../../api/meta/status-error.ts';
import type { StructType } from '../../../../api/schema/schema.ts';
import type { AdmissionAttributes, AdmissionPlugin } from '../admission.ts';
import { namespaceOf } from '../pod-attributes.ts';
import { configurationOf } from './apply-configuration.ts';
import { type CompiledMutation, compiledPolicy } from './compiled-policy.ts';
import { conditionsMatch, ExpressionError } from './expressions.ts';
import { type PolicyInvocation, ParamsError, PolicyMatcher } from './policy-matcher.ts';
import type { Policy, PolicyBinding } from './policy-types.ts';
import { viewOf } from './request-view.ts';
import { policyBindings, type PolicyPluginOptions } from './validating-policy.ts';

/** What mutating policies need beyond what both kinds of policies share. */
export interface MutatingPolicyOptions extends PolicyPluginOptions {
  /** Returns the type of a kind, built-in or custom, if the OpenAPI document of its group and version describes it. */
  readonly structOf: (kind: GroupVersionKind) => StructType | undefined;
  /** Runs the mutating plugins before this one again. */
  readonly reinvoke: (attributes: AdmissionAttributes, signal: AbortSignal) => Promise<void>;
}

/** Creates the plugin, which changes the object of the attributes in its mutating step alone. */
export function mutatingAdmissionPolicy(options: MutatingPolicyOptions): AdmissionPlugin {
  const matcher = new PolicyMatcher({
    ...options,
    policies: mutatingAdmissionPolicies as ResourceOf<Policy>,
    bindings: mutatingAdmissionPolicyBindings as ResourceOf<PolicyBinding>,
  });
  return {
    name: 'MutatingAdmissionPolicy',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE' || operation === 'CONNECT',
    async admit(attributes, signal) {
      if (attributes.object === undefined) return;
      const matching = await matcher.invocations(attributes);
      const invocations = attributes.isReinvocation === true ? matching.filter(isReinvocable) : matching;
      if (invocations.length === 0) return;
      const namespace = await matcher.namespace(attributes.namespace);
      const slice = new TimeSlice(options.clock);
      const request: PolicyRequest = { matcher, attributes, namespace, options, slice, signal };
      let changed = false;
      for (const invocation of invocations) {
        changed = (await applyPolicy(invocation, request)) || changed;
      }
      if (!changed || attributes.isReinvocation === true) return;
      // As in kube-apiserver, one change runs the chain once more, also the policy that made it.
      await options.reinvoke(attributes, signal);
      for (const invocation of invocations.filter(isReinvocable)) await applyPolicy(invocation, request);
    },
  };
}

const isReinvocable = ({ policy }: PolicyInvocation): boolean => policy.spec?.reinvocationPolicy === 'IfNeeded';

/** A request, with what the evaluation of each of its policies needs. */
interface PolicyRequest {
  readonly matcher: PolicyMatcher;
  readonly attributes: AdmissionAttributes;
  readonly namespace: KubeObject | undefined;
  readonly options: MutatingPolicyOptions;
  readonly slice: TimeSlice;
  readonly signal: AbortSignal;
}

/**
 * Applies the mutations of a policy with each parameter, and resolves to whether they changed the object. Throws a 403 if an
 * expression or the parameters fail under the failure policy Fail. A failure under Ignore ends the policy.
 */
async function applyPolicy(invocation: PolicyInvocation, request: PolicyRequest): Promise<boolean> {
  const policy = compiledPolicy(invocation.policy);
  const { attributes, options } = request;
  let changed = false;
  try {
    for (const param of await request.matcher.params(invocation, namespaceOf(attributes))) {
      request.signal.throwIfAborted();
      for (const [index, mutation] of policy.mutations.entries()) {
        const view = await viewOf(attributes, invocation.as, options.conversion);
        const bindings = policyBindings(policy, { ...request, view, param });
        if (index === 0 && !(await conditionsMatch(policy.conditions, bindings))) break;
        const result = await mutation.expression.evaluate(bindings);
        const decoded = attributes.object ?? { metadata: {} };
        const object = options.conversion.serialized?.(decoded) ?? decoded;
        const next = conformed(
          mutate(mutation, object, result, { ...options, kind: attributes.kind }),
          object,
          attributes.kind,
          options,
        );
        if (jsonEqual(next, object)) continue;
        attributes.setObject(next);
        changed = true;
      }
    }
  } catch (error) {
    if (!(error instanceof ExpressionError) && !(error instanceof ParamsError) && !(error instanceof CelError))
      throw error;
    if (policy.failsClosed)
      throw denial(attributes, policy.name, invocation.binding.metadata.name ?? '', error.message);
  }
  return changed;
}

/**
 * Returns the object that a mutation makes of `object`, which is `object` itself if a `test` operation of a JSON patch fails.
 * Throws `CelError` if the mutation cannot be applied, and a 500 if its JSON patch makes an object of another kind.
 */
function mutate(
  mutation: CompiledMutation,
  object: KubeObject,
  result: CelValue,
  {
    structOf,
    conversion,
    kind: expectedKind,
  }: Pick<MutatingPolicyOptions, 'structOf' | 'conversion'> & { readonly kind: GroupVersionKind },
): KubeObject {
  const current = object as unknown as JsonValue;
  if (mutation.patchType === 'JSONPatch') {
    const operations = Array.isArray(result) ? result.map((one: unknown) => operationOf(adapt(one))) : [];
    let patched: KubeObject;
    try {
      patched = applyJsonPatch(current, operations) as unknown as KubeObject;
    } catch (error) {
      // A patch whose test fails is not applied, and that is no failure of the policy.
      if (isTestFailure(error)) return object;
      throw new CelError(`JSON Patch: ${patchFailure(error)}`, { cause: error });
    }
    conversion.checkPatched?.(patched, expectedKind);
    return patched;
  }
  const { apiVersion = '', kind = '' } = object;
  const named = { ...(parseApiVersion(apiVersion) ?? { group: '', version: '' }), kind };
  const struct = structOf(named);
  if (struct === undefined) {
    const why = `no corresponding type for ${named.group}/${named.version}, Kind=${kind}`;
    throw new CelError(`error applying patch: failed to convert patch object to typed object: ${why}`);
  }
  const { value, removed } = configurationOf(result, struct);
  const next = cloneJson(merge(mergeTypeOf(struct), current, value)) as unknown as KubeObject;
  for (const path of removed) removeAt(next, path);
  // A configuration may name a kind and a version, which have no meaning.
  return { ...next, apiVersion, kind };
}

/** Returns a JSON patch operation as an object. It always has a path: an expression without a path means the whole document. */
function operationOf(operation: CelValue): unknown {
  const entries = entriesOf(operation);
  if (entries === undefined) return toJson(operation);
  return Object.fromEntries([
    ['path', ''],
    ...entries.map(([key, value]) => [String(key), memberOf(String(key), value)]),
  ]);
}

function memberOf(name: string, value: CelValue): unknown {
  try {
    return toJson(value);
  } catch (error) {
    if (name !== 'value' || !(error instanceof CelError)) throw error;
    throw new CelError(`JSONPath valueExpression evaluated to a type that could not marshal to JSON: ${error.message}`);
  }
}

function removeAt(object: KubeObject, path: readonly string[]): void {
  let inner: unknown = object;
  for (const name of path.slice(0, -1)) {
    if (typeof inner !== 'object' || inner === null) return;
    inner = ownMember(inner as Record<string, unknown>, name);
  }
  if (typeof inner === 'object' && inner !== null) delete (inner as Record<string, unknown>)[path.at(-1) ?? ''];
}

function conformed(
  next: KubeObject,
  object: KubeObject,
  kind: GroupVersionKind,
  { conversion }: MutatingPolicyOptions,
): KubeObject {
  const fitted = conversion.conform === undefined ? next : conversion.conform(next, kind);
  return { ...fitted, apiVersion: object.apiVersion ?? '', kind: object.kind ?? '' };
}

function denial(attributes: AdmissionAttributes, policy: string, binding: string, why: string): StatusError {
  const message = `policy '${policy}' with binding '${binding}' denied request: ${why}`;
  const { group, resource } = attributes.resource;
  return newStatusError(403, 'Invalid', message, {
    details: {
      ...(attributes.name === '' ? {} : { name: attributes.name }),
      ...(group === '' ? {} : { group }),
      kind: resource,
      causes: [{ message }],
    },
  });
}
