import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { loadSchema } from '../../../../api/schema/table.ts';
import { patchedText, visitedByMerge, visitedByOperations } from '../../../../controlplane/registry/patched-text.ts';

const struct = loadSchema().kind('apps', 'v1', 'Deployment');
assert.ok(struct !== undefined);
const object = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  spec: { template: {}, replicas: 1 },
  metadata: { resourceVersion: '1', managedFields: [{ apiVersion: 'apps/v1', manager: 'm' }], name: 'd' },
};

describe('the result of a patch', () => {
  it('has the order of the Go type where the patch does not go', () => {
    assert.equal(
      patchedText(object, struct, visitedByMerge({ spec: { replicas: 1 } })),
      '{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","resourceVersion":"1",' +
        '"managedFields":[{"manager":"m","apiVersion":"apps/v1"}]},"spec":{"replicas":1,"template":{}}}',
    );
  });
  it('is sorted on the paths of operations', () => {
    const visited = visitedByOperations([{ op: 'add', path: '/metadata/managedFields/0/manager', value: 'x' }]);
    assert.match(
      patchedText(object, struct, visited),
      /"metadata":\{"managedFields":\[\{"apiVersion":"apps\/v1","manager":"m"\}\],"name":"d"/,
    );
  });
  it('has an unvisited whole in the order of the Go type', () => {
    assert.match(patchedText(object, struct, new Map()), /^\{"apiVersion":"apps\/v1","kind"/);
  });
});
