/**
 * Limits the PodCertificateRequests of a node: it may only request a certificate for a pod that runs on it, with the pod's
 * service account. A signer issues certificates for the names and UIDs of a request without reading the objects.
 */
import { nodes, pods, serviceAccounts } from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { newNotFound } from '../../../api/meta/status-error.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import type { Lister, Listers } from '../../model/listers.ts';
import type { AdmissionAttributes } from './admission.ts';
import { refusal } from './pod-attributes.ts';
import { MIRROR_ANNOTATION } from '../../../api/kinds/pod-annotations.ts';

interface Spec {
  readonly nodeName?: string;
  readonly nodeUID?: string;
  readonly podName?: string;
  readonly podUID?: string;
  readonly serviceAccountName?: string;
  readonly serviceAccountUID?: string;
}

/** Throws a 403 if the node may not write the request, and a 404 if its pod or service account does not exist. */
type PodCertificateCheck = (attributes: AdmissionAttributes, node: string) => Promise<void>;

export function podCertificateCheck(listers: Listers): PodCertificateCheck {
  const nodeLister = listers.of(nodes);
  const podLister = listers.of(pods);
  const accountLister = listers.of(serviceAccounts);
  return async (attributes, node) => {
    const refuse = (why: string): Error => refusal(attributes, why);
    const { operation, subresource, namespace } = attributes;
    const q = quoteText(node);
    if (operation !== 'CREATE' || subresource !== '')
      throw refuse(`node ${q} can only create pod certificate requests`);
    const spec = (attributes.object?.['spec'] ?? {}) as Spec;
    if (spec.nodeName !== node || spec.nodeUID !== (await nodeLister.live('', node))?.metadata.uid)
      throw refuse(`node ${q} can only request certificates with spec.nodeName and spec.nodeUID set to itself`);
    const pod = await existing(podLister, 'pods', namespace, spec.podName ?? '');
    if (pod.metadata.uid !== spec.podUID || pod.spec?.nodeName !== node)
      throw refuse(`node ${q} can only request certificates for pods with spec.nodeName set to itself`);
    if (pod.metadata.annotations?.[MIRROR_ANNOTATION] !== undefined)
      throw refuse(`node ${q} can not request certificates for mirror pods`);
    const podName = quoteText(pod.metadata.name ?? '');
    if (pod.spec.serviceAccountName !== spec.serviceAccountName)
      throw refuse(`pod ${podName} has another service account than its certificate request`);
    const account = await existing(accountLister, 'serviceaccounts', namespace, spec.serviceAccountName ?? '');
    if (account.metadata.uid !== spec.serviceAccountUID)
      throw refuse(`the service account of pod ${podName} has another UID than in its certificate request`);
  };
}

async function existing<T extends KubeObject>(
  lister: Lister<T>,
  resource: string,
  namespace: string,
  name: string,
): Promise<T> {
  const object = lister.get(namespace, name) ?? (await lister.live(namespace, name));
  if (object === undefined) throw newNotFound({ group: '', resource }, name);
  return object;
}
