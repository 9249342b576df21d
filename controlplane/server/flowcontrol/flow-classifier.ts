/**
 * Finds the flow schema of a request. Schemas are compiled once for each change of the configuration. The schemas that concern
 * a user are computed once for each user.
 */
import type { FlowSchema } from '../../registry/kinds/flowcontrol/flowcontrol-types.ts';
import type { UserInfo } from '../../model/user-info.ts';
import type { RequestInfo } from '../request-info.ts';
import { dealHand } from './shuffle-sharding.ts';

/** The queues of a level from which flows get theirs. */
interface DealtLevel {
  readonly queues: number;
  readonly handSize: number;
}

/** A flow: the requests of a schema, and of one user or namespace if the schema distinguishes them. */
export interface Flow<Level> {
  readonly schema: CompiledSchema<Level>;
  readonly distinguisher: string;
  /** The queues in which its requests may wait. */
  readonly hand: readonly number[];
}

/** A flow schema in the form in which requests are matched. */
export interface CompiledSchema<Level> {
  readonly name: string;
  readonly uid: string;
  readonly level: Level;
  readonly distinguishes: '' | 'ByUser' | 'ByNamespace';
  readonly rules: readonly Rule[];
}

interface Rule {
  readonly subjects: readonly Subject[];
  readonly resources: readonly ResourceRule[];
  readonly paths: readonly PathRule[];
}

type Subject =
  | { readonly kind: 'user'; readonly name: string }
  | { readonly kind: 'group'; readonly name: string }
  | { readonly kind: 'account'; readonly name: string; readonly namespace: string };

/** The names that a rule matches. `undefined` matches everything. */
type Names = ReadonlySet<string> | undefined;

interface ResourceRule {
  readonly verbs: Names;
  readonly groups: Names;
  readonly resources: Names;
  readonly clusterScope: boolean;
  readonly namespaces: Names;
}

interface PathRule {
  readonly verbs: Names;
  readonly isEvery: boolean;
  readonly exact: ReadonlySet<string>;
  readonly prefixes: readonly string[];
}

interface Candidate<Level> {
  readonly schema: CompiledSchema<Level>;
  readonly resources: readonly ResourceRule[];
  readonly paths: readonly PathRule[];
  /** Set if the schema does not distinguish namespaces. */
  readonly flow: Flow<Level> | undefined;
}

interface ClassifiedUser<Level> {
  readonly groups: readonly string[];
  readonly candidates: readonly Candidate<Level>[];
}

/** The number of users, and of flows by namespace, that are remembered. The oldest are dropped first. */
const MAX_REMEMBERED = 1024;

/**
 * Finds the flow schema of each request. It is immutable apart from its caches: a changed configuration is another classifier.
 */
export class FlowClassifier<Level extends DealtLevel> {
  readonly #schemas: readonly CompiledSchema<Level>[];
  readonly #fallback: CompiledSchema<Level>;
  readonly #users = new Map<string, ClassifiedUser<Level>>();
  readonly #byNamespace = new Map<CompiledSchema<Level>, Map<string, Flow<Level>>>();

  /** `fallback` is the schema of requests that no schema matches. */
  constructor(schemas: readonly CompiledSchema<Level>[], fallback: CompiledSchema<Level>) {
    this.#schemas = schemas;
    this.#fallback = fallback;
  }

  classify(user: UserInfo, info: RequestInfo): Flow<Level> {
    const { candidates } = this.#userOf(user);
    for (let at = 0; at < candidates.length; at++) {
      const candidate = candidates[at];
      if (candidate !== undefined && matches(candidate, info))
        return candidate.flow ?? this.#flowOfNamespace(candidate.schema, info.namespace);
    }
    return this.#flow(this.#fallback, this.#fallback.distinguishes === 'ByUser' ? user.name : '');
  }

  #userOf(user: UserInfo): ClassifiedUser<Level> {
    const cached = this.#users.get(user.name);
    if (cached !== undefined && sameGroups(cached.groups, user.groups)) return cached;
    const candidates = this.#schemas.flatMap((schema) => this.#candidate(schema, user) ?? []);
    const fresh = { groups: [...user.groups], candidates };
    remember(this.#users, user.name, fresh);
    return fresh;
  }

  #candidate(schema: CompiledSchema<Level>, user: UserInfo): Candidate<Level> | undefined {
    const userRules = schema.rules.filter(({ subjects }) => subjects.some((subject) => isSubject(subject, user)));
    if (userRules.length === 0) return undefined;
    return {
      schema,
      resources: userRules.flatMap(({ resources }) => resources),
      paths: userRules.flatMap(({ paths }) => paths),
      flow:
        schema.distinguishes === 'ByNamespace'
          ? undefined
          : this.#flow(schema, schema.distinguishes === 'ByUser' ? user.name : ''),
    };
  }

  #flow(schema: CompiledSchema<Level>, distinguisher: string): Flow<Level> {
    const { queues, handSize } = schema.level;
    return { schema, distinguisher, hand: dealHand(`${schema.name}\u0000${distinguisher}`, queues, handSize) };
  }

  #flowOfNamespace(schema: CompiledSchema<Level>, namespace: string): Flow<Level> {
    let flows = this.#byNamespace.get(schema);
    if (flows === undefined) this.#byNamespace.set(schema, (flows = new Map()));
    let flow = flows.get(namespace);
    if (flow === undefined) remember(flows, namespace, (flow = this.#flow(schema, namespace)));
    return flow;
  }
}

