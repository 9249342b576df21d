/**
 * OwnerReferencesPermissionEnforcement: a client that changes owner references needs the permission to delete the object, and
 * to update the finalizers of owners whose deletion the object blocks. Off by default.
 */
import type { AuthorizationAttributes, Authorizer, Decision } from '../authorization/authorization.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { parseApiVersion, type OwnerReference } from '../../../api/meta/object.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { isPod, nameOf, refusal } from './pod-attributes.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';

/** Creates the plugin. `resources` returns those that the server serves now, custom resources included. */
export function ownerReferencesPermissionEnforcement(
  authorizer: Authorizer,
  resources: () => readonly ResourceInfo[],
): AdmissionPlugin {
  type Target = Pick<AuthorizationAttributes, 'group' | 'version' | 'resource' | 'subresource' | 'namespace' | 'name'>;
  const may = async ({ user }: AdmissionAttributes, verb: string, target: Target): Promise<Decision> =>
    await authorizer.authorize({ user, verb, isResourceRequest: true, ...target, path: '' });
  return {
    name: 'OwnerReferencesPermissionEnforcement',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    async validate(attributes) {
      const { subresource, namespace } = attributes;
      // The status of a pod cannot change its owners. The status of other kinds can, and so can other subresources.
      if (attributes.object === undefined || (isPod(attributes) && subresource === 'status')) return;
      const now = attributes.object.metadata.ownerReferences ?? [];
      const before = attributes.oldObject?.metadata.ownerReferences ?? [];
      if (jsonEqual(now, before)) return;
      if (attributes.operation === 'UPDATE') {
        const target = { ...attributes.resource, subresource, namespace, name: nameOf(attributes) };
        const decision = await may(attributes, 'delete', target);
        if (decision.decision !== 'allow')
          throw refusal(attributes, `cannot set an ownerRef on a resource you can't delete: ${reasonOf(decision)}`);
      }
      const blocked = new Set(before.filter((old) => old.blockOwnerDeletion === true).map((old) => old.uid));
      for (const owner of now) {
        if (owner.blockOwnerDeletion !== true || blocked.has(owner.uid)) continue;
        const served = servedOwner(owner, resources());
        if (served === undefined) {
          throw refusal(
            attributes,
            `cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion ${owner.apiVersion} Kind ${owner.kind}: no matches for kind ${quoteText(owner.kind)} in version ${quoteText(owner.apiVersion)}`,
          );
        }
        const { group, version, resource } = served;
        // A client with all permissions in one namespace has none for a cluster-scoped owner.
        const scope = { namespace: served.namespaced ? namespace : '', name: owner.name };
        const target = { group, version, resource, subresource: 'finalizers', ...scope };
        const decision = await may(attributes, 'update', target);
        if (decision.decision !== 'allow') {
          throw refusal(
            attributes,
            `cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: ${reasonOf(decision)}`,
          );
        }
      }
    },
  };
}

const reasonOf = ({ reason, evaluationError }: Decision): string => `${reason}, ${evaluationError ?? '<nil>'}`;

function servedOwner(owner: OwnerReference, resources: readonly ResourceInfo[]): ResourceInfo | undefined {
  const gv = parseApiVersion(owner.apiVersion);
  return resources.find(
    ({ group, version, kind }) => group === gv?.group && version === gv.version && kind === owner.kind,
  );
}
