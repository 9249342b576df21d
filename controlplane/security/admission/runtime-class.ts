/** RuntimeClass: checks that the pod's class exists, and sets the pod's overhead and scheduling constraints from it. */
import { quoteText } from '../../../api/meta/quote.ts';
import type { RuntimeClass } from '../../../api/kinds/kinds.ts';
import { runtimeClasses } from '../../../api/client/resources.ts';
import { requestNameFault } from '../../../api/meta/names.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { newErrorWithoutReason } from '../../../api/meta/status-error.ts';
import { podOf, refusal, type PodSpec } from './pod-attributes.ts';
import { mergeTolerations, sameResources } from './tolerations.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { Lister, Listers } from '../../model/listers.ts';

/**
 * Creates the plugin. It refuses a pod with 403 if its class does not exist, or if its overhead or its node selector
 * contradicts the class, and with 500 for a name that no class can have.
 */
export function runtimeClassPlugin(listers: Listers): AdmissionPlugin {
  const lister = listers.of(runtimeClasses);
  return {
    name: 'RuntimeClass',
    handles: (operation) => operation === 'CREATE',
    async admit(attributes) {
      const pod = podOf(attributes);
      if (pod === undefined) return;
      const runtimeClass = await classOf(pod.spec, attributes, lister);
      if (runtimeClass === undefined) return;
      const fixed = runtimeClass.overhead?.podFixed;
      if (fixed !== undefined && fixed !== null) {
        const named = pod.spec.overhead ?? {};
        if (Object.keys(named).length > 0 && !sameResources(named, fixed)) {
          throw refusal(attributes, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead");
        }
        pod.spec.overhead = { ...fixed };
      }
      if (runtimeClass.scheduling !== undefined && runtimeClass.scheduling !== null)
        schedule(pod.spec, runtimeClass.scheduling, attributes);
    },
    async validate(attributes) {
      const pod = podOf(attributes);
      if (pod === undefined) return;
      const runtimeClass = await classOf(pod.spec, attributes, lister);
      const fixed = runtimeClass?.overhead?.podFixed;
      if (fixed !== undefined && fixed !== null) {
        if (sameResources(pod.spec.overhead ?? undefined, fixed)) return;
        throw refusal(attributes, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead");
      }
      if (pod.spec.overhead !== undefined && pod.spec.overhead !== null) {
        throw refusal(attributes, 'pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead');
      }
    },
  };
}

async function classOf(
  spec: PodSpec,
  attributes: AdmissionAttributes,
  lister: Lister<RuntimeClass>,
): Promise<RuntimeClass | undefined> {
  const name = spec.runtimeClassName;
  if (name === undefined || name === null) return undefined;
  const fault = requestNameFault(name);
  if (fault !== undefined) throw newErrorWithoutReason(fault);
  const runtimeClass = lister.get('', name) ?? (await lister.live('', name));
  if (runtimeClass === undefined) throw refusal(attributes, `pod rejected: RuntimeClass ${quoteText(name)} not found`);
  return runtimeClass;
}

function schedule(
  spec: PodSpec,
  scheduling: NonNullable<RuntimeClass['scheduling']>,
  attributes: AdmissionAttributes,
): void {
  const selector = scheduling.nodeSelector ?? {};
  const podSelector = spec.nodeSelector ?? {};
  for (const [key, value] of Object.entries(selector)) {
    const named = ownMember(podSelector, key);
    if (named === undefined || named === value) continue;
    throw refusal(
      attributes,
      `conflict: runtimeClass.scheduling.nodeSelector[${key}] = ${value}; pod.spec.nodeSelector[${key}] = ${named}`,
    );
  }
  if (Object.keys(selector).length > 0) spec.nodeSelector = { ...podSelector, ...selector };
  if ((scheduling.tolerations?.length ?? 0) > 0) {
    spec.tolerations = mergeTolerations(spec.tolerations ?? [], scheduling.tolerations ?? []);
  }
}
