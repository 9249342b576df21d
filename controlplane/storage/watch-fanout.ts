/**
 * Delivers the changes of a cache to its watches. Watches with equal selections form a group. The events of a commit are
 * computed once for the group, and every member receives the same array. A paused member has no buffer but a position, and it
 * catches up from the recent batches of the group or from the history. A member that falls behind the history is closed.
 *
 * Conversion, encoding and sockets run inside a sink. An error of a sink closes its own watch, and an error of a selection
 * closes the watches of its group. Clients open them again. No failure here reaches the commit.
 */
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { newExpired, newInternalError } from '../../api/meta/status-error.ts';
import type { WatchEvent, WatchSink } from '../model/rest.ts';
import type { CacheEvent } from './cache-event.ts';
import type { ExistingObjects } from './cache-entry.ts';
import type { CacheWatchHandle, CacheWatchOptions } from './cache-watch.ts';
import { addTo, type Batch, batchOf, bytesOf, type Initial, isFull, nextInitial } from './event-batches.ts';
import type { Selection } from './selection.ts';

const BOOKMARK_MS = 60_000;
/** The number of patient watches that get events in one turn of the event loop. They take about 15 ms. */
const TURN_WATCHES = 1000;
/** The number of batches that a group keeps for members that are a little behind. */
const RECENT_BATCHES = 128;

interface Group {
  readonly selection: Selection;
  readonly members: Set<Member>;
  /** All batches after `recentFrom`. */
  recent: Batch[];
  recentFrom: number;
}

interface Member {
  readonly sink: WatchSink;
  readonly group: Group;
  readonly bookmarks: boolean;
  /** The existing objects that are not delivered yet. */
  initial: Initial | undefined;
  /** Whether the member waits for `resume`, or for its turn to begin. */
  paused: boolean;
  /** The revision through which events were delivered. It is current only while the member is not live. */
  position: number;
  live: boolean;
  /** The newest revision that events or bookmarks have shown to the member. */
  shown: number;
  closed: boolean;
}

/** The changes above the compacted revision, in order. */
interface CacheHistory {
  /** Returns the revision of the newest change, or 0 if there is none. */
  newest(): number;
  after(revision: number): Iterable<CacheEvent>;
}

interface FanoutSource {
  readonly clock: Clock;
  readonly history: CacheHistory;
  readonly indexedFields: readonly string[];
  revision(): number;
  compactedRevision(): number;
  keyOf(namespace: string, name: string): string;
  readonly namespaced: boolean;
  /** Logs and counts a failed watch. */
  watchFailed(error: unknown): void;
}

/** The watches of one cache. Its cache calls it after each commit, in the same turn of the event loop. */
export class WatchFanout {
  readonly #source: FanoutSource;
  /** The groups by the text of their selections. */
  readonly #groups = new Map<string, Group>();
  /** The groups by what an event must have to concern them (`routeOf`). */
  readonly #routes = new Map<string, Set<Group>>();
  /** The number of groups that are routed by a field. */
  #fieldRoutes = 0;
  #bookmarkTimer: Timer | undefined;
  /** Members that catch up in later turns, because too many get the events of a commit. */
  #behind: Member[] = [];

  constructor(source: FanoutSource) {
    this.#source = source;
  }

