/** Priority: resolves a pod's priority class to its number, and allows at most one default class. */
import type { PriorityClass } from '../../../api/kinds/kinds.ts';
import { priorityClasses } from '../../../api/client/resources.ts';
import { podOf, refusal, type PodSpec } from './pod-attributes.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { Lister, Listers } from '../../model/listers.ts';
import { isResource } from '../../../api/meta/group-resource.ts';

/**
 * Refuses new pods with an unknown class, or with a priority or a preemption policy other than those of the class, and a second
 * default class.
 */
export function priorityPlugin(listers: Listers): AdmissionPlugin {
  const lister = listers.of(priorityClasses);
  return {
    name: 'Priority',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    async admit(attributes) {
      const pod = podOf(attributes);
      if (pod === undefined) return;
      if (attributes.operation === 'UPDATE') keepPriority(pod.spec, attributes);
      else await setPriority(pod.spec, attributes, lister);
    },
    validate(attributes) {
      if (!isResource(attributes.resource, priorityClasses) || attributes.subresource !== '') return;
      const added = attributes.object as PriorityClass | undefined;
      if (added?.globalDefault !== true) return;
      const current = lister.list().find((one) => one.globalDefault === true);
      if (current === undefined || current.metadata.name === added.metadata.name) return;
      throw refusal(
        attributes,
        `PriorityClass ${current.metadata.name} is already marked as default. Only one default can exist`,
      );
    },
  };
}

/** Keeps the stored priority in an update, in which clients that do not know the fields may omit them. */
function keepPriority(spec: PodSpec, attributes: AdmissionAttributes): void {
  const old = (attributes.oldObject as { spec?: PodSpec } | undefined)?.spec;
  if (old === undefined) return;
  if (spec.priority === undefined && old.priority !== undefined) spec.priority = old.priority;
  if (spec.preemptionPolicy === undefined && old.preemptionPolicy !== undefined)
    spec.preemptionPolicy = old.preemptionPolicy;
}

async function setPriority(
  spec: PodSpec,
  attributes: AdmissionAttributes,
  lister: Lister<PriorityClass>,
): Promise<void> {
  let priority = 0;
  let policy = 'PreemptLowerPriority';
  const name = spec.priorityClassName ?? '';
  const priorityClass = name === '' ? defaultClass(lister) : (lister.get('', name) ?? (await lister.live('', name)));
  if (priorityClass !== undefined) {
    priority = priorityClass.value ?? 0;
    policy = priorityClass.preemptionPolicy ?? policy;
    spec.priorityClassName = priorityClass.metadata.name ?? '';
  } else if (name !== '') throw refusal(attributes, `no PriorityClass with name ${name} was found`);
  if (spec.priority !== undefined && spec.priority !== null && spec.priority !== priority) {
    throw refusal(
      attributes,
      `the integer value of priority (${spec.priority}) must not be provided in pod spec; priority admission controller computed ${priority} from the given PriorityClass name`,
    );
  }
  spec.priority = priority;
  const podPolicy = spec.preemptionPolicy;
  if (podPolicy !== undefined && podPolicy !== null && podPolicy !== policy) {
    throw refusal(
      attributes,
      `the string value of PreemptionPolicy (${podPolicy}) must not be provided in pod spec; priority admission controller computed ${policy} from the given PriorityClass name`,
    );
  }
  spec.preemptionPolicy = policy;
}

/** Returns the default class. If a race created several, it is the one with the lowest value. */
function defaultClass(lister: Lister<PriorityClass>): PriorityClass | undefined {
  let least: PriorityClass | undefined;
  for (const one of lister.list()) {
    if (one.globalDefault === true && (least === undefined || (one.value ?? 0) < (least.value ?? 0))) least = one;
  }
  return least;
}
