/**
 * Holds the watches of one cache in groups of equal selections, and finds the groups that an event concerns. The route of
 * a group is a key, a field value or a namespace that all its events have, or empty. An event is compared with few selections.
 */
import type { WatchSink } from '../model/rest.ts';
import type { CacheEvent } from './cache-event.ts';
import { addTo, type Batch, batchOf, type Initial } from './event-batches.ts';
import { RecentBatches } from './recent-batches.ts';
import type { Selection } from './selection.ts';

/** Watches with equal selections. */
export interface Group {
  readonly selection: Selection;
  readonly members: Set<Member>;
  readonly recent: RecentBatches;
}

/** A watch of a group. */
export interface Member {
  readonly sink: WatchSink;
  readonly group: Group;
  readonly bookmarks: boolean;
  /** The existing objects that are not delivered yet. */
  initial: Initial | undefined;
  /** Whether the member waits for `resume`, or for its turn to begin. */
  paused: boolean;
  /** The revision through which events were delivered. It is current only while the member is not live. */
  position: number;
  /** Whether the member gets the events of each commit as it happens. */
  live: boolean;
  /** The newest revision that events or bookmarks have shown to the member. */
  shown: number;
  closed: boolean;
}

/** What the groups read of their cache. */
export interface GroupsSource {
  readonly indexedFields: readonly string[];
  readonly namespaced: boolean;
  revision(): number;
  keyOf(namespace: string, name: string): string;
}

/** Owns the groups of one cache. */
export class WatchGroups {
  readonly #source: GroupsSource;
  /** The groups by the text of their selections. */
  readonly #bySelection = new Map<string, Group>();
  readonly #byRoute = new Map<string, Set<Group>>();
  /** The number of groups that are routed by a field. */
  #fieldRoutes = 0;

  constructor(source: GroupsSource) {
    this.#source = source;
  }

  get count(): number {
    return this.#bySelection.size;
  }

  all(): Iterable<Group> {
    return this.#bySelection.values();
  }

  /** Returns the group of a selection. Its recent batches begin now if it is new. */
  of(selection: Selection): Group {
    const existing = this.#bySelection.get(selection.text);
    if (existing !== undefined) return existing;
    const group: Group = { selection, members: new Set(), recent: new RecentBatches(this.#source.revision()) };
    this.#bySelection.set(selection.text, group);
    const route = this.#routeOf(selection);
    if (route.startsWith('field:')) this.#fieldRoutes += 1;
    const routed = this.#byRoute.get(route);
    if (routed === undefined) this.#byRoute.set(route, new Set([group]));
    else routed.add(group);
    return group;
  }

  /** Removes a watch, and its group with the last one. */
  remove(member: Member): void {
    const { group } = member;
    group.members.delete(member);
    if (group.members.size > 0) return;
    this.#bySelection.delete(group.selection.text);
    const route = this.#routeOf(group.selection);
    if (route.startsWith('field:')) this.#fieldRoutes -= 1;
    const routed = this.#byRoute.get(route);
    routed?.delete(group);
    if (routed?.size === 0) this.#byRoute.delete(route);
  }

  /**
   * Returns the batches of a commit for each group that it concerns. `onFailure` gets each error of a selection; its group gets
   * no batch.
   */
  shownTo(events: readonly CacheEvent[], onFailure: (group: Group, error: unknown) => void): Map<Group, Batch[]> {
    const shown = new Map<Group, Batch[]>();
    if (this.#bySelection.size === 0) return shown;
    const failed = new Set<Group>();
    const first = events[0]?.revision ?? 0;
    for (const event of events) {
      for (const route of this.#routesOf(event)) {
        for (const group of this.#byRoute.get(route) ?? []) {
          try {
            const one = event.shownTo(group.selection);
            if (one === undefined) continue;
            const batches = shown.get(group);
            if (batches === undefined) shown.set(group, [batchOf(first, event.revision, one)]);
            else addTo(batches, event.revision, one);
          } catch (error) {
            failed.add(group);
            onFailure(group, error);
          }
        }
      }
    }
    for (const group of failed) shown.delete(group);
    return shown;
  }

  /** Returns the routes of the groups that an event can concern. */
  #routesOf(event: CacheEvent): Iterable<string> {
    const entry = event.current ?? event.previous;
    const routes = new Set(['', `key:${event.key}`, `namespace:${entry?.namespace ?? ''}`]);
    if (this.#fieldRoutes === 0) return routes;
    try {
      for (const field of this.#source.indexedFields) {
        if (event.current !== undefined) routes.add(`field:${field}=${event.current.field(field)}`);
        if (event.previous !== undefined) routes.add(`field:${field}=${event.previous.field(field)}`);
      }
    } catch {
      // The fields cannot be read, so every group evaluates the event, and the groups that need the fields fail.
      return [...this.#byRoute.keys()];
    }
    return routes;
  }

  /**
   * Returns the most selective property that all events for a selection have: a key, the value of an indexed field, or a
   * namespace. Returns an empty text if they have none in common.
   */
  #routeOf(selection: Selection): string {
    const { namespace, name } = selection;
    if (name !== '' && (namespace !== '' || !this.#source.namespaced))
      return `key:${this.#source.keyOf(namespace, name)}`;
    for (const { kind, key, values } of selection.indexable) {
      if (kind === 'field' && this.#source.indexedFields.includes(key)) return `field:${key}=${values[0] ?? ''}`;
    }
    return namespace === '' ? '' : `namespace:${namespace}`;
  }
}
