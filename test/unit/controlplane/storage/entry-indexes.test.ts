import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inOneSlice } from '../../../../api/machinery/time-slice.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import type { CachedObject } from '../../../../controlplane/storage/cached-object.ts';
import { EntryIndexes } from '../../../../controlplane/storage/entry-indexes.ts';

const entryOn = (node: string): CachedObject => ({ field: () => node, labels: {} }) as unknown as CachedObject;
const wanted = (node: string) => [{ kind: 'field' as const, key: 'spec.nodeName', values: [node] }];

const found = (indexes: EntryIndexes, node: string): number | undefined =>
  inOneSlice(indexes.candidates(wanted(node)))?.length;

function manyEntries(): Map<string, CachedObject> {
  return new Map(Array.from({ length: 1000 }, (_, at) => [`k${at}`, entryOn(`n${at % 10}`)]));
}

test('indexes of fields are filled in pieces', () => {
  const indexes = new EntryIndexes(['spec.nodeName'], manyEntries(), silentLogger);
  assert.ok([...indexes.fillFields()].length >= 3);
  assert.equal(found(indexes, 'n3'), 100);
});

test('a list that runs before the index is complete finds everything', () => {
  const indexes = new EntryIndexes(['spec.nodeName'], manyEntries(), silentLogger);
  indexes.fillFields().next();
  assert.equal(found(indexes, 'n3'), 100);
});

test('an entry that changes while an index is filled is found by its new value', () => {
  const entries = manyEntries();
  const indexes = new EntryIndexes(['spec.nodeName'], entries, silentLogger);
  const pieces = indexes.fillFields();
  pieces.next();
  const change = (key: string, entry: CachedObject | undefined): void => {
    const previous = entries.get(key);
    if (entry === undefined) entries.delete(key);
    else entries.set(key, entry);
    indexes.update(previous, entry);
  };
  change('k3', entryOn('moved'));
  change('k993', entryOn('moved'));
  change('k13', undefined);
  change('k983', undefined);
  change('new', entryOn('n3'));
  while (pieces.next().done !== true);
  assert.equal(found(indexes, 'moved'), 2);
  assert.equal(found(indexes, 'n3'), 97);
});
