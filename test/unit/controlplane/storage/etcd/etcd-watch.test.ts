import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  assertComplete,
  type EtcdEvent,
  RevisionGapError,
} from '../../../../../controlplane/storage/etcd/etcd-watch.ts';

const events = (...revisions: readonly number[]): readonly EtcdEvent[] =>
  revisions.map((revision) => ({ key: `k${revision}`, value: Buffer.alloc(0), createRevision: revision, revision }));

test('events are complete if each revision after the applied one has at least one', () => {
  assertComplete(events(), 7);
  assertComplete(events(8, 8, 9, 10), 7);
  assertComplete(events(6, 7, 8), 7);
});

test('a missing revision is an error, at the beginning and in between', () => {
  assert.throws(() => assertComplete(events(9), 7), RevisionGapError);
  assert.throws(() => assertComplete(events(8, 10), 7), RevisionGapError);
});
