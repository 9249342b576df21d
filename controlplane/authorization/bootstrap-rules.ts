/** The shapes of bootstrap roles and bindings, and the short notation in which the bootstrap policy writes their rules. */
import type { PolicyRule } from './rbac-rules.ts';

export interface BootstrapRole {
  readonly name: string;
  /** Absent for a ClusterRole. */
  readonly namespace?: string;
  readonly rules?: readonly PolicyRule[];
  readonly labels?: Readonly<Record<string, string>>;
  /** The role aggregates the rules of ClusterRoles with these labels. */
  readonly aggregates?: Readonly<Record<string, string>>;
}

export interface BootstrapSubject {
  readonly kind: 'User' | 'Group' | 'ServiceAccount';
  readonly name: string;
  readonly namespace?: string;
}

export interface BootstrapBinding {
  readonly name: string;
  readonly namespace?: string;
  /** A Role of the same namespace, or a ClusterRole if there is no namespace. */
  readonly role: string;
  readonly subjects: readonly BootstrapSubject[];
}

export const READ = 'get list watch';
export const WRITE = 'create delete deletecollection patch update';
export const READ_WRITE = `${READ} ${WRITE}`;
export const READ_UPDATE = 'get list patch update watch';

const sorted = (words: string): string[] => words.split(/\s+/).filter(Boolean).sort();

/**
 * Builds a rule: `rule('get list', '', 'pods pods/log')`. Groups are separated by `,` because the core group is empty.
 */
export function rule(verbs: string, groups: string, resources: string, resourceNames = ''): PolicyRule {
  return {
    verbs: sorted(verbs),
    apiGroups: groups.split(',').sort(),
    resources: sorted(resources),
    ...(resourceNames === '' ? {} : { resourceNames: sorted(resourceNames) }),
  };
}

export function urlRule(verbs: string, urls: string): PolicyRule {
  return { verbs: sorted(verbs), nonResourceURLs: sorted(urls) };
}

export const eventsRule = (): PolicyRule => rule('create patch update', ',events.k8s.io', 'events');
