/**
 * Restricts who may approve and sign certificate requests, and which subjects a client certificate may have:
 * CertificateApproval, CertificateSigning, CertificateSubjectRestriction, and ClusterTrustBundleAttest for trust bundles of a
 * signer.
 */
import { quoteText } from '../../../api/meta/quote.ts';
import type { CertificateSigningRequest } from '../../../api/kinds/kinds.ts';
import { forbidden } from '../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { newInvalid } from '../../../api/meta/status-error.ts';
import { parseCsr, type CertificateRequest } from '../../../api/pki/certificate-request.ts';
import type { UserInfo } from '../../model/user-info.ts';
import type { Authorizer } from '../authorization/authorization.ts';
import { refusal } from './pod-attributes.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import { MASTERS_GROUP } from '../../../api/meta/system-users.ts';
import { CLIENT_SIGNER } from '../../../api/pki/signer-names.ts';

const GROUP = 'certificates.k8s.io';

const isRequest = (attributes: AdmissionAttributes, subresource: string): boolean =>
  attributes.resource.group === GROUP &&
  attributes.resource.resource === 'certificatesigningrequests' &&
  attributes.subresource === subresource;

const isPodRequest = (attributes: AdmissionAttributes, subresource: string): boolean =>
  attributes.resource.group === GROUP &&
  attributes.resource.resource === 'podcertificaterequests' &&
  attributes.subresource === subresource;

/** Whether the user has the permission for the signer by its name, or for every signer of its domain. */
async function mayUseSigner(
  authorizer: Authorizer,
  user: UserInfo,
  verb: string,
  signerName: string,
): Promise<boolean> {
  const domain = signerName.split('/')[0] ?? '';
  for (const name of [signerName, `${domain}/*`]) {
    const decision = await authorizer.authorize({
      user,
      verb,
      isResourceRequest: true,
      group: GROUP,
      version: '*',
      resource: 'signers',
      subresource: '',
      namespace: '',
      name,
      path: '',
    });
    if (decision.decision === 'allow') return true;
  }
  return false;
}

/** Requires the verb `approve` on the signer for each update of the subresource `approval`. */
export function certificateApproval(authorizer: Authorizer): AdmissionPlugin {
  return {
    name: 'CertificateApproval',
    handles: (operation) => operation === 'UPDATE',
    async validate(attributes) {
      if (!isRequest(attributes, 'approval')) return;
      const old = attributes.oldObject as CertificateSigningRequest;
      const name = old.spec?.signerName ?? '';
      if (await mayUseSigner(authorizer, attributes.user, 'approve', name)) return;
      throw refusal(attributes, `user not permitted to approve requests with signerName ${quoteText(name)}`);
    },
  };
}

/**
 * Throws a 422 if a user who writes the certificate chain of a pod's request may not sign for its signer. kube-apiserver checks
 * this in the strategy of the resource.
 */
async function checkMayIssue(authorizer: Authorizer, { oldObject, object, user }: AdmissionAttributes): Promise<void> {
  const chainOf = (one: KubeObject | undefined): string =>
    (one?.['status'] as { certificateChain?: string } | undefined)?.certificateChain ?? '';
  if (chainOf(oldObject) === chainOf(object)) return;
  const name = (oldObject?.['spec'] as { signerName?: string } | undefined)?.signerName ?? '';
  if (await mayUseSigner(authorizer, user, 'sign', name)) return;
  const why = `User ${quoteText(user.name)} is not permitted to "sign" for signer ${quoteText(name)}`;
  throw newInvalid({ group: GROUP, resource: 'PodCertificateRequest' }, object?.metadata.name ?? '', [
    forbidden('spec.signerName', why),
  ]);
}

/**
 * Requires the verb `sign` on the signer for updates of the status that change the certificate or the conditions of a
 * CertificateSigningRequest, or the certificate chain of a PodCertificateRequest.
 */
export function certificateSigning(authorizer: Authorizer): AdmissionPlugin {
  return {
    name: 'CertificateSigning',
    handles: (operation) => operation === 'UPDATE',
    async validate(attributes) {
      if (isPodRequest(attributes, 'status')) return checkMayIssue(authorizer, attributes);
      if (!isRequest(attributes, 'status')) return;
      const old = attributes.oldObject as CertificateSigningRequest;
      const now = attributes.object as CertificateSigningRequest;
      const isUnchanged =
        (old.status?.certificate ?? '') === (now.status?.certificate ?? '') &&
        jsonEqual(old.status?.conditions ?? [], now.status?.conditions ?? []);
      if (isUnchanged) return;
      const name = old.spec?.signerName ?? '';
      if (await mayUseSigner(authorizer, attributes.user, 'sign', name)) return;
      throw refusal(attributes, `user not permitted to sign requests with signerName ${quoteText(name)}`);
    },
  };
}

/**
 * Returns the parsed request of a CertificateSigningRequest, and `undefined` if it cannot be parsed, which validation reports.
 */
export function requestOf(object: KubeObject | undefined): CertificateRequest | undefined {
  const text = (object as CertificateSigningRequest | undefined)?.spec?.request ?? '';
  try {
    return parseCsr(Buffer.from(text, 'base64').toString('latin1'));
  } catch (error) {
    if (error instanceof Error) return undefined;
    throw error;
  }
}

/** Refuses requests for client certificates of `kubernetes.io/kube-apiserver-client` with the group `system:masters`. */
export function certificateSubjectRestriction(): AdmissionPlugin {
  return {
    name: 'CertificateSubjectRestriction',
    handles: (operation) => operation === 'CREATE',
    validate(attributes) {
      if (!isRequest(attributes, '')) return;
      const request = attributes.object as CertificateSigningRequest;
      if (request.spec?.signerName !== CLIENT_SIGNER) return;
      if (requestOf(request)?.subject.organizations.includes(MASTERS_GROUP) !== true) return;
      throw refusal(
        attributes,
        'use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed',
      );
    },
  };
}

/** Requires the verb `attest` on the signer that a ClusterTrustBundle names; bundles without a signer pass. */
export function clusterTrustBundleAttest(authorizer: Authorizer): AdmissionPlugin {
  return {
    name: 'ClusterTrustBundleAttest',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    async validate(attributes) {
      const { group, resource } = attributes.resource;
      if (group !== GROUP || resource !== 'clustertrustbundles' || attributes.subresource !== '') return;
      const name = (attributes.object as { spec?: { signerName?: string } } | undefined)?.spec?.signerName ?? '';
      if (name === '' || (await mayUseSigner(authorizer, attributes.user, 'attest', name))) return;
      throw refusal(attributes, `user not permitted to attest for signerName ${quoteText(name)}`);
    },
  };
}
