import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshnessFilter } from '../../../../controlplane/server/filters/freshness.ts';
import type { ApiRequest } from '../../../../controlplane/server/request.ts';

const request = (isResource: boolean, verb: string, query = ''): ApiRequest =>
  ({ info: { isResource, verb }, query: new URLSearchParams(query) }) as unknown as ApiRequest;

for (const [what, asked, caughtUp] of [
  ['a read', request(true, 'get'), true],
  ['a list with a limit', request(true, 'list', 'limit=5'), true],
  ['a read that accepts an older state', request(true, 'get', 'resourceVersion=0'), false],
  ['a watch from a revision', request(true, 'watch', 'resourceVersion=12'), false],
  ['a watch of the newest state', request(true, 'watch', 'resourceVersion='), true],
  ['a write, whatever its query', request(true, 'update', 'resourceVersion=0'), true],
  ['a deletion', request(true, 'delete'), true],
  ['a health check', request(false, 'get'), false],
] as const)
  test(`${what} ${caughtUp ? 'waits' : 'does not wait'} for the writes of other servers`, async () => {
    const steps: string[] = [];
    const filter = freshnessFilter({ catchUp: async () => void steps.push('caught up') });
    await filter(asked, () => void steps.push('handled'));
    assert.deepEqual(steps, caughtUp ? ['caught up', 'handled'] : ['handled']);
  });

test('a request is not handled when the newest state is unknown', async () => {
  const filter = freshnessFilter({ catchUp: () => Promise.reject(new Error('no etcd server can be reached')) });
  await assert.rejects(
    async () => filter(request(true, 'get'), () => assert.fail('handled')),
    /no etcd server can be reached/,
  );
});
