/**
 * Decides which names of a definition are accepted: those that neither a built-in resource nor another definition of its group
 * uses. Computes the status with the accepted names, and with whether the definition is established.
 *
 * kube-apiserver accepts the names of built-in resources, but serves the built-in ones before custom ones and keeps their
 * objects apart. Here both would be the same objects, and a definition of reviews would answer who is authorized.
 */
import { quoteText } from '../../../api/meta/quote.ts';
import { builtinResources } from '../../../api/schema/resources.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { caBundleError } from '../kinds/apiextensions/ca-bundle.ts';
import {
  type Definition,
  type DefinitionNames,
  type DefinitionStatus,
  approvalOf,
  APPROVED_ANNOTATION,
  isProtectedGroup,
  setCondition,
} from '../kinds/apiextensions/definition.ts';

const builtInGroups = Map.groupBy(builtinResources(), ({ group }) => group);

/**
 * Returns the names of the built-in resources of a group. `served` are those of the group that the server serves and no
 * definition defines.
 */
export function builtInNames(group: string, served: readonly ResourceInfo[]): DefinitionNames[] {
  return [...(builtInGroups.get(group) ?? []), ...served].map(({ resource, singular, shortNames, kind }) => ({
    plural: resource,
    singular,
    shortNames: [...shortNames],
    kind,
    listKind: `${kind}List`,
  }));
}

/** Whether the definition has the resource or the kind of a built-in resource, regardless of its status. */
export function takesBuiltIn({ spec: { group, names } }: Definition, served: readonly ResourceInfo[]): boolean {
  return builtInNames(group, served).some(({ plural, kind }) => plural === names.plural || kind === names.kind);
}

/** The names that built-in resources and the other definitions of the group use. */
export interface TakenNames {
  readonly resources: Pick<ReadonlySet<string>, 'has'>;
  readonly kinds: Pick<ReadonlySet<string>, 'has'>;
}

/** Returns the names that the given definitions and built-in resources use. Empty names count as absent. */
export function takenBy(others: Iterable<DefinitionNames>): TakenNames {
  const resources = new Set<string>();
  const kinds = new Set<string>();
  for (const { plural, singular, shortNames, kind, listKind } of others) {
    for (const name of [plural, singular, ...(shortNames ?? [])]) if (name) resources.add(name);
    for (const name of [kind, listKind]) if (name) kinds.add(name);
  }
  return { resources, kinds };
}

interface Outcome {
  readonly accepted: DefinitionNames;
  readonly conflict: { readonly reason: string; readonly message: string } | undefined;
}

/** Decides which of the wanted names are accepted. A name that is taken keeps its former value. */
export function acceptNames(wanted: DefinitionNames, before: DefinitionNames | undefined, taken: TakenNames): Outcome {
  const accepted: DefinitionNames = { plural: '', kind: '', ...before };
  let conflict: Outcome['conflict'];
  const inUse = (name: string): string => `${quoteText(name)} is already in use`;
  const refuse = (reason: string, message: string): void => {
    conflict = { reason, message };
  };
  if (taken.resources.has(wanted.plural)) refuse('PluralConflict', inUse(wanted.plural));
  else accepted.plural = wanted.plural;
  const { singular = '', shortNames = [], listKind = '', categories } = wanted;
  if (taken.resources.has(singular)) refuse('SingularConflict', inUse(singular));
  else accepted.singular = singular;
  const clashes = shortNames.filter((name) => taken.resources.has(name)).map(inUse);
  if (clashes.length > 0) {
    refuse('ShortNamesConflict', clashes.length === 1 ? (clashes[0] ?? '') : `[${clashes.join(', ')}]`);
  } else if (wanted.shortNames === undefined) delete accepted.shortNames;
  else accepted.shortNames = shortNames;
  if (taken.kinds.has(wanted.kind)) refuse('KindConflict', inUse(wanted.kind));
  else accepted.kind = wanted.kind;
  if (taken.kinds.has(listKind)) refuse('ListKindConflict', inUse(listKind));
  else accepted.listKind = listKind;
  if (categories === undefined) delete accepted.categories;
  else accepted.categories = categories;
  return { accepted, conflict };
}

/**
 * Returns the next status as a new value. A definition is established by a second write, after one that accepts its names, as
 * clients see it with kube-apiserver.
 */
export function namedStatus(definition: Definition, taken: TakenNames, nowMs: number): DefinitionStatus {
  const status = structuredClone(definition.status ?? {});
  const { accepted, conflict } = acceptNames(definition.spec.names, status.acceptedNames, taken);
  status.acceptedNames = accepted;
  const set = (type: string, state: 'True' | 'False', reason: string, message: string): void =>
    setCondition(status, { type, status: state, reason, message }, nowMs);
  if (isProtectedGroup(definition.spec.group)) setApproval(definition, set);
  if (conflict === undefined) set('NamesAccepted', 'True', 'NoConflicts', 'no conflicts found');
  else set('NamesAccepted', 'False', conflict.reason, conflict.message);
  const before = status.conditions?.find(({ type }) => type === 'Established');
  if (before?.status !== 'True') {
    if (conflict === undefined && caBundleError(definition.spec.conversion) !== undefined) {
      set('Established', 'False', 'InvalidCABundle', 'The conversion webhook CABundle is invalid');
    } else if (conflict === undefined) {
      const isInstalled = before?.reason === 'Installing';
      const reason = isInstalled ? 'InitialNamesAccepted' : 'Installing';
      set('Established', isInstalled ? 'True' : 'False', reason, 'the initial names have been accepted');
    } else set('Established', 'False', 'NotAccepted', 'not all names are accepted');
  }
  return status;
}

/** Sets the condition with the approval of a definition in a protected group. */
function setApproval(
  definition: Definition,
  set: (type: string, status: 'True' | 'False', reason: string, message: string) => void,
): void {
  const text = definition.metadata.annotations?.[APPROVED_ANNOTATION] ?? '';
  const type = 'KubernetesAPIApprovalPolicyConformant';
  switch (approvalOf(definition)) {
    case 'approved':
      set(type, 'True', 'ApprovedAnnotation', `approved in ${text}`);
      break;
    case 'bypassed':
      set(type, 'False', 'UnapprovedAnnotation', `not approved: ${quoteText(text)}`);
      break;
    case 'invalid':
      set(
        type,
        'False',
        'InvalidAnnotation',
        `protected groups must have approval annotation ${quoteText(APPROVED_ANNOTATION)} with either a URL or a reason starting with "unapproved", see https://github.com/kubernetes/enhancements/pull/1111`,
      );
      break;
    case 'missing':
      set(
        type,
        'False',
        'MissingAnnotation',
        `protected groups must have approval annotation ${quoteText(APPROVED_ANNOTATION)}, see https://github.com/kubernetes/enhancements/pull/1111`,
      );
      break;
  }
}
