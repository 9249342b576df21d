/**
 * Checks whether one correct storage can explain everything that the clients of a soak test saw: every key is linearizable, no
 * acknowledged write is lost, no deleted value reappears, no revision is used twice, and each watch gets every event once and
 * in order, over restarts. Pure.
 *
 * The watches together determine the sequence of all events. Every other observation is compared with that sequence and with
 * the time at which it was made.
 */
export interface SeenVersion {
  readonly revision: number;
  readonly value: string;
}

interface Timed {
  readonly startMs: number;
  readonly endMs: number;
  /** The number of the server that answered, if the test distinguishes its servers. */
  readonly server?: number | undefined;
}

export type Operation =
  | (Timed & {
      readonly kind: 'write';
      readonly key: string;
      /** The value, which is unique among all writes; `undefined` for a deletion. */
      readonly value: string | undefined;
      /** The revision that the write expects. `undefined` means a creation. */
      readonly expected: number | undefined;
      /** `refused` means that the response guarantees that nothing was written. */
      readonly outcome: 'done' | 'refused' | 'unknown';
      /** The revision of a successful write. Responses to deletions have none. */
      readonly revision: number | undefined;
    })
  | (Timed & { readonly kind: 'read'; readonly key: string; readonly found: SeenVersion | undefined })
  | (Timed & { readonly kind: 'list'; readonly revision: number; readonly items: ReadonlyMap<string, SeenVersion> });

export interface SeenEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly key: string;
  readonly revision: number;
  readonly value: string;
}

/** A watch without gaps over any number of connections: everything after `from` up to the last event or bookmark. */
export interface WatchSegment {
  readonly name: string;
  readonly from: number;
  through: number;
  readonly events: SeenEvent[];
}

type Write = Extract<Operation, { readonly kind: 'write' }>;
const LIMIT = 20;

/** Returns descriptions of the violations, at most twenty. */
export function violations(operations: readonly Operation[], segments: readonly WatchSegment[]): string[] {
  const found: string[] = [];
  const report = (sentence: string): void => {
    if (found.length < LIMIT) found.push(sentence);
  };
  const sequence = sequenceOf(segments, report);
  checkWatches(segments, sequence, report);
  const covered = coverage(segments);
  const byKey = Map.groupBy(sequence, ({ key }) => key);
  for (const [key, events] of byKey) checkKey(key, events, covered, report);
  const end = Math.max(0, ...segments.map(({ through }) => through));
  checkWrites(operations, byKey, covered, end, report);
  checkLists(operations, sequence, covered, report);
  checkOrder(operations, byKey, { covered, end, report });
  return found;
}

function sequenceOf(segments: readonly WatchSegment[], report: (sentence: string) => void): SeenEvent[] {
  const events = new Map<number, SeenEvent>();
  for (const segment of segments) {
    for (const event of segment.events) {
      const known = events.get(event.revision);
      if (known === undefined) events.set(event.revision, event);
      else if (known.key !== event.key || known.type !== event.type || known.value !== event.value)
        report(`revision ${event.revision} is used twice: ${shown(known)} and ${shown(event)} (${segment.name})`);
    }
  }
  return [...events.values()].sort((a, b) => a.revision - b.revision);
}

const shown = ({ type, key, value, revision }: SeenEvent): string => `${type} ${key}=${value}@${revision}`;

/** Checks that each watch has every event of its range, once and in order. */
function checkWatches(
  segments: readonly WatchSegment[],
  sequence: readonly SeenEvent[],
  report: (sentence: string) => void,
): void {
  for (const { name, from, through, events } of segments) {
    for (const [at, event] of events.entries()) {
      const before = events[at - 1];
      if (before !== undefined && event.revision <= before.revision)
        report(`watch ${name} shows ${shown(event)} after ${shown(before)}`);
      if (event.revision <= from) report(`watch ${name} shows ${shown(event)}, but begins after ${from}`);
    }
    const has = new Set(events.map(({ revision }) => revision));
    for (const event of sequence) {
      if (event.revision > from && event.revision <= through && !has.has(event.revision))
        report(`watch ${name} (${from} to ${through}) lacks ${shown(event)}`);
    }
  }
}

