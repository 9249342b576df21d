/**
 * NamespaceLifecycle: objects can only be created in namespaces that exist and are not terminating, and the namespaces that the
 * system needs cannot be deleted.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import { namespaces } from '../../api/machinery/resources.ts';
import { newForbidden, newNotFound } from '../../api/meta/status-error.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import { RecentDeletions } from './recent-deletions.ts';
import type { Sources } from '../readers/sources.ts';

const IMMORTAL = new Set(['default', 'kube-system', 'kube-public']);
const CORE_NAMESPACES = { group: '', resource: 'namespaces' };

export function namespaceLifecycle(sources: Sources, clock: Clock): AdmissionPlugin {
  const source = sources.of(namespaces);
  const deletions = new RecentDeletions(clock);
  return {
    name: 'NamespaceLifecycle',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE' || operation === 'DELETE',
    async admit(attributes) {
      const isNamespace = attributes.resource.group === '' && attributes.resource.resource === 'namespaces';
      if (attributes.operation === 'DELETE' && isNamespace) {
        if (IMMORTAL.has(attributes.name))
          throw newForbidden(CORE_NAMESPACES, attributes.name, 'this namespace may not be deleted');
        if (attributes.dryRun) return;
        const exists = source.get('', attributes.name) ?? (await source.live('', attributes.name));
        if (exists !== undefined) deletions.add(attributes.name);
        return;
      }
      if (isNamespace || attributes.namespace === '') return;
      // Existing objects may be changed and deleted while their namespace terminates.
      if (attributes.operation !== 'CREATE') return;
      if (isReview(attributes)) return;
      let namespace = source.get('', attributes.namespace);
      if (namespace === undefined || deletions.has(attributes.namespace))
        namespace = await source.live('', attributes.namespace);
      if (namespace === undefined) throw newNotFound(CORE_NAMESPACES, attributes.namespace);
      if (namespace.status?.phase !== 'Terminating' && namespace.metadata.deletionTimestamp === undefined) return;
      const { resource } = attributes;
      const refusal = newForbidden(
        { group: resource.group, resource: resource.resource },
        attributes.name,
        `unable to create new content in namespace ${attributes.namespace} because it is being terminated`,
      );
      refusal.status.details = {
        ...refusal.status.details,
        causes: [
          {
            reason: 'NamespaceTerminating',
            message: `namespace ${attributes.namespace} is being terminated`,
            field: 'metadata.namespace',
          },
        ],
      };
      throw refusal;
    },
  };
}

/** Reviews are answered and not stored. A custom resource may have the same name in another group. */
const isReview = ({ resource: { group, resource } }: AdmissionAttributes): boolean =>
  group === 'authorization.k8s.io' && resource === 'localsubjectaccessreviews';
