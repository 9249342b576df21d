/**
 * Delivers the changes of a cache to its watches. The events of a commit are computed once for each group of watches with equal
 * selections (`watch-groups.ts`), and every member receives the same array. A paused member has no buffer but a position, and
 * it catches up from the recent batches of the group or from the history. A member that falls behind the history is closed.
 *
 * An error of a sink closes its own watch, and an error of a selection closes the watches that it was evaluated for. No failure
 * here reaches the commit.
 */
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { TimeSlice } from '../../api/machinery/time-slice.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { newExpired, newInternalError } from '../../api/meta/status-error.ts';
import type { WatchEvent, WatchSink } from '../model/rest.ts';
import type { CacheEvent } from './cache-event.ts';
import type { ExistingObjects } from './cache-entry.ts';
import type { CacheWatchHandle, CacheWatchOptions } from './cache-watch.ts';
import { type Batch, bytesOf, isFull, nextInitial } from './event-batches.ts';
import { type Group, type GroupsSource, type Member, WatchGroups } from './watch-groups.ts';
import { tooOldText } from './version-errors.ts';

const BOOKMARK_MS = 60_000;
/** The number of patient watches that get events in one turn of the event loop, which takes about 15 ms. */
const TURN_WATCHES = 1000;
/** The changes above the compacted revision, in order. */
interface CacheHistory {
  /** Returns the revision of the newest change, or 0 if there is none. */
  newest(): number;
  after(revision: number): Iterable<CacheEvent>;
}

interface FanoutSource extends GroupsSource {
  readonly clock: Clock;
  readonly history: CacheHistory;
  compactedRevision(): number;
  /** Logs and counts a failed watch. */
  watchFailed(error: unknown): void;
}

/** The watches of one cache. */
export class WatchFanout {
  readonly #source: FanoutSource;
  readonly #groups: WatchGroups;
  #bookmarkTimer: Timer | undefined;
  /** Members that catch up in later turns, because too many get the events of a commit. */
  #behind: Member[] = [];

  constructor(source: FanoutSource) {
    this.#source = source;
    this.#groups = new WatchGroups(source);
  }

  /** Adds a watch, which is paused at first. It begins with the existing objects, or after a revision. */
  add(options: CacheWatchOptions, existing: ExistingObjects | undefined, sink: WatchSink): CacheWatchHandle {
    const group = this.#groups.of(options.selection);
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

  /**
   * Sends events, which are in the order of their revisions, to the live watches that select them. Patient watches may get them
   * in later turns.
   */
  deliver(events: readonly CacheEvent[]): void {
    const [first = 0, revision = 0] = [events[0]?.revision, events.at(-1)?.revision];
    let left = TURN_WATCHES;
    const slice = new TimeSlice(this.#source.clock);
    for (const [group, batches] of this.#shownTo(events)) {
      const last = batches.at(-1);
      if (last !== undefined) last.revision = revision;
      group.recent.add(batches, this.#groups.count);
      for (const member of group.members) {
        if (!member.live) continue;
        const isPatient = member.sink.isPatient === true;
        if (isPatient && (left === 0 || slice.isSpent)) this.#defer(member, first - 1);
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
    const slice = new TimeSlice(this.#source.clock);
    const members = this.#behind.splice(0, TURN_WATCHES);
    const spentAt = members.findIndex((member) => {
      if (!member.closed && !member.paused) this.#catchUp(member);
      return slice.isSpent;
    });
    if (spentAt >= 0) this.#behind.unshift(...members.slice(spentAt + 1));
    if (this.#behind.length > 0) setImmediate(() => this.#catchUpBehind());
  }

  /** Drops batches that the history no longer has. */
  compacted(revision: number): void {
    for (const group of this.#groups.all()) group.recent.compacted(revision);
  }

  /** Closes every watch, because changes up to `revision` are missing. */
  expire(revision: number): void {
    for (const { members } of this.#groups.all()) for (const member of members) this.#expire(member, revision);
  }

  end(): void {
    this.#bookmarkTimer?.cancel();
    this.#bookmarkTimer = undefined;
    for (const member of [...this.#groups.all()].flatMap(({ members }) => [...members])) {
      this.#remove(member);
      this.#end(member);
    }
  }

  /** Computes the batches of a commit. The members of a group whose selection throws are closed. */
  #shownTo(events: readonly CacheEvent[]): Map<Group, Batch[]> {
    return this.#groups.shownTo(events, (group, error) => {
      for (const member of group.members) this.#fail(member, error);
    });
  }

  #remove(member: Member): void {
    if (member.closed) return;
    member.closed = true;
    member.live = false;
    this.#groups.remove(member);
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
    const message = errorMessage(cause);
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

  /** Delivers the missing events until the member is live, paused, closed, or waits for a future revision. */
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
        // A watch that begins at a future revision becomes live when the storage reaches that revision.
        member.live = member.position <= this.#source.revision();
        if (!member.live) this.#awaitRevision(member);
        return;
      }
      if (!(member.position >= group.recent.from ? this.#sendRecent(member) : this.#sendHistory(member))) return;
    }
  }

  #newestOf(group: Group): number {
    return Math.max(this.#source.history.newest(), group.recent.newest);
  }

  #awaitRevision(member: Member): void {
    // A watch of a future revision is rare: its client knows the history of another cluster.
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
    for (const batch of member.group.recent.after(member.position)) {
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
      // The events of one revision are sent together, because a paused member continues after a whole revision.
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
    this.#remove(member);
    this.#end(member, newExpired(tooOldText(member.position, oldest)));
  }

  #armBookmarks(): void {
    this.#bookmarkTimer ??= this.#source.clock.after(BOOKMARK_MS, () => {
      this.#bookmarkTimer = undefined;
      let takesAnyBookmarks = false;
      for (const group of this.#groups.all()) {
        for (const member of group.members) {
          if (!member.bookmarks) continue;
          takesAnyBookmarks = true;
          this.#bookmark(member);
        }
      }
      if (takesAnyBookmarks) this.#armBookmarks();
    });
  }

  #bookmark(member: Member): void {
    const revision = this.#source.revision();
    // A member that is behind would lose the events that the bookmark skips.
    if (!member.live || !member.bookmarks || revision <= member.shown) return;
    this.#send(member, [{ type: 'BOOKMARK', resourceVersion: String(revision), initialEventsEnd: false }], revision);
  }
}