type Covered = (from: number, through: number) => boolean;

/** Returns the function that checks whether one run of overlapping watches saw everything after `from` up to `through`. */
function coverage(segments: readonly WatchSegment[]): Covered {
  const ranges: { from: number; through: number }[] = [];
  for (const { from, through } of [...segments].sort((a, b) => a.from - b.from)) {
    const last = ranges.at(-1);
    if (last !== undefined && from <= last.through) last.through = Math.max(last.through, through);
    else ranges.push({ from, through });
  }
  return (from, through) => ranges.some((range) => range.from <= from && through <= range.through);
}

/** Checks that creations, updates and deletions of one key have a valid order, and that no value reappears. */
function checkKey(
  key: string,
  events: readonly SeenEvent[],
  covered: Covered,
  report: (sentence: string) => void,
): void {
  const values = new Set<string>();
  for (const [at, event] of events.entries()) {
    const before = events[at - 1];
    if (event.type !== 'DELETED') {
      if (values.has(event.value)) report(`${key}: a value comes back: ${shown(event)}`);
      values.add(event.value);
    }
    if (before === undefined || !covered(before.revision, event.revision)) continue;
    if ((event.type === 'ADDED') !== (before.type === 'DELETED')) report(`${shown(event)} follows ${shown(before)}`);
    if (event.type === 'DELETED' && event.value !== before.value) report(`${shown(event)} deletes ${shown(before)}`);
  }
}

function checkWrites(
  operations: readonly Operation[],
  byKey: ReadonlyMap<string, readonly SeenEvent[]>,
  covered: Covered,
  end: number,
  report: (sentence: string) => void,
): void {
  for (const write of operations) {
    if (write.kind !== 'write') continue;
    const events = byKey.get(write.key) ?? [];
    if (write.outcome === 'refused') {
      if (write.value !== undefined && events.some(({ type, value }) => type !== 'DELETED' && value === write.value))
        report(`a write that was refused is there: ${write.key}=${write.value}`);
    } else if (write.outcome === 'done') checkDone(write, events, covered, end, report);
  }
}

function checkDone(
  write: Write,
  events: readonly SeenEvent[],
  covered: Covered,
  end: number,
  report: (sentence: string) => void,
): void {
  const { key, value, expected, revision } = write;
  if (value === undefined) {
    if (expected === undefined) return;
    const next = events.find((event) => event.revision > expected);
    if (next !== undefined && next.type !== 'DELETED' && covered(expected, next.revision))
      report(`${key}@${expected} was deleted with that precondition, but ${shown(next)} follows it`);
    if (next === undefined && covered(expected, end)) report(`the deletion of ${key}@${expected} is lost`);
    return;
  }
  if (revision === undefined || !covered(revision - 1, revision)) return;
  const at = events.findIndex((event) => event.revision === revision);
  const event = events[at];
  if (event === undefined || event.value !== value) {
    report(
      `an acknowledged write is lost: ${key}=${value}@${revision}, there is ${event === undefined ? 'nothing' : shown(event)}`,
    );
    return;
  }
  const before = events[at - 1];
  if (before === undefined || !covered(before.revision, revision)) return;
  if (expected === undefined ? before.type !== 'DELETED' : before.revision !== expected)
    report(`${shown(event)} was written over revision ${expected ?? 'none'}, but follows ${shown(before)}`);
}

/**
 * Checks that a list shows the state of all keys at its revision: that of the list before it with the events in between. A list
 * after a gap of all watches is not checked but believed, because the last event of a key may be one that no watch saw.
 */
function checkLists(
  operations: readonly Operation[],
  sequence: readonly SeenEvent[],
  covered: Covered,
  report: (sentence: string) => void,
): void {
  const lists = operations.filter((one) => one.kind === 'list').sort((a, b) => a.revision - b.revision);
  const first = lists[0];
  if (first === undefined) return;
  let base = first.revision;
  let state = new Map(first.items);
  let next = 0;
  for (const list of lists) {
    const isFollowed = list.revision === base || covered(base, list.revision);
    if (!isFollowed) state = new Map(list.items);
    base = list.revision;
    for (let event = sequence[next]; event !== undefined && event.revision <= list.revision; event = sequence[next]) {
      next += 1;
      if (!isFollowed || event.revision <= first.revision) continue;
      if (event.type === 'DELETED') state.delete(event.key);
      else state.set(event.key, { revision: event.revision, value: event.value });
    }
    for (const key of new Set([...state.keys(), ...list.items.keys()])) {
      const [wanted, found] = [state.get(key), list.items.get(key)];
      if (wanted?.revision !== found?.revision || wanted?.value !== found?.value)
        report(`the list at ${list.revision} shows ${key}=${textOf(found)}, but it is ${textOf(wanted)}`);
    }
  }
}

