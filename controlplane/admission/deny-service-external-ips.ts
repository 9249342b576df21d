/** DenyServiceExternalIPs: services get no external addresses, which would let their authors take over others' traffic. Off by default. */
import type { Service } from '../../api/machinery/kinds.ts';
import { refusal } from './pod-attributes.ts';
import type { AdmissionPlugin } from './admission.ts';

export function denyServiceExternalIps(): AdmissionPlugin {
  return {
    name: 'DenyServiceExternalIPs',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    validate(attributes) {
      const { group, resource } = attributes.resource;
      if (group !== '' || resource !== 'services' || attributes.subresource !== '') return;
      const known = new Set((attributes.oldObject as Service | undefined)?.spec?.externalIPs ?? []);
      // Those that a service has it may keep.
      if (((attributes.object as Service | undefined)?.spec?.externalIPs ?? []).every((address) => known.has(address)))
        return;
      throw refusal(attributes, 'Use of external IPs is denied by admission control.');
    },
  };
}
