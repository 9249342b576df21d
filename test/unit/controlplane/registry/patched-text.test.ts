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
  it('has the fields of a service in the order of their type, not of their numbers', () => {
    const service = loadSchema().kind('', 'v1', 'Service');
    assert.ok(service !== undefined);
    const spec = {
      type: 'ClusterIP',
      ipFamilyPolicy: 'SingleStack',
      ipFamilies: ['IPv4'],
      clusterIPs: [],
      clusterIP: '',
    };
    assert.equal(
      patchedText({ spec }, service, visitedByMerge({ kind: 'X' })),
      '{"spec":{"clusterIP":"","clusterIPs":[],"type":"ClusterIP","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"}}',
    );
  });
  it('is sorted in the lists of a merge patch', () => {
    const containers = [{ name: 'c', image: 'i', env: [{ value: 'v', name: 'n' }] }];
    const spec = { template: { spec: { containers } } };
    assert.equal(
      patchedText({ spec }, struct, visitedByMerge({ spec })),
      '{"spec":{"template":{"spec":{"containers":[{"env":[{"name":"n","value":"v"}],"image":"i","name":"c"}]}}}}',
    );
  });
  it('is sorted on the paths of operations', () => {
    const visited = visitedByOperations([{ op: 'add', path: '/metadata/managedFields/0/manager', value: 'x' }]);
    assert.match(
      patchedText(object, struct, visited),
      /"metadata":\{"managedFields":\[\{"apiVersion":"apps\/v1","manager":"m"\}\],"name":"d"/,
    );
  });
  it('has the kind of an embedded object first, as its Go type has', () => {
    const set = loadSchema().kind('apps', 'v1', 'StatefulSet');
    assert.ok(set !== undefined);
    const claim = { apiVersion: 'v1', metadata: { name: 'c' }, kind: 'PersistentVolumeClaim' };
    assert.equal(
      patchedText({ spec: { volumeClaimTemplates: [claim] } }, set, visitedByMerge({ spec: { replicas: 1 } })),
      '{"spec":{"volumeClaimTemplates":[{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"c"}}]}}',
    );
  });
  it('is sorted on paths of operations whose names are escaped', () => {
    const named = { metadata: { name: 'd', labels: { 'b/c': 'x', a: 'y' } } };
    const visited = visitedByOperations([{ op: 'add', path: '/metadata/labels/b~1c', value: 'x' }]);
    assert.equal(patchedText(named, struct, visited), '{"metadata":{"labels":{"a":"y","b/c":"x"},"name":"d"}}');
  });
});
