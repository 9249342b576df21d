/** Tests the check of bindings against privilege escalation. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clusterRoles, roleBindings, roles } from '../../../../../api/client/resources.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { StatusError } from '../../../../../api/meta/status-error.ts';
import { rbacEscalation } from '../../../../../controlplane/security/admission/rbac-escalation.ts';
import { RbacAuthorizer } from '../../../../../controlplane/security/authorization/rbac.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';
import { TickingClock, turnsOf } from '../../../../fakes/ticking-clock.ts';
import { attributesOf } from './attributes.ts';

const GROUP = 'rbac.authorization.k8s.io';
const rbac = new RbacAuthorizer(
  fixedListers([{ resource: clusterRoles, object: { metadata: { name: 'empty' }, rules: [] } }]),
);

/** Returns the error for a binding to that role by a client that may bind roles of every known kind if `mayBind` is set. */
async function refusal(roleRef: object, namespace: string, { mayBind = false } = {}): Promise<unknown> {
  const authorize = () => Promise.resolve({ decision: mayBind ? 'allow' : 'no-opinion', reason: '' } as const);
  const plugin = rbacEscalation(rbac, { authorize }, systemClock);
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

test('a large role is compared with the many rules of its author in turns of the event loop', async () => {
  const rulesOf = (verb: string) =>
    Array.from({ length: 300 }, (_, at) => ({ verbs: [verb], apiGroups: [''], resources: [`r${at}`] }));
  const own = new RbacAuthorizer(
    fixedListers([
      { resource: roles, object: { metadata: { name: 'r', namespace: 'n' }, rules: rulesOf('get') } },
      {
        resource: roleBindings,
        object: {
          metadata: { name: 'b', namespace: 'n' },
          roleRef: { apiGroup: GROUP, kind: 'Role', name: 'r' },
          subjects: [{ kind: 'User', name: 'ann' }],
        },
      },
    ]),
  );
  const authorize = () => ({ decision: 'no-opinion', reason: '' }) as const;
  const plugin = rbacEscalation(own, { authorize }, new TickingClock());
  const write = (verb: string): Promise<void> => {
    const attributes = attributesOf(
      { metadata: { name: 'w' }, rules: rulesOf(verb) },
      {
        namespace: 'n',
        resource: { group: GROUP, version: 'v1', resource: 'roles' },
        user: { name: 'ann', groups: [] },
      },
    );
    return Promise.resolve(plugin.admit?.(attributes, new AbortController().signal));
  };
  const { turns } = await turnsOf(() => write('get'));
  assert.ok(turns > 1000, `${turns} turns`);
  await assert.rejects(write('list'), /attempting to grant RBAC permissions not currently held/);
});
