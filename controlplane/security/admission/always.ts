/** AlwaysAdmit and AlwaysDeny. Both are off by default. */
import { refusal } from './pod-attributes.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';

/** Handles no operation, so that the chain never calls it. Kubernetes keeps the name for old flags. */
export const alwaysAdmit = (): AdmissionPlugin => ({ name: 'AlwaysAdmit', handles: () => false });

/** Creates the plugin AlwaysDeny, which refuses every write and every connection. */
export function alwaysDeny(): AdmissionPlugin {
  const deny = (attributes: AdmissionAttributes): never => {
    throw refusal(attributes, 'admission control is denying all modifications');
  };
  return { name: 'AlwaysDeny', handles: () => true, admit: deny, validate: deny };
}
