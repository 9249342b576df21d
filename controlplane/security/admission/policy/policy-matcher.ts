/** Finds the policies that match a request, with their bindings and parameters. A policy without a binding has no effect. */
import { namespaces, type ResourceOf } from '../../../../api/client/resources.ts';
import { fromLabelSelector } from '../../../../api/meta/selector.ts';
import { type GroupVersionResource, type KubeObject, parseApiVersion } from '../../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../../api/schema/schema.ts';
import type { AdmissionAttributes } from '../admission.ts';
import type { Lister, Listers } from '../../../model/listers.ts';
import { isPolicy, isReview, type MatchInput, matchWebhook, type Webhook } from '../webhook/matching.ts';
import type { VersionConversion } from './request-view.ts';
import type { MatchResources, Policy, PolicyBinding } from './policy-types.ts';
import { isResource } from '../../../../api/meta/group-resource.ts';

/** What a matcher reads. `policies` and `bindings` are of the same kind, validating or mutating. */
export interface PolicyMatcherOptions {
  readonly listers: Listers;
  readonly conversion: VersionConversion;
  /** The served resources, which map the kind of parameters to its resource. */
  readonly resources: () => readonly ResourceInfo[];
  readonly policies: ResourceOf<Policy>;
  readonly bindings: ResourceOf<PolicyBinding>;
}

/** A policy and a binding that match a request. */
export interface PolicyInvocation {
  readonly policy: Policy;
  readonly binding: PolicyBinding;
  /** The resource of the request in the version that the policy registered for. */
  readonly as: GroupVersionResource;
}

/**
 * The parameters cannot be read: the request is refused if the policy's failurePolicy is Fail, whatever the binding's actions
 * are.
 */
export class ParamsError extends Error {
  /** Whether the error is in the policy. Otherwise it is in the binding. */
  readonly ofPolicy: boolean;

  constructor(message: string, { ofPolicy } = { ofPolicy: false }) {
    super(`failed to configure ${ofPolicy ? 'policy' : 'binding'}: ${message}`);
    this.ofPolicy = ofPolicy;
  }
}

/** Matches requests with one kind of policies. Keeps the policies with their bindings sorted until one of them changes. */
export class PolicyMatcher {
  readonly #options: PolicyMatcherOptions;
  readonly #policies: Lister<Policy>;
  readonly #bindings: Lister<PolicyBinding>;
  readonly #namespaces: Lister;
  #sorted: readonly { readonly policy: Policy; readonly bindings: readonly PolicyBinding[] }[] | undefined;

  constructor(options: PolicyMatcherOptions) {
    this.#options = options;
    this.#policies = options.listers.of<Policy>(options.policies);
    this.#bindings = options.listers.of<PolicyBinding>(options.bindings);
    this.#namespaces = options.listers.of(namespaces);
    const changed = (): void => {
      this.#sorted = undefined;
    };
    this.#policies.subscribe(changed);
    this.#bindings.subscribe(changed);
  }