  /** Adds a watch, which is paused at first. It begins with the existing objects, or after a revision. */
  add(options: CacheWatchOptions, existing: ExistingObjects | undefined, sink: WatchSink): CacheWatchHandle {
    const group = this.#groupOf(options.selection);
    const position = options.afterRevision ?? existing?.revision ?? this.#source.revision();
    const member: Member = {
      sink,
      group,
      bookmarks: options.bookmarks,
      initial: existing && { entries: existing.entries, next: 0, endBookmark: options.initialEventsEnd },
      paused: true,
      position,
      live: false,
      shown: position,
      closed: false,
    };
    group.members.add(member);
    if (member.bookmarks) this.#armBookmarks();
    const resume = (): void => {
      if (member.closed || !member.paused) return;
      member.paused = false;
      this.#catchUp(member);
    };
    // The caller has the handle before the first event arrives.
    setImmediate(resume);
    return { resume, close: () => this.#remove(member), bookmark: () => this.#bookmark(member) };
  }

  deliver(events: readonly CacheEvent[]): void {
    const [first = 0, revision = 0] = [events[0]?.revision, events.at(-1)?.revision];
    let left = TURN_WATCHES;
    for (const [group, batches] of this.#shown(events)) {
      const last = batches.at(-1);
      if (last !== undefined) last.revision = revision;
      group.recent.push(...batches);
      while (group.recent.length > RECENT_BATCHES) this.#trim(group);
      for (const member of group.members) {
        if (!member.live) continue;
        const isPatient = member.sink.isPatient === true;
        if (isPatient && left === 0) this.#defer(member, first - 1);
        else for (const batch of batches) if (member.live) this.#send(member, batch.events, batch.revision);
        if (isPatient && left > 0) left -= 1;
      }
    }
  }

  /** Lets a live member catch up from a revision in a later turn. */
  #defer(member: Member, position: number): void {
    member.live = false;
    member.position = Math.max(member.position, position);
    if (this.#behind.push(member) === 1) setImmediate(() => this.#catchUpBehind());
  }

  #catchUpBehind(): void {
    for (const member of this.#behind.splice(0, TURN_WATCHES))
      if (!member.closed && !member.paused) this.#catchUp(member);
    if (this.#behind.length > 0) setImmediate(() => this.#catchUpBehind());
  }

  /** Drops batches that the history no longer has. */
  compacted(revision: number): void {
    for (const group of this.#groups.values()) {
      if ((group.recent[0]?.revision ?? Infinity) > revision) continue;
      group.recent = group.recent.filter((batch) => batch.revision > revision);
      group.recentFrom = Math.max(group.recentFrom, revision);
    }
  }

  /** Closes every watch, because changes up to `revision` are missing. Clients list again. */
  expire(revision: number): void {
    for (const { members } of this.#groups.values()) for (const member of members) this.#expire(member, revision);
  }

  /** Closes every watch. */
  end(): void {
    this.#bookmarkTimer?.cancel();
    this.#bookmarkTimer = undefined;
    for (const member of [...this.#groups.values()].flatMap(({ members }) => [...members])) {
      this.#remove(member);
      this.#end(member);
    }
  }

  /** Returns the batches of a commit for each group that it concerns. */
  #shown(events: readonly CacheEvent[]): Map<Group, Batch[]> {
    const shown = new Map<Group, Batch[]>();
    if (this.#groups.size === 0) return shown;
    const failed = new Set<Group>();
    const first = events[0]?.revision ?? 0;
    for (const event of events) {
      for (const route of this.#routesOf(event)) {
        for (const group of this.#routes.get(route) ?? []) {
          try {
            const one = event.shownTo(group.selection);
            if (one === undefined) continue;
            const batches = shown.get(group);
            if (batches === undefined) shown.set(group, [batchOf(first, event.revision, one)]);
            else addTo(batches, event.revision, one);
          } catch (error) {
            failed.add(group);
            for (const member of group.members) this.#fail(member, error);
          }
        }
      }
    }
    for (const group of failed) shown.delete(group);
    return shown;
  }

  #routesOf(event: CacheEvent): Iterable<string> {
    const either = event.current ?? event.previous;
    const routes = new Set(['', `key:${event.key}`, `namespace:${either?.namespace ?? ''}`]);
    if (this.#fieldRoutes === 0) return routes;
    try {
      for (const field of this.#source.indexedFields) {
        if (event.current !== undefined) routes.add(`field:${field}=${event.current.field(field)}`);
        if (event.previous !== undefined) routes.add(`field:${field}=${event.previous.field(field)}`);
      }
    } catch {
      // The fields cannot be read, so every group evaluates the event, and the groups that need the fields fail.
      return [...this.#routes.keys()];
    }
    return routes;
  }

  #routeOf(selection: Selection): string {
    const { namespace, name } = selection;
    if (name !== '' && (namespace !== '' || !this.#source.namespaced))
      return `key:${this.#source.keyOf(namespace, name)}`;
    for (const { kind, key, values } of selection.indexable) {
      if (kind === 'field' && this.#source.indexedFields.includes(key)) return `field:${key}=${values[0] ?? ''}`;
    }
    return namespace === '' ? '' : `namespace:${namespace}`;
  }

  #groupOf(selection: Selection): Group {
    const known = this.#groups.get(selection.text);
    if (known !== undefined) return known;
    const group: Group = { selection, members: new Set(), recent: [], recentFrom: this.#source.revision() };
    this.#groups.set(selection.text, group);
    const route = this.#routeOf(selection);
    if (route.startsWith('field:')) this.#fieldRoutes += 1;
    const routed = this.#routes.get(route);
    if (routed === undefined) this.#routes.set(route, new Set([group]));
    else routed.add(group);
    return group;
  }

  #remove(member: Member): void {
    if (member.closed) return;
    member.closed = true;
    member.live = false;
    const { group } = member;
    group.members.delete(member);
    if (group.members.size > 0) return;
    this.#groups.delete(group.selection.text);
    const route = this.#routeOf(group.selection);
    if (route.startsWith('field:')) this.#fieldRoutes -= 1;
    const routed = this.#routes.get(route);
    routed?.delete(group);
    if (routed?.size === 0) this.#routes.delete(route);
  }

  #trim(group: Group): void {
    const dropped = group.recent.splice(0, group.recent.length >> 1);
    group.recentFrom = dropped.at(-1)?.revision ?? group.recentFrom;
  }

  /** Sends events. Returns whether the member takes more. */
  #send(member: Member, events: readonly WatchEvent[], revision: number): boolean {
    member.position = revision;
    member.shown = revision;
    try {
      if (member.sink.onEvents(events)) return !member.closed;
    } catch (error) {
      this.#fail(member, error);
      return false;
    }
    member.paused = true;
    member.live = false;
    return false;
  }

  /** Closes a failed watch, with an ERROR event if its sink still accepts one. */
  #fail(member: Member, cause: unknown): void {
    if (member.closed) return;
    this.#remove(member);
    this.#source.watchFailed(cause);
    const message = cause instanceof Error ? cause.message : String(cause);
    this.#end(member, newInternalError(`the watch failed: ${message}`, cause));
  }

  #end(member: Member, error?: Error): void {
    try {
      if (error !== undefined) member.sink.onEvents([{ type: 'ERROR', error }]);
    } catch (cause) {
      this.#source.watchFailed(cause);
    }
    try {
      member.sink.onEnd();
    } catch (cause) {
      this.#source.watchFailed(cause);
    }
  }

  /** Delivers the missing events until the member is live, paused or closed. */
  #catchUp(member: Member): void {
    try {
      this.#deliverMissing(member);
    } catch (error) {
      this.#fail(member, error);
    }
  }

  #deliverMissing(member: Member): void {
    if (!this.#sendInitial(member)) return;
    while (!member.closed && !member.paused) {
      if (member.position < this.#source.compactedRevision()) {
        this.#expire(member);
        return;
      }
      const { group } = member;
      if (member.position >= this.#source.revision() || member.position >= this.#newestOf(group)) {
        // A watch that begins at a future revision is not live before it.
        member.live = member.position <= this.#source.revision();
        if (!member.live) this.#awaitRevision(member);
        return;
      }
      if (!(member.position >= group.recentFrom ? this.#sendRecent(member) : this.#sendHistory(member))) return;
    }
  }

  #newestOf(group: Group): number {
    return Math.max(this.#source.history.newest(), group.recent.at(-1)?.revision ?? 0);
  }

  #awaitRevision(member: Member): void {
    // This is rare: a client of another cluster's history. It is checked again after a second.
    this.#source.clock.after(1000, () => {
      if (!member.closed && !member.paused && !member.live) this.#catchUp(member);
    });
  }

