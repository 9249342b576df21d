/**
 * Defines the shapes of bootstrap roles and bindings, and the short notation in which the bootstrap policy writes their rules.
 */
import type { PolicyRule } from './rbac-rules.ts';

/** A Role or ClusterRole that every cluster has. */
export interface BootstrapRole {
  readonly name: string;
  /** Absent for a ClusterRole. */
  readonly namespace?: string;
  readonly rules?: readonly PolicyRule[];
  readonly labels?: Readonly<Record<string, string>>;
  /** The role aggregates the rules of ClusterRoles with these labels. */
  readonly aggregates?: Readonly<Record<string, string>>;
}

/** A subject of a binding; only service accounts have a namespace. */
export interface BootstrapSubject {
  readonly kind: 'User' | 'Group' | 'ServiceAccount';
  readonly name: string;
  readonly namespace?: string;
}

/** A RoleBinding, or without a namespace a ClusterRoleBinding. */
export interface BootstrapBinding {
  readonly name: string;
  readonly namespace?: string;
  /** A Role of the same namespace, or a ClusterRole if there is no namespace. */
  readonly role: string;
  readonly subjects: readonly BootstrapSubject[];
}

/** The verbs that read. */
export const READ = 'get list watch';
/** The verbs that change objects. */
export const WRITE = 'create delete deletecollection patch update';
/** The verbs of a user who manages objects. */
export const READ_WRITE = `${READ} ${WRITE}`;
/** The verbs of a user who may change objects but neither create nor delete them. */
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

/** Returns a rule for paths. Both lists are separated by spaces. */
export function urlRule(verbs: string, urls: string): PolicyRule {
  return { verbs: sorted(verbs), nonResourceURLs: sorted(urls) };
}

/** Lets a component write events, in both of their API groups. */
export const eventsRule = (): PolicyRule => rule('create patch update', ',events.k8s.io', 'events');
