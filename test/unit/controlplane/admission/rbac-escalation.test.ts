/** Tests the check of bindings against privilege escalation. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clusterRoles } from '../../../../api/client/resources.ts';
import { StatusError } from '../../../../api/meta/status-error.ts';
import { rbacEscalation } from '../../../../controlplane/admission/rbac-escalation.ts';
import { RbacAuthorizer } from '../../../../controlplane/authorization/rbac.ts';
import { fixedSources } from '../../../fakes/fixed-sources.ts';
import { attributesOf } from './attributes.ts';

const GROUP = 'rbac.authorization.k8s.io';
const rbac = new RbacAuthorizer(
  fixedSources([{ resource: clusterRoles, object: { metadata: { name: 'empty' }, rules: [] } }]),
);

/** Returns the error for a binding to that role by a client that may bind roles of every known kind if `mayBind` is set. */
async function refusal(roleRef: object, namespace: string, { mayBind = false } = {}): Promise<unknown> {
  const plugin = rbacEscalation(rbac, {
    authorize: () => Promise.resolve({ decision: mayBind ? 'allow' : 'no-opinion', reason: '' }),
  });
  const resource = namespace === '' ? 'clusterrolebindings' : 'rolebindings';
  const attributes = attributesOf(
    { metadata: { name: 'b' }, roleRef: { apiGroup: GROUP, ...roleRef } },
    { namespace, resource: { group: GROUP, version: 'v1', resource } },
  );
  try {
    await plugin.admit?.(attributes, new AbortController().signal);
    return undefined;
  } catch (error) {
    assert.ok(error instanceof StatusError);
    return `${error.status.code} ${error.message}`;
  }
}

const REFUSED: readonly (readonly [roleRef: object, namespace: string, refusal: string])[] = [
  [{ kind: 'Group', name: 'a' }, 'n', '500 unsupported role reference kind: "Group"'],
  [{ name: 'a' }, '', '500 unsupported role reference kind: ""'],
  [{ kind: 'Role', name: 'a' }, '', '400 Namespace parameter required.'],
  [{ kind: 'Role' }, 'n', '400 Name parameter required.'],
  [{ kind: 'ClusterRole', name: 'a/b' }, 'n', `400 Name parameter invalid: "a/b": may not contain '/'`],
  [{ kind: 'Role', name: 'none' }, 'n', `404 rolebindings.${GROUP} "none" not found`],
];

for (const [roleRef, namespace, wanted] of REFUSED) {
  test(`a binding in "${namespace}" to ${JSON.stringify(roleRef)} is refused before its validation`, async () => {
    assert.equal(await refusal(roleRef, namespace), wanted);
  });
}

test('a client that may bind the role skips the lookup, except for kinds that nobody may bind', async () => {
  assert.equal(await refusal({ kind: 'Role', name: 'none' }, '', { mayBind: true }), undefined);
  assert.match(String(await refusal({ kind: 'Group', name: 'a' }, 'n', { mayBind: true })), /^500 unsupported/);
  assert.equal(await refusal({ kind: 'ClusterRole', name: 'empty' }, 'n'), undefined);
});
