/** NodeDeclaredFeatureValidator: a pod on a node changes only in ways for which its node declares the features. */
import type { Node, Pod } from '../../../api/kinds/kinds.ts';
import { nodes } from '../../../api/client/resources.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isPod, type PodSpec, refusal } from './pod-attributes.ts';
import type { AdmissionPlugin } from './admission.ts';
import type { Listers } from '../../model/listers.ts';

/** The features that a change needs, sorted by name. */
const FEATURES: readonly { readonly name: string; readonly isNeeded: (old: PodSpec, next: PodSpec) => boolean }[] = [
  {
    name: 'InPlacePodLevelResourcesVerticalScaling',
    isNeeded: (old, next) => !semanticEqual(old.resources ?? {}, next.resources ?? {}),
  },
  {
    name: 'InPlacePodVerticalScalingInitContainers',
    isNeeded: (old, next) =>
      (old.initContainers ?? []).some(
        ({ restartPolicy, resources }, index) =>
          restartPolicy !== 'Always' && !semanticEqual(resources ?? {}, next.initContainers?.[index]?.resources ?? {}),
      ),
  },
];

/** Checks updates of pods and of the subresource `resize`. */
export function nodeDeclaredFeatures(listers: Listers): AdmissionPlugin {
  const lister = listers.of(nodes);
  return {
    name: 'NodeDeclaredFeatureValidator',
    handles: (operation) => operation === 'UPDATE',
    async validate(attributes) {
      const { subresource } = attributes;
      if (!isPod(attributes) || (subresource !== '' && subresource !== 'resize')) return;
      const old = (attributes.oldObject as Pod | undefined)?.spec;
      const next = (attributes.object as Pod | undefined)?.spec;
      const nodeName = next?.nodeName ?? '';
      if (old === undefined || next === undefined || nodeName === '') return;
      const needed = FEATURES.filter(({ isNeeded }) => isNeeded(old, next)).map(({ name }) => name);
      if (needed.length === 0) return;
      const node: Node | undefined = lister.get('', nodeName) ?? (await lister.live('', nodeName));
      if (node === undefined) throw refusal(attributes, `node "${nodeName}" not found`);
      const declared = new Set(node.status?.declaredFeatures ?? []);
      const missing = needed.filter((name) => !declared.has(name));
      if (missing.length === 0) return;
      const features = missing.join(', ');
      throw refusal(
        attributes,
        `pod update requires features ${features} which are not available on node "${nodeName}"`,
      );
    },
  };
}
