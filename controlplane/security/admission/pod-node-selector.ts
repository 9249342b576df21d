/** PodNodeSelector: adds the node selector of a namespace to its pods. Off by default. */
import { quoteText } from '../../../api/meta/quote.ts';
import type { Namespace } from '../../../api/kinds/kinds.ts';
import { namespaces } from '../../../api/client/resources.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { newInternalError } from '../../../api/meta/status-error.ts';
import { podOf, refusal } from './pod-attributes.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { Listers } from '../../model/listers.ts';

const ANNOTATION = 'scheduler.alpha.kubernetes.io/node-selector';
const DEFAULT = 'clusterDefaultNodeSelector';

type Labels = Readonly<Record<string, string>>;

/**
 * Creates the plugin. `configuration` has lists of labels (`a=b,c=d`). Its `clusterDefaultNodeSelector` is the selector of
 * namespaces without the annotation. If there is a list for a namespace, the selectors of its pods may have no other labels.
 * The plugin refuses a pod with 403 if its selector conflicts, and with 500 if a list is invalid.
 */
export function podNodeSelector(listers: Listers, configuration: Labels = {}): AdmissionPlugin {
  const lister = listers.of(namespaces);
  const namespaceSelector = async ({ namespace: name }: AdmissionAttributes): Promise<Labels> => {
    const namespace: Namespace | undefined = lister.get('', name) ?? (await lister.live('', name));
    return labelsOf(namespace?.metadata.annotations?.[ANNOTATION] ?? configuration[DEFAULT] ?? '');
  };
  const checkConflict = (attributes: AdmissionAttributes, ofNamespace: Labels, ofPod: Labels): void => {
    if (Object.entries(ofNamespace).every(([key, value]) => (ownMember(ofPod, key) ?? value) === value)) return;
    throw refusal(attributes, 'pod node label selector conflicts with its namespace node label selector');
  };
  return {
    name: 'PodNodeSelector',
    handles: (operation) => operation === 'CREATE',
    async admit(attributes) {
      const pod = podOf(attributes);
      if (pod === undefined) return;
      const ofNamespace = await namespaceSelector(attributes);
      const ofPod = pod.spec.nodeSelector ?? {};
      checkConflict(attributes, ofNamespace, ofPod);
      if (Object.keys(ofNamespace).length > 0) pod.spec.nodeSelector = { ...ofNamespace, ...ofPod };
    },
    async validate(attributes) {
      const pod = podOf(attributes);
      if (pod === undefined) return;
      const ofPod = pod.spec.nodeSelector ?? {};
      checkConflict(attributes, await namespaceSelector(attributes), ofPod);
      const allowed = labelsOf(ownMember(configuration, attributes.namespace) ?? '');
      if (Object.keys(allowed).length === 0) return;
      if (Object.entries(ofPod).every(([key, value]) => ownMember(allowed, key) === value)) return;
      throw refusal(attributes, 'pod node label selector labels conflict with its namespace whitelist');
    },
  };
}

function labelsOf(text: string): Labels {
  const labels: Record<string, string> = {};
  for (const part of text.split(',').map((one) => one.trim())) {
    if (part === '') continue;
    const [key = '', value, ...more] = part.split('=').map((one) => one.trim());
    if (key === '' || value === undefined || more.length > 0)
      throw newInternalError(`invalid selector: ${quoteText(text)} is no list of labels (a=b,c=d)`);
    labels[key] = value;
  }
  return labels;
}
