/**
 * Checks what the clients of a first control plane and its standby saw against what docs/high-availability.md promises. Each
 * promotion begins a term, which has the revisions of the term before it up to the last one that was copied. What survives all
 * promotions must be the history of one correct storage (`../history.ts`), and what does not survive must be what may be lost.
 * Pure.
 */
import { type Operation, violations, type WatchSegment } from '../history.ts';

/** A time in which one server is the first. Times are those of `performance.now()`. */
export interface Term {
  readonly server: number;
  /** The last revision that this term has of the one before it. */
  readonly copied: number;
  /** The term writes above this revision. */
  readonly begins: number;
  /** The time at which the promotion was requested. `doneMs` is the time at which the command returned. */
  readonly askedMs: number;
  readonly doneMs: number;
  /** The time from which on the former first must acknowledge nothing. It is infinite until that is known. */
  fencedMs: number;
  /** Whether the command said that nothing is lost. */
  readonly isComplete: boolean;
  /** The time at which the copy was complete according to the command. Everything that was acknowledged before it is kept. */
  readonly completeAtMs: number;
}

export interface LineageReport {
  readonly violations: readonly string[];
  /** The number of acknowledged writes that were lost because they were not copied yet. */
  readonly lost: number;
  /** The number of writes that a former first acknowledged after the promotion and before it was stopped. */
  readonly afterPromotion: number;
}

type Write = Extract<Operation, { readonly kind: 'write' }>;

const LIMIT = 20;

/** Returns the violations of the promises, and what promotions have lost. */
export function lineageReport(
  operations: readonly Operation[],
  segments: readonly WatchSegment[],
  terms: readonly Term[],
): LineageReport {
  const found: string[] = [];
  const report = (sentence: string): void => {
    if (found.length < LIMIT) found.push(sentence);
  };
  const lineage = new Lineage(operations, terms);
  const kept = operations.flatMap((one) => lineage.kept(one, report));
  const keptSegments = segments.flatMap((segment) => lineage.keptPart(segment, report));
  checkDeletions(kept, report);
  const lists = kept.filter((one) => one.kind === 'list');
  const deciding = [...terms.map(({ doneMs }) => lists.find(({ startMs }) => startMs > doneMs)), lists.at(-1)];
  const reads = deciding.flatMap((one) => (one === undefined ? [] : readsOf(one, kept)));
  checkLosses(kept, reads, report);
  const others = violations([...kept, ...reads], keptSegments);
  return {
    violations: [...new Set([...found, ...others])],
    lost: lineage.lost,
    afterPromotion: lineage.afterPromotion,
  };
}

class Lineage {
  readonly #terms: readonly Term[];
  /** For each term, the time before which every acknowledged write was copied by the next term, because a later write was. */
  readonly #sureMs: readonly number[];
  lost = 0;
  afterPromotion = 0;

  constructor(operations: readonly Operation[], terms: readonly Term[]) {
    this.#terms = terms;
    const sure = terms.map(() => Number.NEGATIVE_INFINITY);
    for (const one of operations) {
      const revision = one.kind === 'list' ? one.revision : one.kind === 'write' ? one.revision : undefined;
      const at = revision === undefined || !this.#isKept(revision) ? undefined : this.#termAt(revision);
      if (at !== undefined) sure[at] = Math.max(sure[at] ?? 0, one.startMs);
    }
    this.#sureMs = sure;
  }

