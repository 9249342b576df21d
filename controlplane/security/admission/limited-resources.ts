/**
 * Refuses resources that may only be used where a quota of the namespace covers them: `limitedResources` in the configuration
 * of the ResourceQuota plugin.
 */
import type { ResourceQuota } from '../../../api/kinds/kinds.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { inScope, type ScopeRequirement, type Usage } from './quota-usage.ts';

/** One entry of `limitedResources`, with the selection that kube-apiserver's configuration has. */
export interface LimitedResource {
  readonly group: string;
  readonly resource: string;
  /** Substrings of resource names, such as `.storageclass.storage.k8s.io/requests.storage`. */
  readonly matchContains: readonly string[];
  readonly matchScopes: readonly ScopeRequirement[];
}

/** An object that is written, with its usage. */
interface WrittenObject {
  readonly group: string;
  readonly resource: string;
  readonly object: KubeObject;
  /** The whole usage of the object, also if it is updated. */
  readonly usage: Usage;
}

/** Returns why the object is refused, or `undefined` if it is allowed. `covering` are the quotas that match the object. */
export function uncovered(
  limited: readonly LimitedResource[],
  written: WrittenObject,
  covering: readonly ResourceQuota[],
): string | undefined {
  const applicable = limited.filter(({ group, resource }) => group === written.group && resource === written.resource);
  if (applicable.length === 0) return undefined;
  const counted = new Set(covering.flatMap(({ status }) => Object.keys(status?.hard ?? {})));
  const parts = applicable.flatMap(({ matchContains }) => matchContains);
  const missing = [...written.usage.keys()].filter(
    (name) => parts.some((part) => name.includes(part)) && !counted.has(name),
  );
  if (missing.length > 0) return `insufficient quota to consume: ${missing.sort().join(',')}`;
  const scopes = new Set(
    covering.flatMap(({ spec }) => [
      ...(spec?.scopes ?? []),
      ...(spec?.scopeSelector?.matchExpressions ?? []).map(({ scopeName }) => scopeName),
    ]),
  );
  const open = applicable
    .flatMap(({ matchScopes }) => matchScopes)
    .filter((scope) => inScope(written.resource, written.object, scope) && !scopes.has(scope.scopeName));
  if (open.length === 0) return undefined;
  const shown = open.map(
    ({ scopeName, operator, values }) => `{${scopeName} ${operator} [${(values ?? []).join(' ')}]}`,
  );
  return `insufficient quota to match these scopes: [${shown.join(' ')}]`;
}
