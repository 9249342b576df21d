import assert from 'node:assert/strict';
import { it } from 'node:test';
import { uidConflict } from '../../../../controlplane/registry/write-conflicts.ts';
import type { Store } from '../../../../controlplane/registry/store.ts';

const cases: readonly (readonly [string, string, boolean, string])[] = [
  ['', 'pods', true, '/pods/ns/x'],
  ['', 'replicationcontrollers', true, '/controllers/ns/x'],
  ['', 'nodes', true, '/minions/ns/x'],
  ['', 'services', true, '/services/specs/ns/x'],
  ['', 'endpoints', true, '/services/endpoints/ns/x'],
  ['networking.k8s.io', 'ingresses', true, '/ingress/ns/x'],
  ['apiregistration.k8s.io', 'apiservices', true, '/apiregistration.k8s.io/apiservices/ns/x'],
  ['apiextensions.k8s.io', 'customresourcedefinitions', true, '/apiextensions.k8s.io/customresourcedefinitions/ns/x'],
  ['example.com', 'foos', false, '/example.com/foos/ns/x'],
];

for (const [group, resource, builtIn, key] of cases) {
  it(`a conflict of UIDs of ${resource} names the key that kube-apiserver stores them under`, () => {
    const store = { info: { group, resource }, builtIn } as unknown as Store;
    const conflict = (dryRun: boolean): string =>
      uidConflict(
        store,
        { namespace: 'ns', name: 'x', options: { dryRun, fieldValidation: 'Ignore' } },
        { wanted: 'wanted', found: 'found' },
      ).message;
    assert.ok(conflict(false).includes(`Code: 4, Key: /registry${key}, ResourceVersion: 0, `), conflict(false));
    assert.ok(conflict(true).includes(`Code: 4, Key: ${key}, ResourceVersion: 0, `), conflict(true));
    assert.ok(conflict(false).endsWith('UID in precondition: wanted, UID in object meta: found'), conflict(false));
  });
}
