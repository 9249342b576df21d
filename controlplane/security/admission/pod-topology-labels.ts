/** PodTopologyLabels: copies the zone and region labels of the node to the pod when it is bound. */
import type { Binding, Node } from '../../../api/kinds/kinds.ts';
import { nodes, bindings } from '../../../api/client/resources.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { isPod, podOf } from './pod-attributes.ts';
import type { AdmissionPlugin } from './admission.ts';
import type { Listers } from '../../model/listers.ts';
import { REGION_LABEL, ZONE_LABEL } from '../../../api/meta/well-known-labels.ts';
import { isResource } from '../../../api/meta/group-resource.ts';

const LABELS = [REGION_LABEL, ZONE_LABEL];

/** Changes bindings and pods that are created on a node. Labels that the node lacks are not copied. */
export function podTopologyLabels(listers: Listers): AdmissionPlugin {
  const lister = listers.of(nodes);
  const copy = (node: Node | undefined, metadata: { labels?: Record<string, string> }): void => {
    for (const key of LABELS) {
      const value = ownMember(node?.metadata.labels, key);
      if (value !== undefined) metadata.labels = { ...metadata.labels, [key]: value };
    }
  };
  return {
    name: 'PodTopologyLabels',
    handles: (operation) => operation === 'CREATE',
    async admit(attributes) {
      const pod = podOf(attributes);
      if (pod !== undefined) {
        const name = pod.spec.nodeName ?? '';
        if (name !== '') copy(lister.get('', name) ?? (await lister.live('', name)), pod.metadata);
        return;
      }
      const isBinding =
        (isPod(attributes) && attributes.subresource === 'binding') || isResource(attributes.resource, bindings);
      if (!isBinding || attributes.object === undefined) return;
      const binding = attributes.object as Binding;
      const name = binding.target?.kind === 'Node' ? (binding.target.name ?? '') : '';
      if (name !== '') copy(lister.get('', name) ?? (await lister.live('', name)), binding.metadata);
    },
  };
}