  #sendInitial(member: Member): boolean {
    for (let { initial } = member; initial !== undefined; initial = member.initial) {
      if (initial.next < initial.entries.length) {
        if (!this.#send(member, nextInitial(initial), member.position)) return false;
        continue;
      }
      member.initial = undefined;
      if (!initial.endBookmark) break;
      const resourceVersion = String(member.position);
      const end: WatchEvent = { type: 'BOOKMARK', resourceVersion, initialEventsEnd: true };
      if (!this.#send(member, [end], member.position)) return false;
    }
    return !member.closed;
  }

  #sendRecent(member: Member): boolean {
    for (const batch of member.group.recent) {
      if (batch.revision <= member.position) continue;
      if (batch.first <= member.position) return this.#sendHistory(member); // A part of it was shown.
      if (!this.#send(member, batch.events, batch.revision)) return false;
    }
    member.position = Math.max(member.position, this.#newestOf(member.group));
    return true;
  }

  #sendHistory(member: Member): boolean {
    let events: WatchEvent[] = [];
    let bytes = 0;
    let through = member.position;
    for (const event of this.#source.history.after(member.position)) {
      // The events of one revision are sent together, because the member goes on after a revision.
      if (isFull(events.length, bytes) && event.revision > through) {
        if (!this.#send(member, events, through)) return false;
        events = [];
        bytes = 0;
      }
      through = event.revision;
      const shown = event.shownTo(member.group.selection);
      if (shown === undefined) continue;
      events.push(shown);
      bytes += bytesOf(shown);
    }
    if (events.length > 0) return this.#send(member, events, through);
    member.position = through;
    return true;
  }

  #expire(member: Member, oldest = this.#source.compactedRevision()): void {
    const message = `too old resource version: ${member.position} (${oldest})`;
    this.#remove(member);
    this.#end(member, newExpired(message));
  }

  #armBookmarks(): void {
    this.#bookmarkTimer ??= this.#source.clock.after(BOOKMARK_MS, () => {
      this.#bookmarkTimer = undefined;
      let wanted = false;
      for (const group of this.#groups.values()) {
        for (const member of group.members) {
          if (!member.bookmarks) continue;
          wanted = true;
          this.#bookmark(member);
        }
      }
      if (wanted) this.#armBookmarks();
    });
  }

  #bookmark(member: Member): void {
    const revision = this.#source.revision();
    // A member that is behind would lose the events that the bookmark skips.
    if (!member.live || !member.bookmarks || revision <= member.shown) return;
    this.#send(member, [{ type: 'BOOKMARK', resourceVersion: String(revision), initialEventsEnd: false }], revision);
  }
}