function remember<Value>(map: Map<string, Value>, key: string, value: Value): void {
  const oldest = map.size >= MAX_REMEMBERED ? map.keys().next().value : undefined;
  if (oldest !== undefined) map.delete(oldest);
  map.set(key, value);
}

function sameGroups(cached: readonly string[], groups: readonly string[]): boolean {
  if (cached.length !== groups.length) return false;
  for (let at = 0; at < cached.length; at++) if (cached[at] !== groups[at]) return false;
  return true;
}

function isSubject(subject: Subject, user: UserInfo): boolean {
  if (subject.kind === 'user') return subject.name === '*' || subject.name === user.name;
  if (subject.kind === 'group') return subject.name === '*' || user.groups.includes(subject.name);
  return isAccount(subject, user);
}

function isAccount(subject: Subject & { kind: 'account' }, user: UserInfo): boolean {
  const [system, account, namespace, name, more] = user.name.split(':');
  if (system !== 'system' || account !== 'serviceaccount' || name === undefined || more !== undefined) return false;
  return namespace === subject.namespace && (subject.name === '*' || subject.name === name);
}

function matches<Level>({ resources, paths }: Candidate<Level>, info: RequestInfo): boolean {
  if (info.isResource) {
    for (let at = 0; at < resources.length; at++) if (isResourceMatch(resources[at], info)) return true;
    return false;
  }
  for (let at = 0; at < paths.length; at++) if (isPathMatch(paths[at], info)) return true;
  return false;
}

const includes = (names: Names, name: string): boolean => names === undefined || names.has(name);

function isResourceMatch(rule: ResourceRule | undefined, info: RequestInfo): boolean {
  if (rule === undefined || !includes(rule.verbs, info.verb) || !includes(rule.groups, info.group)) return false;
  if (rule.resources !== undefined) {
    const name = info.subresource === '' ? info.resource : `${info.resource}/${info.subresource}`;
    if (!rule.resources.has(name)) return false;
  }
  return info.namespace === '' ? rule.clusterScope : includes(rule.namespaces, info.namespace);
}

function isPathMatch(rule: PathRule | undefined, { verb, path }: RequestInfo): boolean {
  if (rule === undefined || !includes(rule.verbs, verb)) return false;
  return rule.isEvery || rule.exact.has(path) || rule.prefixes.some((prefix) => path.startsWith(prefix));
}

/** Returns the schemas in the order of matching, without those of missing levels. */
export function compileSchemas<Level>(
  schemas: readonly FlowSchema[],
  levels: ReadonlyMap<string, Level>,
): CompiledSchema<Level>[] {
  return schemas
    .toSorted(
      (a, b) =>
        (a.spec?.matchingPrecedence ?? 0) - (b.spec?.matchingPrecedence ?? 0) ||
        (nameOf(a) < nameOf(b) ? -1 : nameOf(a) > nameOf(b) ? 1 : 0),
    )
    .flatMap((schema) => {
      const level = levels.get(schema.spec?.priorityLevelConfiguration?.name ?? '');
      return level === undefined ? [] : [compiled(schema, level)];
    });
}

const nameOf = (schema: FlowSchema): string => schema.metadata.name ?? '';

function compiled<Level>(schema: FlowSchema, level: Level): CompiledSchema<Level> {
  const { rules = [], distinguisherMethod } = schema.spec ?? {};
  const by = distinguisherMethod?.type;
  return {
    name: nameOf(schema),
    uid: schema.metadata.uid ?? '',
    level,
    distinguishes: by === 'ByUser' || by === 'ByNamespace' ? by : '',
    rules: rules.map(({ subjects = [], resourceRules = [], nonResourceRules = [] }) => ({
      subjects: subjects.flatMap(({ user, group, serviceAccount }): Subject[] => {
        if (user !== undefined) return [{ kind: 'user', name: user.name ?? '' }];
        if (group !== undefined) return [{ kind: 'group', name: group.name ?? '' }];
        if (serviceAccount === undefined) return [];
        return [{ kind: 'account', name: serviceAccount.name ?? '', namespace: serviceAccount.namespace ?? '' }];
      }),
      resources: resourceRules.map(({ verbs, apiGroups, resources, clusterScope, namespaces }) => ({
        verbs: namesOf(verbs),
        groups: namesOf(apiGroups),
        resources: namesOf(resources),
        clusterScope: clusterScope === true,
        namespaces: namesOf(namespaces),
      })),
      paths: nonResourceRules.map(({ verbs, nonResourceURLs: urls = [] }) => ({
        verbs: namesOf(verbs),
        isEvery: urls.includes('*'),
        exact: new Set(urls),
        prefixes: urls.filter((url) => url.endsWith('/*')).map((url) => url.slice(0, -1)),
      })),
    })),
  };
}

const namesOf = (names: readonly string[] = []): Names => (names.includes('*') ? undefined : new Set(names));
