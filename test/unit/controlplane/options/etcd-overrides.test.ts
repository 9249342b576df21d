import assert from 'node:assert/strict';
import test from 'node:test';
import { checkEtcdOverrides, parseEtcdOverrides } from '../../../../controlplane/options/etcd-overrides.ts';

const parsed = (...values: string[]): [string[], string[]][] =>
  parseEtcdOverrides(values).map(({ servers, resources }) => [[...servers], [...resources].toSorted()]);

test('an override names a resource and its servers; the core group is empty', () => {
  assert.deepEqual(parsed('/events#http://a:2379;http://b:2379', 'coordination.k8s.io/leases#http://c:2379'), [
    [['http://a:2379', 'http://b:2379'], ['/core/events/']],
    [['http://c:2379'], ['/coordination.k8s.io/leases/']],
  ]);
});

test('the same servers in any order are one override', () => {
  assert.deepEqual(parsed('apps/deployments#http://b;http://a', 'apps/replicasets#http://a;http://b'), [
    [
      ['http://b', 'http://a'],
      ['/apps/deployments/', '/apps/replicasets/'],
    ],
  ]);
});

test('a star stands for the resources of a group that no other value names', () => {
  assert.deepEqual(parsed('batch/*#http://a', 'batch/jobs#http://b'), [
    [['http://a'], ['/batch/cronjobs/']],
    [['http://b'], ['/batch/jobs/']],
  ]);
});

test('a fault names the value', () => {
  for (const [value, fault] of [
    ['events#http://a', /^events#http:\/\/a must have the form group\/resource#servers/],
    ['/events', /must have the form/],
    ['/events#http://a;', /must have the form/],
    ['/events#http://a#http://b', /must have the form/],
    ['/pots#http://a', /^\/pots#http:\/\/a names no built-in resource/],
    ['events.k8s.io/events#http://a', /names no built-in resource/],
    ['/services#http://a', /core\/services must be in the etcd of --etcd-servers/],
    ['/*#http://a', /core\/services must be in the etcd of --etcd-servers/],
    [
      'apiextensions.k8s.io/customresourcedefinitions#http://a',
      /customresourcedefinitions must be in the etcd of --etcd-servers/,
    ],
  ] as const)
    assert.match(checkEtcdOverrides([value]) ?? '', fault);
  assert.match(
    checkEtcdOverrides(['/events#http://a', '/events#http://b']) ?? '',
    /^\/events#http:\/\/b .* other servers/,
  );
  assert.equal(checkEtcdOverrides(['/events#http://a', '/events#http://a']), undefined);
});
