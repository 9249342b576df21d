/**
 * OwnerReferencesPermissionEnforcement: a client that changes owner references needs the permission to delete the object, and
 * to update the finalizers of owners whose deletion the object blocks. Off by default.
 */
import type { Authorizer } from '../authorization/authorization.ts';
import { jsonEqual } from '../../api/meta/json-equality.ts';
import { parseApiVersion, type OwnerReference } from '../../api/meta/object.ts';
import { builtinResources } from '../../api/schema/resources.ts';
import { nameOf, refusal } from './pod-attributes.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';

export function ownerReferencesPermissionEnforcement(authorizer: Authorizer): AdmissionPlugin {
  const may = async (
    attributes: AdmissionAttributes,
    verb: string,
    target: { group: string; version: string; resource: string; subresource: string; name: string },
  ) => {
    const decision = await authorizer.authorize({
      user: attributes.user,
      verb,
      isResourceRequest: true,
      ...target,
      namespace: attributes.namespace,
      path: '',
    });
    return decision;
  };
  return {
    name: 'OwnerReferencesPermissionEnforcement',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    async validate(attributes) {
      if (attributes.subresource !== '' || attributes.object === undefined) return;
      const now = attributes.object.metadata.ownerReferences ?? [];
      const before = attributes.oldObject?.metadata.ownerReferences ?? [];
      if (jsonEqual(now, before)) return;
      if (attributes.operation === 'UPDATE') {
        const decision = await may(attributes, 'delete', {
          ...attributes.resource,
          subresource: '',
          name: nameOf(attributes),
        });
        if (decision.decision !== 'allow') {
          throw refusal(
            attributes,
            `cannot set an ownerRef on a resource you can't delete: ${decision.reason}, ${decision.evaluationError ?? '<nil>'}`,
          );
        }
      }
      for (const owner of now.filter(
        (one) => one.blockOwnerDeletion === true && !before.some((old) => isSame(old, one)),
      )) {
        const gv = parseApiVersion(owner.apiVersion) ?? { group: '', version: '' };
        const info = builtinResources().find((one) => one.group === gv.group && one.kind === owner.kind);
        if (info === undefined) {
          throw refusal(
            attributes,
            `cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion ${owner.apiVersion} Kind ${owner.kind}`,
          );
        }
        const target = {
          group: info.group,
          version: info.version,
          resource: info.resource,
          subresource: 'finalizers',
          name: owner.name,
        };
        const decision = await may(attributes, 'update', target);
        if (decision.decision !== 'allow') {
          throw refusal(
            attributes,
            `cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: ${decision.reason}, ${decision.evaluationError ?? '<nil>'}`,
          );
        }
      }
    },
  };
}

const isSame = (a: OwnerReference, b: OwnerReference): boolean =>
  a.uid === b.uid && a.blockOwnerDeletion === b.blockOwnerDeletion;
