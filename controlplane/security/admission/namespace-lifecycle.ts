/**
 * NamespaceLifecycle: objects can only be created in namespaces that exist and are not terminating, and the namespaces that the
 * system needs cannot be deleted.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Namespace } from '../../../api/kinds/kinds.ts';
import { namespaces, localSubjectAccessReviews } from '../../../api/client/resources.ts';
import { newForbidden, newNotFound } from '../../../api/meta/status-error.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import { RecentDeletions } from './recent-deletions.ts';
import type { Listers } from '../../model/listers.ts';
import { isResource } from '../../../api/meta/group-resource.ts';
import { PUBLIC_NAMESPACE, SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

const IMMORTAL = new Set(['default', SYSTEM_NAMESPACE, PUBLIC_NAMESPACE]);

/** Creates the plugin. `stored` reads a namespace as it is stored now. */
export function namespaceLifecycle(
  listers: Listers,
  clock: Clock,
  stored: (name: string) => Namespace | undefined,
): AdmissionPlugin {
  const lister = listers.of(namespaces);
  const deletions = new RecentDeletions(clock);
  return {
    name: 'NamespaceLifecycle',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE' || operation === 'DELETE',
    async admit(attributes) {
      if (attributes.operation === 'DELETE' && isNamespaces(attributes)) {
        if (IMMORTAL.has(attributes.name))
          throw newForbidden(namespaces, attributes.name, 'this namespace may not be deleted');
        if (attributes.dryRun) return;
        const exists = lister.get('', attributes.name) ?? (await lister.live('', attributes.name));
        if (exists !== undefined) deletions.add(attributes.name);
        return;
      }
      if (!needsNamespace(attributes)) return;
      let namespace = lister.get('', attributes.namespace);
      if (namespace === undefined || deletions.has(attributes.namespace))
        namespace = await lister.live('', attributes.namespace);
      checkNamespace(attributes, namespace);
    },
    beforeWrite(attributes) {
      // The namespace may have been emptied and removed while webhooks were called. An object that is created in it then would
      // remain, and would be in the next namespace of that name.
      if (needsNamespace(attributes)) checkNamespace(attributes, stored(attributes.namespace));
    },
  };
}

const isNamespaces = ({ resource }: AdmissionAttributes): boolean => isResource(resource, namespaces);

/**
 * Whether the request creates an object in a namespace. Existing objects may be changed and deleted while their namespace
 * terminates.
 */
const needsNamespace = (attributes: AdmissionAttributes): boolean =>
  attributes.operation === 'CREATE' &&
  attributes.namespace !== '' &&
  !isNamespaces(attributes) &&
  !isReview(attributes);

/** Throws a 404 if the namespace does not exist, and a 403 if it is terminating. */
function checkNamespace(
  { resource, name, namespace: namespaceName }: AdmissionAttributes,
  namespace: Namespace | undefined,
): void {
  if (namespace === undefined) throw newNotFound(namespaces, namespaceName);
  if (namespace.status?.phase !== 'Terminating' && namespace.metadata.deletionTimestamp === undefined) return;
  const refusal = newForbidden(
    { group: resource.group, resource: resource.resource },
    name,
    `unable to create new content in namespace ${namespaceName} because it is being terminated`,
  );
  refusal.status.details = {
    ...refusal.status.details,
    causes: [
      {
        reason: 'NamespaceTerminating',
        message: `namespace ${namespaceName} is being terminated`,
        field: 'metadata.namespace',
      },
    ],
  };
  throw refusal;
}

/**
 * Whether the resource is a local review, which is answered and not stored. A custom resource may have the same name in another
 * group.
 */
const isReview = ({ resource }: AdmissionAttributes): boolean => isResource(resource, localSubjectAccessReviews);
