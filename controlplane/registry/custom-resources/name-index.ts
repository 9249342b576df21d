/**
 * Finds by name which definitions have a name and which wait for it.
 *
 * A name that becomes free wakes one of the definitions that wait for it. If that one does not take the name, it wakes the
 * next.
 */
import type { TakenNames } from './accepted-names.ts';
import type { DefinitionNames } from '../kinds/apiextensions/definition.ts';

/** The names of a definition that are accepted, and those that it wants. */
interface NamesOf {
  readonly accepted: DefinitionNames;
  readonly wanted: DefinitionNames;
}

interface Entry {
  readonly owned: ReadonlySet<string>;
  readonly awaited: ReadonlySet<string>;
}

/** Definitions are known by their names. */
export class NameIndex {
  readonly #entries = new Map<string, Entry>();
  /** The definitions that have a name. Several may, if their statuses were written elsewhere. */
  readonly #owners = new Map<string, Set<string>>();
  /** The definitions that want a name that another one has, in the order in which they began to wait. */
  readonly #waiting = new Map<string, Set<string>>();

  /** Returns the names that a definition cannot have. */
  takenFrom(definition: string, group: string, builtIn: TakenNames): TakenNames {
    const has = (kind: keyof TakenNames, name: string): boolean =>
      builtIn[kind].has(name) || this.#isOwned(keyOf(kind, group, name), definition);
    return {
      resources: { has: (name) => has('resources', name) },
      kinds: { has: (name) => has('kinds', name) },
    };
  }

  /** Records the names of a definition. Returns the definitions that may get names which became free. */
  set(definition: string, group: string, { accepted, wanted }: NamesOf): string[] {
    const awaited = keysOf(group, wanted);
    for (const key of awaited) if (!this.#isOwned(key, definition)) awaited.delete(key);
    return this.#replace(definition, { owned: keysOf(group, accepted), awaited });
  }

  /** Forgets a definition. Returns the definitions that may get its names. */
  delete(definition: string): string[] {
    return this.#replace(definition, undefined);
  }

  #replace(definition: string, next: Entry | undefined): string[] {
    const before = this.#entries.get(definition);
    for (const key of before?.owned ?? []) if (next?.owned.has(key) !== true) leave(this.#owners, key, definition);
    for (const key of before?.awaited ?? []) if (next?.awaited.has(key) !== true) leave(this.#waiting, key, definition);
    for (const key of next?.owned ?? []) enter(this.#owners, key, definition);
    for (const key of next?.awaited ?? []) enter(this.#waiting, key, definition);
    if (next === undefined) this.#entries.delete(definition);
    else this.#entries.set(definition, next);
    const woken = new Set<string>();
    for (const key of [...(before?.owned ?? []), ...(before?.awaited ?? [])]) {
      if (this.#owners.has(key)) continue;
      for (const first of this.#waiting.get(key) ?? []) {
        woken.add(first);
        break;
      }
    }
    return [...woken];
  }

  #isOwned(key: string, exceptBy: string): boolean {
    const owners = this.#owners.get(key);
    return owners !== undefined && owners.size > (owners.has(exceptBy) ? 1 : 0);
  }
}

const keyOf = (kind: keyof TakenNames, group: string, name: string): string => `${kind} ${group} ${name}`;

/** Returns the keys of all names of a definition. Empty names count as absent. */
function keysOf(group: string, { plural, singular, shortNames, kind, listKind }: DefinitionNames): Set<string> {
  const keys = new Set<string>();
  for (const name of [plural, singular, ...(shortNames ?? [])]) if (name) keys.add(keyOf('resources', group, name));
  for (const name of [kind, listKind]) if (name) keys.add(keyOf('kinds', group, name));
  return keys;
}

function enter(all: Map<string, Set<string>>, key: string, definition: string): void {
  const definitions = all.get(key);
  if (definitions === undefined) all.set(key, new Set([definition]));
  else definitions.add(definition);
}

function leave(all: Map<string, Set<string>>, key: string, definition: string): void {
  const definitions = all.get(key);
  definitions?.delete(definition);
  if (definitions?.size === 0) all.delete(key);
}