  #termAt(revision: number): number {
    return this.#terms.findLastIndex(({ begins }) => begins < revision);
  }

  #isKept(revision: number): boolean {
    const next = this.#terms[this.#termAt(revision) + 1];
    return next === undefined || revision <= next.copied;
  }

  /** Returns what the operation says about what survived, or nothing. */
  kept(one: Operation, report: (sentence: string) => void): Operation[] {
    if (one.kind === 'write' && one.outcome !== 'done') return [one];
    const at = this.#terms.findLastIndex(({ server, askedMs }) => server === one.server && askedMs < one.endMs);
    const next = this.#terms[at + 1];
    if (at < 0) {
      report(`server ${one.server} answered a ${one.kind} before it was promoted`);
      return [];
    }
    if (next !== undefined && next.doneMs <= one.startMs) {
      if (one.kind === 'write') this.#acknowledgedAfter(one, next, report);
      return [];
    }
    const revision = one.kind === 'list' ? one.revision : one.kind === 'read' ? one.found?.revision : one.revision;
    if (revision !== undefined) return this.#shown(one, revision, report);
    if (next === undefined || next.isComplete || one.endMs < (this.#sureMs[at] ?? 0)) return [one];
    return one.kind === 'write' ? [{ ...one, outcome: 'unknown' }] : [];
  }

  #shown(one: Operation, revision: number, report: (sentence: string) => void): Operation[] {
    if (this.#isKept(revision)) return [one];
    if (one.kind !== 'write') return [];
    this.lost += 1;
    const next = this.#terms[this.#termAt(revision) + 1];
    const what = `the acknowledged write ${one.key}=${one.value}@${revision} is lost`;
    if (next?.isComplete === true) report(`${what}, though nothing should be`);
    else if (next !== undefined && one.endMs < next.completeAtMs)
      report(`${what}, though the copy was complete ${Math.round(next.completeAtMs - one.endMs)} ms later`);
    return [];
  }

  #acknowledgedAfter(write: Write, next: Term, report: (sentence: string) => void): void {
    this.afterPromotion += 1;
    if (write.startMs > next.fencedMs)
      report(
        `the former first acknowledged ${write.key}=${write.value}@${write.revision} ${Math.round(write.startMs - next.fencedMs)} ms after it was stopped`,
      );
  }

  /**
   * Returns the part of a watch that the promotion kept. A watch ends with the term, because all revisions of the next one are
   * higher than any that was seen.
   */
  keptPart(segment: WatchSegment, report: (sentence: string) => void): WatchSegment[] {
    const { name, from, through, events } = segment;
    // A watch shows what comes after `from`. Before its first write, a term lists the revision above which it begins.
    const next = this.#terms[this.#termAt(from + 1) + 1];
    if (next === undefined) return [segment];
    if (through > next.begins) report(`watch ${name} goes on from ${from} to ${through} over a promotion`);
    if (from > next.copied) return [];
    const kept = events.filter(({ revision }) => revision <= next.copied);
    return [{ name, from, through: Math.min(through, next.copied), events: kept }];
  }
}

type Read = Extract<Operation, { readonly kind: 'read' }>;

/** Returns the reads that a list consists of, which is one of every key. */
function readsOf(list: Extract<Operation, { readonly kind: 'list' }>, operations: readonly Operation[]): Read[] {
  const { startMs, endMs, server } = list;
  const keys = new Set(operations.flatMap((one) => (one.kind === 'list' ? [] : [one.key])));
  return [...keys].map((key) => ({ kind: 'read', key, found: list.items.get(key), startMs, endMs, server }));
}

/** Checks that everything that was acknowledged is found unless a client may have deleted it, also where no watch was. */
function checkLosses(
  operations: readonly Operation[],
  reads: readonly Read[],
  report: (sentence: string) => void,
): void {
  const writes = Map.groupBy(
    operations.filter((one) => one.kind === 'write' && one.outcome !== 'refused') as Write[],
    ({ key }) => key,
  );
  for (const { key, found, startMs, endMs } of reads) {
    if (found !== undefined) continue;
    const before = (writes.get(key) ?? []).filter((one) => one.startMs < endMs);
    const newest = Math.max(...before.filter((one) => one.endMs < startMs).map(({ revision = 0 }) => revision));
    const mayBeDeleted = before.some(({ value, expected = 0 }) => value === undefined && expected >= newest);
    if (newest > 0 && !mayBeDeleted) report(`the acknowledged write of ${key}@${newest} is not found`);
  }
}

/** Checks that nothing is found whose deletion was acknowledged before, also where no watch saw the deletion. */
function checkDeletions(operations: readonly Operation[], report: (sentence: string) => void): void {
  const deletions = Map.groupBy(
    operations.filter((one) => one.kind === 'write' && one.outcome === 'done' && one.value === undefined) as Write[],
    ({ key }) => key,
  );
  for (const one of operations) {
    const seen = one.kind === 'list' ? [...one.items] : one.kind === 'read' ? [[one.key, one.found] as const] : [];
    for (const [key, found] of seen) {
      const deletion = deletions
        .get(key)
        ?.find(({ expected = 0, endMs }) => found !== undefined && expected >= found.revision && endMs < one.startMs);
      if (deletion !== undefined)
        report(`${key}@${found?.revision} is found after it was deleted at ${deletion.expected}`);
    }
  }
}
