/** Requests see what other servers wrote before. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshnessFilter } from '../../../../../controlplane/server/filters/freshness.ts';
import type { ApiRequest } from '../../../../../controlplane/server/request.ts';

function requestOf(verb: string, query: string, isResource = true): ApiRequest {
  const info = { isResource, verb, group: 'example.org', resource: 'gadgets' };
  return { info, query: new URLSearchParams(query) } as unknown as ApiRequest;
}

test('a request waits for the newest state, and for the definition of its custom resource', async () => {
  const steps: string[] = [];
  const filter = freshnessFilter({
    catchUp: async () => void steps.push('catch up'),
    settled: async (group, resource) => void steps.push(`settle ${resource}.${group}`),
  });
  const run = async (request: ApiRequest): Promise<string> => {
    steps.length = 0;
    await filter(request, async () => void steps.push('serve'));
    return steps.join();
  };
  const waiting = 'catch up,settle gadgets.example.org,serve';
  assert.equal(await run(requestOf('create', '')), waiting);
  assert.equal(await run(requestOf('create', 'resourceVersion=0')), waiting, 'writes always do');
  assert.equal(await run(requestOf('list', '')), waiting);
  assert.equal(await run(requestOf('list', 'resourceVersion=0')), 'serve');
  assert.equal(await run(requestOf('get', '', false)), 'serve', 'a path without a resource');
});