  #all(): readonly { readonly policy: Policy; readonly bindings: readonly PolicyBinding[] }[] {
    if (this.#sorted === undefined) {
      const byPolicy = new Map<string, PolicyBinding[]>();
      for (const binding of byName(this.#bindings.list())) {
        const name = binding.spec?.policyName ?? '';
        const bindings = byPolicy.get(name);
        if (bindings === undefined) byPolicy.set(name, [binding]);
        else bindings.push(binding);
      }
      this.#sorted = byName(this.#policies.list()).flatMap((policy) => {
        const bindings = byPolicy.get(policy.metadata.name ?? '');
        return bindings === undefined ? [] : [{ policy, bindings }];
      });
    }
    return this.#sorted;
  }

  /** Returns the policies that match the request, one invocation for each matching binding. None match policies or reviews. */
  async invocations(attributes: AdmissionAttributes): Promise<PolicyInvocation[]> {
    const all = this.#all();
    if (all.length === 0 || isPolicy(attributes) || isReview(attributes)) return [];
    const input = await this.#input(attributes);
    return all.flatMap(({ policy, bindings }) => {
      const as = matches(policy.spec?.matchConstraints, input);
      if (as === undefined) return [];
      return bindings
        .filter((binding) => binding.spec?.matchResources === undefined || bindingMatches(binding, input))
        .map((binding) => ({ policy, binding, as }));
    });
  }

  async #input(attributes: AdmissionAttributes): Promise<MatchInput> {
    const { conversion } = this.#options;
    return {
      attributes,
      isNamespaced: conversion.isNamespaced(attributes.resource),
      namespaceLabels: await this.#namespaceLabels(attributes),
      equivalents: conversion.equivalents(attributes.resource, attributes.subresource),
    };
  }

  async #namespaceLabels(attributes: AdmissionAttributes): Promise<Readonly<Record<string, string>> | undefined> {
    if (isResource(attributes.resource, namespaces)) {
      return (attributes.object ?? attributes.oldObject)?.metadata.labels ?? {};
    }
    return attributes.namespace === ''
      ? undefined
      : ((await this.namespace(attributes.namespace))?.metadata.labels ?? {});
  }

  /** Returns a namespace from the cache, or from the storage if the cache does not have it yet. */
  async namespace(name: string): Promise<KubeObject | undefined> {
    if (name === '') return undefined;
    return this.#namespaces.get('', name) ?? (await this.#namespaces.live('', name));
  }

  /**
   * Returns the parameters of a binding. They are `[undefined]` if the policy has no `paramKind` or the binding no `paramRef`,
   * and an empty list if no object matches. Throws `ParamsError` if the kind is not served, the reference is invalid, or no
   * object matches and `parameterNotFoundAction` is `Deny`.
   */
  async params({ policy, binding }: PolicyInvocation, namespace: string): Promise<readonly (KubeObject | undefined)[]> {
    const kind = policy.spec?.paramKind;
    const ref = binding.spec?.paramRef;
    if (kind === undefined || ref === undefined) return [undefined];
    const gv = parseApiVersion(kind.apiVersion ?? '');
    const info = this.#options
      .resources()
      .find((one) => one.group === gv?.group && one.version === gv.version && one.kind === kind.kind);
    if (info === undefined) {
      const shown = `${gv?.group ?? ''}/${gv?.version ?? ''}, Kind=${kind.kind ?? ''}`;
      throw new ParamsError(`failed to find resource referenced by paramKind: '${shown}'`, { ofPolicy: true });
    }
    if (!info.namespaced && (ref.namespace ?? '') !== '') {
      throw new ParamsError('paramRef.namespace must not be provided for a cluster-scoped `paramKind`');
    }
    const paramNamespace = info.namespaced ? ref.namespace || namespace : '';
    if (info.namespaced && paramNamespace === '') {
      throw new ParamsError('cannot use namespaced paramRef in policy binding that matches cluster-scoped resources');
    }
    const { group, version, resource, namespaced } = info;
    const lister = this.#options.listers.of<KubeObject>({ group, version, resource, kind: info.kind, namespaced });
    const found = await this.#find(lister, ref, paramNamespace);
    if (found.length > 0) return found;
    if (ref.parameterNotFoundAction !== 'Deny') return [];
    throw new ParamsError('no params found for policy binding with `Deny` parameterNotFoundAction');
  }

  async #find(
    lister: Lister,
    ref: NonNullable<NonNullable<PolicyBinding['spec']>['paramRef']>,
    namespace: string,
  ): Promise<readonly KubeObject[]> {
    if (ref.selector !== undefined) {
      // The first request for a kind starts its informer. Without its objects, every request would pass a policy that allows
      // missing parameters.
      await lister.synced();
      const selector = fromLabelSelector(ref.selector);
      return lister.list(namespace).filter((one) => selector.matches(one.metadata.labels ?? {}));
    }
    const name = ref.name ?? '';
    const one = lister.get(namespace, name) ?? (await lister.live(namespace, name));
    return one === undefined ? [] : [one];
  }
}

function byName<T extends KubeObject>(objects: readonly T[]): T[] {
  return objects.toSorted((a, b) => ((a.metadata.name ?? '') < (b.metadata.name ?? '') ? -1 : 1));
}

function bindingMatches(binding: PolicyBinding, input: MatchInput): boolean {
  return matches(binding.spec?.matchResources, input) !== undefined;
}

/**
 * Returns the resource as which the request matches, or `undefined` if it does not match. An absent list of rules covers every
 * resource.
 */
function matches(constraints: MatchResources | undefined, input: MatchInput): GroupVersionResource | undefined {
  const { attributes } = input;
  if (constraints === undefined) return attributes.resource;
  const named = (rules: MatchResources['resourceRules']): Webhook['rules'] =>
    (rules ?? []).filter(
      ({ resourceNames = [] }) => resourceNames.length === 0 || resourceNames.includes(attributes.name),
    ) as Webhook['rules'];
  const asWebhook = (rules: Webhook['rules'], selectors: Partial<Webhook>): Webhook =>
    ({ name: '', clientConfig: {}, sideEffects: 'None', admissionReviewVersions: [], ...selectors, rules }) as Webhook;
  const { namespaceSelector, objectSelector, matchPolicy } = constraints;
  const selectors = {
    ...(namespaceSelector === undefined ? {} : { namespaceSelector }),
    ...(objectSelector === undefined ? {} : { objectSelector }),
    ...(matchPolicy === undefined ? {} : { matchPolicy }),
  };
  const excluded = named(constraints.excludeResourceRules) ?? [];
  if (
    excluded.length > 0 &&
    matchWebhook(asWebhook(excluded, matchPolicy === undefined ? {} : { matchPolicy }), input) !== undefined
  ) {
    return undefined;
  }
  const rules = constraints.resourceRules ?? [];
  const every = [
    { apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*', '*/*'] },
  ] as Webhook['rules'];
  return matchWebhook(asWebhook(rules.length === 0 ? every : named(rules), selectors), input);
}
