/**
 * The checks of a soak of a pair find each kind of violation, and none in histories with losses that docs/high-availability.md
 * allows.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Operation, WatchSegment } from '../../soak/history.ts';
import { lineageReport, type Term } from '../../soak/standby/lineage.ts';

const FIRST: Term = {
  server: 0,
  copied: 0,
  begins: 0,
  askedMs: 0,
  doneMs: 0,
  fencedMs: 0,
  isComplete: true,
  completeAtMs: 0,
};
/** The term of server 1, which was promoted at 100 to 110 with everything up to 20. The former first was stopped at 150. */
const PROMOTED: Term = {
  server: 1,
  copied: 20,
  begins: 1_000_020,
  askedMs: 100,
  doneMs: 110,
  fencedMs: 150,
  isComplete: false,
  completeAtMs: 60,
};
const COMPLETE: Term = { ...PROMOTED, isComplete: true };

const write = (server: number, key: string, revision: number, startMs: number): Operation => ({
  ...{ kind: 'write', key, value: `${key}-${revision}`, expected: undefined, outcome: 'done' },
  ...{ revision, startMs, endMs: startMs + 1, server },
});
const deletion = (server: number, key: string, expected: number, startMs: number): Operation => ({
  ...{ kind: 'write', key, value: undefined, expected, outcome: 'done' },
  ...{ revision: undefined, startMs, endMs: startMs + 1, server },
});
const read = (server: number, key: string, revision: number | undefined, startMs: number): Operation => ({
  ...{ kind: 'read', key, found: revision === undefined ? undefined : { revision, value: `${key}-${revision}` } },
  ...{ startMs, endMs: startMs + 1, server },
});
const list = (server: number, revision: number, keys: readonly [string, number][], startMs: number): Operation => ({
  ...{ kind: 'list', revision, startMs, endMs: startMs + 1, server },
  items: new Map(keys.map(([key, at]) => [key, { revision: at, value: `${key}-${at}` }])),
});

const judged = (
  operations: readonly Operation[],
  term: Term = PROMOTED,
  segments: readonly WatchSegment[] = [],
): string => lineageReport(operations, segments, [FIRST, term]).violations.join('\n');

const KEPT = [write(0, 'a', 15, 50), write(0, 'b', 20, 55)];
const LOST = write(0, 'c', 25, 70);

test('a forced promotion may lose writes that were acknowledged after the last copied revision, and no others', () => {
  const after = [read(1, 'a', 15, 120), read(1, 'c', undefined, 121), list(1, 1_000_021, [['a', 15]], 130)];
  const { violations, lost } = lineageReport([...KEPT, LOST, ...after.slice(0, 2)], [], [FIRST, PROMOTED]);
  assert.deepEqual([violations, lost], [[], 1]);
  assert.match(judged([...KEPT, LOST], COMPLETE), /c=c-25@25 is lost, though nothing should be/);
  assert.match(judged([...KEPT, write(0, 'c', 25, 58)]), /is lost, though the copy was complete 1 ms later/);
  assert.match(judged([...KEPT, ...after]), /the acknowledged write of b@20 is not found/);
  assert.match(judged([...KEPT, read(1, 'a', 12, 120)]), /a read of a gives 12, after 15 was shown/);
});

test('writes that a former first acknowledges after the promotion are counted until it is stopped, and are violations after that', () => {
  const { violations, afterPromotion } = lineageReport([...KEPT, write(0, 'c', 26, 140)], [], [FIRST, PROMOTED]);
  assert.deepEqual([violations, afterPromotion], [[], 1]);
  assert.match(judged([...KEPT, write(0, 'c', 26, 160)]), /the former first acknowledged c=c-26@26 10 ms after it was/);
  assert.match(judged([write(1, 'a', 15, 50)]), /server 1 answered a write before it was promoted/);
});

test('a deletion that was copied stays, also where no watch saw it', () => {
  const deleted = [write(0, 'a', 15, 50), deletion(0, 'a', 15, 52)];
  assert.match(
    judged([...deleted, write(0, 'b', 20, 55), read(1, 'a', 15, 120)]),
    /a@15 is found after it was deleted/,
  );
  // No later write shows that the deletion was copied.
  assert.equal(judged([...deleted, read(1, 'a', 15, 120)]), '');
  assert.match(judged([...deleted, read(1, 'a', 15, 120)], COMPLETE), /a@15 is found after it was deleted/);
});

test('a watch ends with the term, and its events that were lost do not count', () => {
  const segment = (through: number, ...revisions: readonly number[]): WatchSegment => ({
    ...{ name: 'watch', from: 10, through },
    events: revisions.map((revision) => ({ type: 'ADDED', key: `k${revision}`, revision, value: `${revision}` })),
  });
  assert.equal(judged([], PROMOTED, [segment(30, 25)]), '');
  assert.match(judged([], PROMOTED, [segment(1_000_030)]), /watch watch goes on from 10 to 1000030 over a promotion/);
  // From a list of the new term before its first write.
  assert.equal(judged([], PROMOTED, [{ ...segment(1_000_030), from: PROMOTED.begins }]), '');
  assert.match(judged([], PROMOTED, [segment(30, 18), segment(30)]), /lacks ADDED k18/);
});
