/** DefaultTolerationSeconds: a pod tolerates for some time that its node is not ready or not reachable. */
import { podOf } from './pod-attributes.ts';
import type { AdmissionPlugin } from './admission.ts';
import type { Toleration } from './tolerations.ts';
import { NOT_READY_TAINT, UNREACHABLE_TAINT } from '../../../api/meta/well-known-labels.ts';

/** How long, in seconds, a pod stays on its node after each taint appeared. */
export interface DefaultTolerationSecondsOptions {
  /** The value of `--default-not-ready-toleration-seconds`. */
  readonly notReadySeconds: number;
  /** The value of `--default-unreachable-toleration-seconds`. */
  readonly unreachableSeconds: number;
}

/** Adds a NoExecute toleration for each of the two taints that the pod does not tolerate yet. */
export function defaultTolerationSeconds(options: DefaultTolerationSecondsOptions): AdmissionPlugin {
  return {
    name: 'DefaultTolerationSeconds',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    admit(attributes) {
      const pod = podOf(attributes);
      if (pod === undefined) return;
      const tolerations = pod.spec.tolerations ?? [];
      const added: Toleration[] = [];
      const add = (key: string, seconds: number): void => {
        if (!tolerations.some((one) => tolerates(one, key))) {
          added.push({ key, operator: 'Exists', effect: 'NoExecute', tolerationSeconds: seconds });
        }
      };
      add(NOT_READY_TAINT, options.notReadySeconds);
      add(UNREACHABLE_TAINT, options.unreachableSeconds);
      if (added.length > 0) pod.spec.tolerations = [...tolerations, ...added];
    },
  };
}

function tolerates(one: Toleration, key: string): boolean {
  const hasKey = (one.key ?? '') === key || (one.key ?? '') === '';
  const hasEffect = (one.effect ?? '') === 'NoExecute' || (one.effect ?? '') === '';
  return hasKey && hasEffect;
}
