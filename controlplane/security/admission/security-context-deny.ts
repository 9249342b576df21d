/** SecurityContextDeny: refuses pods that set users, groups or SELinux labels. Off by default; Pod Security replaces it. */
import { isPod, refusal } from './pod-attributes.ts';
import type { Pod } from '../../../api/kinds/kinds.ts';
import type { AdmissionPlugin } from './admission.ts';

/** Checks the security contexts of the pod and of all its containers on create and update. */
export function securityContextDeny(): AdmissionPlugin {
  return {
    name: 'SecurityContextDeny',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    validate(attributes) {
      if (!isPod(attributes) || (attributes.subresource !== '' && attributes.subresource !== 'ephemeralcontainers'))
        return;
      const spec = (attributes.object as Pod | undefined)?.spec;
      if (spec === undefined) return;
      const refuse = (field: string): never => {
        throw refusal(attributes, `${field} is forbidden`);
      };
      const context = spec.securityContext;
      if ((context?.supplementalGroups?.length ?? 0) > 0) refuse('pod.Spec.SecurityContext.SupplementalGroups');
      if (isSet(context?.seLinuxOptions)) refuse('pod.Spec.SecurityContext.SELinuxOptions');
      if (isSet(context?.runAsUser)) refuse('pod.Spec.SecurityContext.RunAsUser');
      if (isSet(context?.fsGroup)) refuse('pod.Spec.SecurityContext.FSGroup');
      for (const container of [
        ...(spec.initContainers ?? []),
        ...spec.containers,
        ...(spec.ephemeralContainers ?? []),
      ]) {
        if (isSet(container.securityContext?.seLinuxOptions)) refuse('SecurityContext.SELinuxOptions');
        if (isSet(container.securityContext?.runAsUser)) refuse('SecurityContext.RunAsUser');
      }
    },
  };
}

function isSet(value: unknown): boolean {
  return value !== undefined && value !== null;
}
