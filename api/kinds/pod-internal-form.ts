/** Returns the form of a pod's spec in Kubernetes' internal types, which error messages compare. */
import { internalForm } from '../schema/internal-form.ts';
import type { PodSpec } from './pod-types.ts';

const POD_SPEC = 'io.k8s.api.core.v1.PodSpec';

/** In the internal types, the fields about namespaces of the host are part of the security context. */
export function podSpecForm(spec: PodSpec): object {
  const {
    HostNetwork,
    HostPID,
    HostIPC,
    ShareProcessNamespace,
    HostUsers,
    ServiceAccount: _same,
    ...form
  } = internalForm(POD_SPEC, { ...spec, securityContext: spec.securityContext ?? {} }) as Record<string, unknown>;
  const host = { HostNetwork, HostPID, HostIPC, ShareProcessNamespace, HostUsers };
  return { ...form, SecurityContext: { ...host, ...(form['SecurityContext'] as object) } };
}
