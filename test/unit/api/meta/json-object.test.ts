/** Tests which decoded JSON values are objects. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isJsonObject } from '../../../../api/meta/json-object.ts';

test('only objects of JSON are objects: no lists, texts, numbers and null', () => {
  for (const value of [{}, { a: 1 }, Object.create(null)]) assert.equal(isJsonObject(value), true);
  for (const value of [[], [{}], 'text', '', 0, 1n, true, null, undefined]) assert.equal(isJsonObject(value), false);
});
