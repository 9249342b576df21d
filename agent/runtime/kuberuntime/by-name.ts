/**
 * Finds containers and their statuses by name. A pod may have thousands of containers, so that a search of the list for each of
 * them would take the agent seconds.
 */

const indexes = new WeakMap<object, ReadonlyMap<string, unknown>>();

/** Returns the entries of the list by name; the first one of a name counts. The list must not change afterwards. */
export function byName<Entry extends { readonly name: string }>(list: readonly Entry[]): ReadonlyMap<string, Entry> {
  const cached = indexes.get(list);
  // The index was built from this list, so it has its entries.
  if (cached !== undefined) return cached as ReadonlyMap<string, Entry>;
  const built = new Map<string, Entry>();
  for (const entry of list) if (!built.has(entry.name)) built.set(entry.name, entry);
  indexes.set(list, built);
  return built;
}
