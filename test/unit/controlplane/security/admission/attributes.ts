/** Builds the attributes of a create of a `g/v1` Thing by a user, for the tests of admission plugins. */
import assert from 'node:assert/strict';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { AdmissionAttributes } from '../../../../../controlplane/security/admission/admission.ts';

/** Returns the attributes with the changes. A plugin that replaces the object fails the test. */
export function attributesOf(object: KubeObject, changes: Partial<AdmissionAttributes> = {}): AdmissionAttributes {
  return {
    operation: 'CREATE',
    resource: { group: 'g', version: 'v1', resource: 'things' },
    subresource: '',
    kind: { group: 'g', version: 'v1', kind: 'Thing' },
    namespace: 'n',
    name: object.metadata.name ?? '',
    object,
    oldObject: undefined,
    options: {},
    dryRun: false,
    user: { name: 'ann', groups: [] },
    setObject: () => assert.fail('the plugin replaced the object'),
    warn: () => undefined,
    annotate: () => undefined,
    ...changes,
  };
}