const textOf = (seen: SeenVersion | undefined): string =>
  seen === undefined ? 'nothing' : `${seen.value}@${seen.revision}`;

interface Order {
  readonly covered: Covered;
  /** The newest revision that a watch showed. */
  readonly end: number;
  readonly report: (sentence: string) => void;
}

/** Checks that an operation shows no older state than the one that existed when it began. */
function checkOrder(
  operations: readonly Operation[],
  byKey: ReadonlyMap<string, readonly SeenEvent[]>,
  { covered, end, report }: Order,
): void {
  const shownBy = (one: Operation): number | undefined => newestOf(one, byKey, covered);
  const finished = operations.filter((one) => shownBy(one) !== undefined).sort((a, b) => a.endMs - b.endMs);
  const newest = new Map<string, number>();
  let newestOfAll = 0;
  let next = 0;
  for (const one of [...operations].sort((a, b) => a.startMs - b.startMs)) {
    for (let done = finished[next]; done !== undefined && done.endMs < one.startMs; done = finished[next]) {
      next += 1;
      const revision = shownBy(done) ?? 0;
      newestOfAll = Math.max(newestOfAll, revision);
      if (done.kind !== 'list') newest.set(done.key, Math.max(newest.get(done.key) ?? 0, revision));
    }
    if (one.kind === 'list') {
      if (one.revision < newestOfAll) report(`a list shows ${one.revision}, after ${newestOfAll} was shown`);
    } else if (one.kind === 'read' && one.found === undefined) {
      const least = newest.get(one.key) ?? 0;
      const isExplained =
        isDeleted(byKey.get(one.key) ?? [], least) || (!covered(least, end) && mayBeDeleted(operations, one, least));
      if (!isExplained) report(`a read of ${one.key} finds nothing, after ${least} was shown and nobody deleted it`);
    } else {
      const revision = shownBy(one);
      const least = newest.get(one.key) ?? 0;
      if (revision !== undefined && (revision < least || (one.kind === 'write' && revision === least)))
        report(`a ${one.kind} of ${one.key} gives ${revision}, after ${least} was shown`);
    }
  }
}

/** Whether a missing key that existed at `least` was deleted since then, or did not exist at `least`. */
function isDeleted(events: readonly SeenEvent[], least: number): boolean {
  const at = events.findLastIndex((event) => event.revision <= least);
  return at < 0 || events.slice(at).some(({ type }) => type === 'DELETED');
}

/** Whether a deletion that no watch saw, because all of them expired, explains that a read finds nothing. */
function mayBeDeleted(
  operations: readonly Operation[],
  read: Operation & { readonly key: string },
  least: number,
): boolean {
  return operations.some(
    (one) =>
      one.kind === 'write' &&
      one.key === read.key &&
      one.value === undefined &&
      one.outcome !== 'refused' &&
      (one.expected ?? 0) >= least &&
      one.startMs < read.endMs,
  );
}

/** Returns the newest revision that an operation shows for certain. */
function newestOf(
  one: Operation,
  byKey: ReadonlyMap<string, readonly SeenEvent[]>,
  covered: Covered,
): number | undefined {
  if (one.kind === 'list') return one.revision;
  if (one.kind === 'read') return one.found?.revision;
  if (one.outcome !== 'done') return undefined;
  if (one.revision !== undefined) return one.revision;
  const { expected = 0 } = one;
  const deletion = byKey.get(one.key)?.find((event) => event.revision > expected && event.type === 'DELETED');
  return deletion !== undefined && covered(expected, deletion.revision) ? deletion.revision : undefined;
}
