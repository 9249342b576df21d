/** The number of seats of a list depends on the objects that it reads, however it is requested. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { RequestInfo } from '../../../../../controlplane/server/request-info.ts';
import type { ApiRequest } from '../../../../../controlplane/server/request.ts';
import { type CountObjects, seatsOf } from '../../../../../controlplane/server/flowcontrol/work-estimate.ts';

const thousands: CountObjects = () => ({ count: 5000, averageBytes: 1000 });

function seats(verb: string, rawQuery: string, countObjects = thousands): number {
  const info: Partial<RequestInfo> = { isResource: true, verb, group: 'a.b', resource: 'things', name: '' };
  const request = { info, rawQuery, query: new URLSearchParams(rawQuery) } as unknown as ApiRequest;
  return seatsOf(request, 1000, { countObjects, objectBytes: () => 0 });
}

describe('a write takes', () => {
  const ofWrite = (verb: string, name: string, bodyBytes: number, storedBytes = 0, nominal = 1000): number => {
    const info: Partial<RequestInfo> = { isResource: true, verb, group: '', resource: 'configmaps', name };
    const objectBytes = () => storedBytes;
    return seatsOf({ info } as unknown as ApiRequest, nominal, { countObjects: thousands, objectBytes, bodyBytes });
  };

  test('more seats for a large body', () => {
    assert.equal(ofWrite('create', '', 100_000), 1);
    assert.equal(ofWrite('create', '', 3_000_000), 30);
  });
  for (const verb of ['update', 'patch', 'delete'])
    test(`more seats for a large object that a small body changes (${verb})`, () => {
      assert.equal(ofWrite(verb, 'a', 50, 1_500_000), 15);
      assert.equal(ofWrite(verb, 'a', 50, 1000), 1);
    });
  test('no more than the share of the level that one request may have', () => {
    assert.equal(ofWrite('create', '', 3_000_000, 0, 20), 3);
    assert.equal(ofWrite('create', '', 3_000_000, 0, 1), 1);
  });
});

describe('a list takes more than one seat', () => {
  test('of many objects', () => {
    assert.equal(seats('list', ''), 10);
    assert.equal(
      seats('list', '', () => ({ count: 1, averageBytes: 1000 })),
      1,
    );
  });
  test('unless its limit is low', () => {
    assert.equal(seats('list', 'limit=10'), 1);
    assert.equal(seats('list', 'limit=0'), 10);
  });
  for (const query of ['limit=1&labelSelector=no%3Dmatch', 'limit=1&field%53elector=metadata.namespace%3Dx']) {
    test(`also with a low limit where a selector is held against every object (${query})`, () => {
      assert.equal(seats('list', query), 10);
    });
  }
  for (const query of [
    'sendInitialEvents=true',
    'sendInitial%45vents=true',
    'sendInitialEvents=1',
    'sendInitialEvents=t',
    '',
    'resourceVersion=0',
    'resource%56ersion=0',
  ]) {
    test(`as a watch that sends the existing objects first (${query})`, () => {
      assert.equal(seats('watch', query), 10);
    });
  }
  for (const query of ['resourceVersion=12', 'sendInitialEvents=false', 'sendInitialEvents=0&resourceVersion=0']) {
    test(`but not as a watch of changes only (${query})`, () => {
      assert.equal(seats('watch', query), 1);
    });
  }
});
