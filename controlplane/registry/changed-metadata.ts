/** Validates the metadata of updates, with errors in kube-apiserver's number and order. */
import type { FieldError } from '../../api/meta/field-error.ts';
import { nameIsPathSegment, nameIsSubdomain, type NameRule } from '../../api/meta/names.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { partErrors, validateMetadata, validateMetadataUpdate } from '../../api/meta/validation.ts';
import type { Endpoint, Store } from './store.ts';
import type { MetadataCheck, Strategy, UpdateStrategy } from './strategy.ts';

/**
 * Returns the metadata errors of an update. kube-apiserver validates the metadata of every update in two ways, and most kinds
 * do so again in their own validation.
 */
export function changedMetadataErrors(
  store: Store,
  endpoint: Endpoint,
  object: KubeObject,
  old: KubeObject,
): FieldError[] {
  const { builtIn, info, strategy } = store;
  const namespaced = info.namespaced;
  const parts = partErrors(object.metadata);
  const kindRules = { nameRule: nameRuleOf(strategy, object), anyPrefix: strategy.generateName === 'unchecked' };
  const run = (check: MetadataCheck, rules: typeof kindRules = kindRules): FieldError[] => {
    const ofCore = builtIn && (check === 'update' || check === 'whole');
    return check === 'update' || check === 'plainUpdate'
      ? validateMetadataUpdate(object.metadata, old.metadata, { builtIn: ofCore }, parts)
      : validateMetadata(object.metadata, { namespaced, ...rules, builtIn: ofCore }, parts);
  };
  const generic = [...run('plainWhole', { nameRule: nameIsPathSegment, anyPrefix: false }), ...run('plainUpdate')];
  const checks = endpoint.strategy.metadataChecks ?? (builtIn && endpoint.subresource === '' ? BOTH : UPDATE);
  if (strategy.uncheckedGroup === endpoint.info.group) return generic;
  return [...generic, ...checks.flatMap((check) => run(check))];
}

/** Returns the rule for the name of an object. */
export function nameRuleOf(strategy: Strategy, object: KubeObject): NameRule {
  return strategy.nameRuleOf?.(object) ?? strategy.nameRule ?? nameIsSubdomain;
}

const BOTH: readonly MetadataCheck[] = ['update', 'whole'];
const UPDATE: readonly MetadataCheck[] = ['update'];

/** Whether new objects are refused for finalizers that are neither qualified nor well known. */
export const checksFinalizerNames = ({ metadataChecks, uncheckedGroup }: UpdateStrategy, group: string): boolean =>
  group !== uncheckedGroup &&
  (metadataChecks === undefined || metadataChecks.some((check) => check === 'update' || check === 'whole'));
