/**
 * NodeRestriction: limits what a kubelet may write beyond its authorization. It may write its own Node (without labels and
 * taints that others decide), Lease, CSINode and ResourceSlices, its own mirror pods, the status and the eviction of its own
 * pods, tokens and certificates of their service accounts, requests for its own certificates, and the status of claims.
 */
import { quoteText } from '../../../api/meta/quote.ts';
import type { CertificateSigningRequest, Lease, Node, PersistentVolumeClaim, Pod } from '../../../api/kinds/kinds.ts';
import { nodes, pods } from '../../../api/client/resources.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { newNotFound } from '../../../api/meta/status-error.ts';
import type { Authorizer } from '../authorization/authorization.ts';
import { nodeNameOf } from '../authorization/node.ts';
import { podReferences } from '../authorization/pod-references.ts';
import { requestOf } from './certificates.ts';
import type { NodeClaims } from './node-claims.ts';
import { refusal } from './pod-attributes.ts';
import { podCertificateCheck } from './node-pod-certificates.ts';
import { podAudiences } from './pod-audiences.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { Listers } from '../../model/listers.ts';
import { MIRROR_ANNOTATION } from '../../../api/kinds/pod-annotations.ts';
import { NODE_LABELS, AGENT_LABEL_DOMAINS } from '../../../api/meta/well-known-labels.ts';
import { NODE_CLIENT_SIGNER, NODE_SERVING_SIGNER } from '../../../api/pki/signer-names.ts';
import { groupResourceName } from '../../../api/meta/group-resource.ts';
import { NODE_LEASE_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

/**
 * Creates the plugin. It refuses a node with a 403, or with a 404 if an object that its request names does not exist. `claims`
 * records what the node claims for the pod network.
 */
export function nodeRestriction(listers: Listers, authorizer: Authorizer, claims?: NodeClaims): AdmissionPlugin {
  const podLister = listers.of(pods);
  const nodeLister = listers.of(nodes);
  const mayRequestAudience = podAudiences(listers);
  const checkCertificate = podCertificateCheck(listers);
  const findPod: FindPod = async ({ namespace }, name) => {
    const pod = podLister.get(namespace, name) ?? (await podLister.live(namespace, name));
    if (pod === undefined) throw newNotFound({ group: '', resource: 'pods' }, name);
    return pod;
  };
  return {
    name: 'NodeRestriction',
    handles: (operation) => operation !== 'CONNECT',
    async admit(attributes) {
      const node = nodeNameOf(attributes.user);
      if (node === undefined) return;
      if (node === '')
        throw refusal(attributes, `could not determine node from user ${quoteText(attributes.user.name)}`);
      switch (groupResourceName(attributes.resource)) {
        case 'pods':
          if (attributes.subresource === '')
            return mainPod(attributes, node, findPod, (name) => nodeLister.get('', name) ?? nodeLister.live('', name));
          if (attributes.subresource === 'status') return podStatus(attributes, node);
          if (attributes.subresource === 'eviction') return eviction(attributes, node, findPod);
          throw refusal(
            attributes,
            `unexpected pod subresource ${quoteText(attributes.subresource)}, only 'status' and 'eviction' are allowed`,
          );
        case 'nodes':
          checkNode(attributes, node);
          return claims?.(attributes, node);
        case 'persistentvolumeclaims':
          if (attributes.subresource === 'status') return claimStatus(attributes, node);
          throw refusal(attributes, `may only update PVC status`);
        case 'serviceaccounts':
          if (attributes.subresource === 'token')
            return tokenRequest(attributes, findPod, mayRequestAudience, authorizer);
          return undefined;
        case 'leases.coordination.k8s.io':
          return lease(attributes, node);
        case 'certificatesigningrequests.certificates.k8s.io':
          return certificateRequest(attributes);
        case 'podcertificaterequests.certificates.k8s.io':
          return checkCertificate(attributes, node);
        case 'csinodes.storage.k8s.io':
          if (attributes.operation === 'CREATE' && objectName(attributes) === node) return undefined;
          if (attributes.name === node) return undefined;
          throw refusal(attributes, 'can only access CSINode with the same name as the requesting node');
        case 'resourceslices.resource.k8s.io':
          return slice(attributes, node);
        default:
          return undefined;
      }
    },
  };
}

const objectName = (attributes: AdmissionAttributes): string => attributes.object?.metadata.name ?? '';

type FindPod = (attributes: AdmissionAttributes, name: string) => Promise<Pod>;
type FindNode = (name: string) => Promise<Node | undefined> | Node | undefined;

async function mainPod(
  attributes: AdmissionAttributes,
  node: string,
  findPod: FindPod,
  findNode: FindNode,
): Promise<void> {
  if (attributes.operation === 'DELETE') {
    const pod = (attributes.oldObject as Pod | undefined) ?? (await findPod(attributes, attributes.name));
    if (pod.spec?.nodeName !== node)
      throw refusal(attributes, `node ${q(node)} can only delete pods with spec.nodeName set to itself`);
    return;
  }
  if (attributes.operation !== 'CREATE')
    throw refusal(
      attributes,
      `unexpected operation ${q(attributes.operation)}, node ${q(node)} can only create and delete mirror pods`,
    );
  const pod = attributes.object as Pod;
  if (pod.metadata.annotations?.[MIRROR_ANNOTATION] === undefined) {
    throw refusal(
      attributes,
      `pod does not have ${q(MIRROR_ANNOTATION)} annotation, node ${q(node)} can only create mirror pods`,
    );
  }
  if (pod.spec?.nodeName !== node)
    throw refusal(attributes, `node ${q(node)} can only create pods with spec.nodeName set to itself`);
  const owners = pod.metadata.ownerReferences ?? [];
  const [owner] = owners;
  const ownerRefusal = (which: string): never => {
    throw refusal(attributes, `node ${q(node)} can only create pods with ${which} owner reference set to itself`);
  };
  if (owners.length > 1) ownerRefusal('a single');
  if (owner === undefined || owner.apiVersion !== 'v1' || owner.kind !== 'Node' || owner.name !== node)
    return ownerRefusal('an');
  if (owner.controller !== true) ownerRefusal('a controller');
  if (owner.blockOwnerDeletion === true)
    throw refusal(attributes, `node ${q(node)} must not set blockOwnerDeletion on an owner reference`);
  const nodeObject = await findNode(node);
  if (nodeObject === undefined) throw newNotFound({ group: '', resource: 'nodes' }, node);
  const { uid } = nodeObject.metadata;
  if (uid !== owner.uid) throw refusal(attributes, `node ${node} UID mismatch: expected ${owner.uid} got ${uid}`);
  if ((pod.spec.serviceAccountName ?? '') !== '')
    throw refusal(attributes, `node ${q(node)} can not create pods that reference a service account`);
  const references = podReferences(pod);
  if (references.secrets.size > 0)
    throw refusal(attributes, `node ${q(node)} can not create pods that reference secrets`);
  if (references.configMaps.size > 0)
    throw refusal(attributes, `node ${q(node)} can not create pods that reference configmaps`);
  const sources = (pod.spec.volumes ?? []).flatMap((volume) => volume.projected?.sources ?? []);
  if (sources.some((one) => one.clusterTrustBundle !== undefined && one.clusterTrustBundle !== null))
    throw refusal(attributes, `node ${q(node)} can not create pods that reference clustertrustbundles`);
  // The claims of ephemeral volumes count too: the name of such a claim follows from the names of the pod and the volume.
  if (references.claims.size > 0)
    throw refusal(attributes, `node ${q(node)} can not create pods that reference persistentvolumeclaims`);
  if ((pod.spec.resourceClaims?.length ?? 0) > 0)
    throw refusal(attributes, `node ${q(node)} can not create pods that reference resourceclaims`);
}

function podStatus(attributes: AdmissionAttributes, node: string): void {
  if (attributes.operation !== 'UPDATE') throw refusal(attributes, `unexpected operation ${q(attributes.operation)}`);
  const old = attributes.oldObject as Pod;
  const pod = attributes.object as Pod;
  if (old.spec?.nodeName !== node)
    throw refusal(attributes, `node ${q(node)} can only update pod status for pods with spec.nodeName set to itself`);
  if (!jsonEqual(old.metadata.labels ?? {}, pod.metadata.labels ?? {})) {
    throw refusal(attributes, `node ${q(node)} cannot update labels through pod status`);
  }
  if (!jsonEqual(old.status?.resourceClaimStatuses ?? [], pod.status?.resourceClaimStatuses ?? [])) {
    throw refusal(attributes, `node ${q(node)} cannot update resource claim statues`);
  }
  const extended = (one: Pod): unknown => one.status?.extendedResourceClaimStatus ?? null;
  if (!jsonEqual(extended(old), extended(pod)))
    throw refusal(attributes, `node ${q(node)} cannot update extended resource claim status`);
}

async function eviction(attributes: AdmissionAttributes, node: string, findPod: FindPod): Promise<void> {
  if (attributes.operation !== 'CREATE') throw refusal(attributes, `unexpected operation ${attributes.operation}`);
  const name = attributes.name !== '' ? attributes.name : objectName(attributes);
  if (name === '') throw refusal(attributes, 'could not determine pod from request data');
  const pod = await findPod(attributes, name);
  if (pod.spec?.nodeName !== node)
    throw refusal(attributes, `node ${node} can only evict pods with spec.nodeName set to itself`);
}

function claimStatus(attributes: AdmissionAttributes, node: string): void {
  if (attributes.operation !== 'UPDATE') throw refusal(attributes, `unexpected operation ${q(attributes.operation)}`);
  const strip = (claim: PersistentVolumeClaim): Record<string, unknown> => {
    const {
      capacity: _c,
      conditions: _d,
      allocatedResources: _a,
      allocatedResourceStatuses: _s,
      ...status
    } = claim.status ?? {};
    const { managedFields: _m, resourceVersion: _r, ...metadata } = claim.metadata;
    return { ...claim, metadata, status };
  };
  const before = strip(attributes.oldObject as PersistentVolumeClaim);
  const after = strip(attributes.object as PersistentVolumeClaim);
  if (jsonEqual(before, after)) return;
  const parts = Object.keys({ ...before, ...after }).filter((part) => !jsonEqual(before[part], after[part]));
  throw refusal(
    attributes,
    `node ${q(node)} is not allowed to update fields other than status.capacity and status.conditions: ${parts.join(', ')}`,
  );
}

const RESTRICTION = 'node-restriction.kubernetes.io';
/** Labels of kubernetes.io and k8s.io that an agent may set on its own node. */
const AGENT_LABELS: ReadonlySet<string> = new Set([...NODE_LABELS, 'node.kubernetes.io/windows-build']);

function domainOf(label: string): string {
  const slash = label.indexOf('/');
  return slash < 0 ? '' : label.slice(0, slash);
}

const isWithin = (domain: string, parent: string): boolean => domain === parent || domain.endsWith(`.${parent}`);

const isRestricted = (label: string): boolean => isWithin(domainOf(label), RESTRICTION);

/** Whether a node may neither set nor change the label of its own Node. */
function isForbiddenLabel(label: string): boolean {
  if (isRestricted(label)) return true;
  const domain = domainOf(label);
  if (!isWithin(domain, 'kubernetes.io') && !isWithin(domain, 'k8s.io')) return false;
  return !AGENT_LABELS.has(label) && !AGENT_LABEL_DOMAINS.some((prefix) => isWithin(domain, prefix));
}

function checkNode(attributes: AdmissionAttributes, node: string): void {
  let name = attributes.name;
  if (attributes.operation === 'CREATE') {
    const created = attributes.object as Node;
    name = created.metadata.name ?? '';
    if (name === node) {
      const labels = Object.keys(created.metadata.labels ?? {})
        .filter(isForbiddenLabel)
        .sort();
      if (labels.length > 0)
        throw refusal(attributes, `node ${q(node)} is not allowed to set the following labels: ${labels.join(', ')}`);
      if ((created.metadata.ownerReferences?.length ?? 0) > 0)
        throw refusal(attributes, `node ${q(node)} is not allowed to modify ownerReferences`);
      if (created.spec?.configSource !== undefined && created.spec.configSource !== null) {
        throw refusal(attributes, `node ${q(node)} is not allowed to create pods with a non-nil configSource`);
      }
    }
  }
  if (name !== node) throw refusal(attributes, `node ${q(node)} is not allowed to modify node ${q(name)}`);
  if (attributes.operation !== 'UPDATE') return;
  const updated = attributes.object as Node;
  const old = attributes.oldObject as Node;
  if (!jsonEqual(old.metadata.ownerReferences ?? [], updated.metadata.ownerReferences ?? [])) {
    throw refusal(attributes, `node ${q(node)} is not allowed to modify ownerReferences`);
  }
  const { configSource } = updated.spec ?? {};
  if (configSource !== undefined && configSource !== null && !jsonEqual(configSource, old.spec?.configSource))
    throw refusal(attributes, `node ${q(node)} is not allowed to update configSource to a new non-nil configSource`);
  if (!jsonEqual(old.spec?.taints ?? [], updated.spec?.taints ?? [])) {
    throw refusal(attributes, `node ${q(node)} is not allowed to modify taints`);
  }
  const changed = modifiedLabels(old, updated).filter(isForbiddenLabel).sort();
  if (changed.length > 0) throw refusal(attributes, `is not allowed to modify labels: ${changed.join(', ')}`);
}

function modifiedLabels(a: KubeObject, b: KubeObject): string[] {
  const before = a.metadata.labels ?? {};
  const after = b.metadata.labels ?? {};
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((key) => before[key] !== after[key]);
}

interface TokenRequestSpec {
  readonly audiences?: readonly string[] | null;
  readonly boundObjectRef?: {
    readonly apiVersion?: string;
    readonly kind?: string;
    readonly name?: string;
    readonly uid?: string;
  } | null;
}

async function tokenRequest(
  attributes: AdmissionAttributes,
  findPod: FindPod,
  mayRequestAudience: ReturnType<typeof podAudiences>,
  authorizer: Authorizer,
): Promise<void> {
  if (attributes.operation !== 'CREATE') return;
  const spec = (attributes.object?.['spec'] ?? {}) as TokenRequestSpec;
  const ref = spec.boundObjectRef ?? undefined;
  if (ref === undefined || ref.apiVersion !== 'v1' || ref.kind !== 'Pod' || (ref.name ?? '') === '') {
    throw refusal(attributes, 'node requested token not bound to a pod');
  }
  if ((ref.uid ?? '') === '') throw refusal(attributes, 'node requested token with a pod binding without a uid');
  const pod = await findPod(attributes, ref.name ?? '');
  if (pod.metadata.uid !== ref.uid) {
    throw refusal(
      attributes,
      `the UID in the bound object reference (${ref.uid}) does not match the UID in record. The object might have been deleted and then recreated`,
    );
  }
  const node = nodeNameOf(attributes.user);
  if (pod.spec?.nodeName !== node)
    throw refusal(attributes, 'node requested token bound to a pod scheduled on a different node');
  const audiences = spec.audiences ?? [];
  if (audiences.length > 1) throw refusal(attributes, 'node may only request 0 or 1 audiences');
  const [audience = ''] = audiences;
  if (await mayRequestAudience(pod, audience)) return;
  // Administrators allow further audiences, which credential provider plugins of the kubelet need, by this verb.
  const { decision } = await authorizer.authorize({
    user: attributes.user,
    verb: 'request-serviceaccounts-token-audience',
    isResourceRequest: true,
    group: '',
    version: 'v1',
    resource: audience,
    subresource: '',
    namespace: attributes.namespace,
    name: attributes.name,
    path: '',
  });
  if (decision === 'allow') return;
  throw refusal(
    attributes,
    `audience ${q(audience)} not found in pod spec volume, ${attributes.user.name} is not authorized to request tokens for this audience`,
  );
}

function lease(attributes: AdmissionAttributes, node: string): void {
  if (attributes.namespace !== NODE_LEASE_NAMESPACE) {
    throw refusal(attributes, `can only access leases in the ${q(NODE_LEASE_NAMESPACE)} system namespace`);
  }
  const name = attributes.operation === 'CREATE' ? ((attributes.object as Lease).metadata.name ?? '') : attributes.name;
  if (name !== node) throw refusal(attributes, 'can only access node lease with the same name as the requesting node');
}

const NODE_SIGNERS = new Set([NODE_SERVING_SIGNER, NODE_CLIENT_SIGNER]);

/** Throws if a node requests a client or serving certificate of a kubelet with another name than its own. */
function certificateRequest(attributes: AdmissionAttributes): void {
  if (attributes.subresource !== '' || attributes.operation !== 'CREATE') return;
  const signer = (attributes.object as CertificateSigningRequest | undefined)?.spec?.signerName ?? '';
  if (!NODE_SIGNERS.has(signer)) return;
  const name = requestOf(attributes.object)?.subject.commonName;
  if (name === attributes.user.name) return;
  throw refusal(attributes, `can only create a node CSR with CN=${attributes.user.name}`);
}

function slice(attributes: AdmissionAttributes, node: string): void {
  // The node authorizer allows a node to delete a collection only with a selector for its own slices.
  if (attributes.operation === 'DELETE' && attributes.name === '') return;
  const object = (attributes.object ?? attributes.oldObject) as { spec?: { nodeName?: string } } | undefined;
  if (object?.spec?.nodeName !== node)
    throw refusal(attributes, 'can only create ResourceSlice with the same NodeName as the requesting node');
}

const q = (text: string): string => quoteText(text);
