/**
 * NamespaceExists refuses objects in a missing namespace, and NamespaceAutoProvision creates the namespace. Both are off by
 * default.
 */
import { namespaces } from '../../../api/client/resources.ts';
import { isAlreadyExists, newNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { Listers } from '../../model/listers.ts';
import { isResource } from '../../../api/meta/group-resource.ts';

const isConcerned = (attributes: AdmissionAttributes): boolean =>
  attributes.namespace !== '' && !isResource(attributes.resource, namespaces);

/** Looks in the cache first and then in the storage, so that a namespace created a moment ago is found. Refuses with 404. */
export function namespaceExists(listers: Listers): AdmissionPlugin {
  const lister = listers.of(namespaces);
  return {
    name: 'NamespaceExists',
    handles: (operation) => operation !== 'CONNECT',
    async validate(attributes) {
      if (!isConcerned(attributes) || lister.get('', attributes.namespace) !== undefined) return;
      if ((await lister.live('', attributes.namespace)) !== undefined) return;
      throw newNotFound(namespaces, attributes.namespace);
    },
  };
}

/**
 * Creates the plugin NamespaceAutoProvision. `create` creates the namespace of that name. An AlreadyExists error of it is
 * ignored. The plugin creates nothing in a dry run.
 */
export function namespaceAutoProvision(listers: Listers, create: (name: string) => Promise<void>): AdmissionPlugin {
  const lister = listers.of(namespaces);
  return {
    name: 'NamespaceAutoProvision',
    handles: (operation) => operation === 'CREATE',
    async admit(attributes) {
      if (!isConcerned(attributes) || attributes.dryRun || lister.get('', attributes.namespace) !== undefined) return;
      await tolerate(create(attributes.namespace), isAlreadyExists);
    },
  };
}
