import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import type { CachedObject } from '../../../../controlplane/storage/cached-object.ts';
import { EntryIndexes } from '../../../../controlplane/storage/entry-indexes.ts';

const entryOn = (node: string): CachedObject => ({ field: () => node, labels: {} }) as unknown as CachedObject;
const wanted = (node: string) => [{ kind: 'field' as const, key: 'spec.nodeName', values: [node] }];

function manyEntries(): Map<string, CachedObject> {
  return new Map(Array.from({ length: 1000 }, (_, at) => [`k${at}`, entryOn(`n${at % 10}`)]));
}

test('indexes of fields are filled in pieces', () => {
  const indexes = new EntryIndexes(['spec.nodeName'], manyEntries(), silentLogger);
  assert.ok([...indexes.fillFields()].length >= 3);
  assert.equal(indexes.candidates(wanted('n3'))?.length, 100);
});

test('a list that comes before the index is full finds everything', () => {
  const indexes = new EntryIndexes(['spec.nodeName'], manyEntries(), silentLogger);
  indexes.fillFields().next();
  assert.equal(indexes.candidates(wanted('n3'))?.length, 100);
});

test('what changes while an index is filled is found where it is now', () => {
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
  assert.equal(indexes.candidates(wanted('moved'))?.length, 2);
  assert.equal(indexes.candidates(wanted('n3'))?.length, 97);
});
