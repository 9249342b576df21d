/** Parses the values of `--etcd-servers-overrides`. */
import { errorMessage } from '../../api/meta/error-message.ts';
import { builtinResources, isStored } from '../../api/schema/resources.ts';
import { prefixOf } from '../storage/storages.ts';

/** Resources that are stored in an etcd of their own. */
interface EtcdOverride {
  /** The URLs of its members. */
  readonly servers: readonly string[];
  /** The resources as storage keys begin with them: `/core/events/`. */
  readonly resources: ReadonlySet<string>;
}

/**
 * The resources that must be in the main etcd: a service is written in one transaction with its addresses, and custom resources
 * are served as definitions say.
 */
const MAIN_ONLY: ReadonlySet<string> = new Set([
  '/core/services/',
  '/networking.k8s.io/ipaddresses/',
  '/apiextensions.k8s.io/customresourcedefinitions/',
]);

/**
 * Parses values such as `/events#http://etcd-4:2379;http://etcd-5:2379` (`group/resource#servers`, and the core group is
 * empty). `apps/*` stands for all resources of a group that no other value names, as in kube-apiserver. Values with the same
 * servers are one override. Throws an Error with the fault of a value.
 */
export function parseEtcdOverrides(values: readonly string[]): readonly EtcdOverride[] {
  const parsed = values.map(parseValue);
  const named = new Set(parsed.flatMap(({ resource, prefixes }) => (resource === '*' ? [] : prefixes)));
  const overrides = new Map<string, { readonly servers: readonly string[]; readonly resources: Set<string> }>();
  const taken = new Map<string, string>();
  for (const { value, resource, prefixes, servers } of parsed) {
    const set = servers.toSorted().join(';');
    const override = overrides.get(set) ?? { servers, resources: new Set<string>() };
    overrides.set(set, override);
    for (const prefix of prefixes) {
      if (resource === '*' && named.has(prefix)) continue;
      if ((taken.get(prefix) ?? set) !== set)
        throw new Error(`${value} names a resource that has other servers already`);
      taken.set(prefix, set);
      override.resources.add(prefix);
    }
  }
  return [...overrides.values()];
}

/** Checks the flag. Returns the fault as text, or `undefined`. */
export function checkEtcdOverrides(values: readonly string[]): string | undefined {
  try {
    parseEtcdOverrides(values);
    return undefined;
  } catch (error) {
    return errorMessage(error);
  }
}

interface ParsedValue {
  readonly value: string;
  readonly resource: string;
  readonly prefixes: readonly string[];
  readonly servers: readonly string[];
}

function parseValue(value: string): ParsedValue {
  const [, group = '', resource, list = ''] = /^([^/#]*)\/([^/#]+)#([^#]+)$/.exec(value) ?? [];
  const servers = list.split(';');
  if (resource === undefined || servers.includes(''))
    throw new Error(`${value} must have the form group/resource#servers, with URLs of servers between semicolons`);
  const prefixes = prefixesOf(group, resource);
  if (prefixes.length === 0) throw new Error(`${value} names no built-in resource that is stored`);
  const main = prefixes.find((prefix) => MAIN_ONLY.has(prefix));
  if (main !== undefined)
    throw new Error(`${value}: ${main.slice(1, -1)} must be in the etcd of --etcd-servers, with what depends on it`);
  return { value, resource, prefixes, servers };
}

function prefixesOf(group: string, resource: string): readonly string[] {
  const found = builtinResources().filter(
    (info) => info.group === group && (resource === '*' || info.resource === resource) && isStored(info),
  );
  return [...new Set(found.map((info) => prefixOf(group, info.resource)))];
}
