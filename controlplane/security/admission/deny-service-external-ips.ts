/**
 * DenyServiceExternalIPs: refuses external IPs of services, because the author of a service could intercept traffic of others
 * with them. Off by default.
 */
import type { Service } from '../../../api/kinds/kinds.ts';
import { refusal } from './pod-attributes.ts';
import type { AdmissionPlugin } from './admission.ts';
import { services } from '../../../api/client/resources.ts';
import { isResource } from '../../../api/meta/group-resource.ts';

/** Refuses external IPs of new services and those that an update adds. Those that the service already has stay valid. */
export function denyServiceExternalIps(): AdmissionPlugin {
  return {
    name: 'DenyServiceExternalIPs',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    validate(attributes) {
      if (!isResource(attributes.resource, services) || attributes.subresource !== '') return;
      const stored = new Set((attributes.oldObject as Service | undefined)?.spec?.externalIPs ?? []);
      if (((attributes.object as Service | undefined)?.spec?.externalIPs ?? []).every((address) => stored.has(address)))
        return;
      throw refusal(attributes, 'Use of external IPs is denied by admission control.');
    },
  };
}
