/** Computes the conditions of a terminating namespace. Pure. The messages are those of kube-controller-manager. */
import type { V1NamespaceCondition } from '@kubernetes/client-node';
import type { Wire } from '../../../api/kinds/kinds.ts';

/** A condition as it is stored. */
type NamespaceCondition = Wire<V1NamespaceCondition>;

/** What an attempt to empty the namespace left. */
interface Emptying {
  /** `pods.` or `jobs.batch`, with the number that remains. */
  readonly remaining: ReadonlyMap<string, number>;
  readonly finalizers: ReadonlyMap<string, number>;
  readonly failures: readonly string[];
}

/**
 * Computes the conditions from what is left in the namespace. `now` is RFC 3339. A condition keeps its time while its status
 * is the same. Pure.
 */
export function computeConditions(
  previous: readonly NamespaceCondition[],
  emptying: Emptying,
  now: string,
): NamespaceCondition[] {
  const wanted: Omit<NamespaceCondition, 'lastTransitionTime'>[] = [
    {
      type: 'NamespaceDeletionDiscoveryFailure',
      status: 'False',
      reason: 'ResourcesDiscovered',
      message: 'All resources successfully discovered',
    },
    {
      type: 'NamespaceDeletionGroupVersionParsingFailure',
      status: 'False',
      reason: 'ParsedGroupVersions',
      message: 'All legacy kube types successfully parsed',
    },
    emptying.failures.length === 0
      ? {
          type: 'NamespaceDeletionContentFailure',
          status: 'False',
          reason: 'ContentDeleted',
          message: 'All content successfully deleted, may be waiting on finalization',
        }
      : {
          type: 'NamespaceDeletionContentFailure',
          status: 'True',
          reason: 'ContentDeletionFailed',
          message: `Failed to delete all resource types, ${emptying.failures.length} remaining: ${emptying.failures.toSorted().join(', ')}`,
        },
    emptying.remaining.size === 0
      ? {
          type: 'NamespaceContentRemaining',
          status: 'False',
          reason: 'ContentRemoved',
          message: 'All content successfully removed',
        }
      : {
          type: 'NamespaceContentRemaining',
          status: 'True',
          reason: 'SomeResourcesRemain',
          message: `Some resources are remaining: ${listed(emptying.remaining, (name, count) => `${name} has ${count} resource instances`)}`,
        },
    emptying.finalizers.size === 0
      ? {
          type: 'NamespaceFinalizersRemaining',
          status: 'False',
          reason: 'ContentHasNoFinalizers',
          message: 'All content-preserving finalizers finished',
        }
      : {
          type: 'NamespaceFinalizersRemaining',
          status: 'True',
          reason: 'SomeFinalizersRemain',
          message: `Some content in the namespace has finalizers remaining: ${listed(emptying.finalizers, (name, count) => `${name} in ${count} resource instances`)}`,
        },
  ];
  return wanted.map((condition) => {
    const former = previous.find((other) => other.type === condition.type);
    if (former === undefined) return { ...condition, lastTransitionTime: now };
    const isSameStatus = former.status === condition.status;
    if (isSameStatus && former.reason === condition.reason && former.message === condition.message) return former;
    return { ...condition, lastTransitionTime: isSameStatus ? (former.lastTransitionTime ?? now) : now };
  });
}

function listed(counts: ReadonlyMap<string, number>, text: (name: string, count: number) => string): string {
  return [...counts]
    .filter(([, count]) => count > 0)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, count]) => text(name, count))
    .join(', ');
}
