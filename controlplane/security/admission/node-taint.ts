/** TaintNodesByCondition: a new node gets the not-ready taint, so that no pods are scheduled to it until it is ready. */
import type { Node } from '../../../api/kinds/kinds.ts';
import type { AdmissionPlugin } from './admission.ts';
import { NOT_READY_TAINT } from '../../../api/meta/well-known-labels.ts';
import { nodes } from '../../../api/client/resources.ts';
import { isResource } from '../../../api/meta/group-resource.ts';

/** Changes Nodes when they are created, by agents or by other users. */
export function taintNodesByCondition(): AdmissionPlugin {
  return {
    name: 'TaintNodesByCondition',
    handles: (operation) => operation === 'CREATE',
    admit(attributes) {
      if (!isResource(attributes.resource, nodes) || attributes.subresource !== '') return;
      const node = attributes.object as Node | undefined;
      if (node === undefined) return;
      const spec = (node.spec ??= {});
      const taints = spec.taints ?? [];
      if (taints.some((taint) => taint.key === NOT_READY_TAINT && taint.effect === 'NoSchedule')) return;
      spec.taints = [...taints, { key: NOT_READY_TAINT, effect: 'NoSchedule' }];
    },
  };
}
