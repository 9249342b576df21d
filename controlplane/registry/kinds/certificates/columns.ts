/** Defines the table columns of the certificates group. */
import type {
  V1beta1ClusterTrustBundleSpec,
  V1beta1PodCertificateRequestSpec,
  V1beta1PodCertificateRequestStatus,
  V1CertificateSigningRequestSpec,
  V1CertificateSigningRequestStatus,
} from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, formatLabels, nameColumn, nameOf, orNone } from '../../columns/column.ts';
import { humanDuration } from '../../columns/human-duration.ts';

type Request = Kind<{ spec: V1CertificateSigningRequestSpec; status: V1CertificateSigningRequestStatus }>;

/** The type by whose fields kube-apiserver describes the columns, except for the requested duration. */
const SPEC = 'certificates.v1beta1.CertificateSigningRequestSpec';

export const certificateRequestColumns: TableColumns = {
  columns: [
    nameColumn,
    ageColumn,
    column('SignerName', field(SPEC, 'signerName')),
    column('Requestor', field(SPEC, 'request')),
    column('RequestedDuration', field('certificates.v1.CertificateSigningRequestSpec', 'expirationSeconds')),
    column('Condition', field('certificates.v1beta1.CertificateSigningRequestStatus', 'conditions')),
  ],
  cells(object) {
    const { spec, status } = object as Request;
    const seconds = spec?.expirationSeconds;
    return [
      nameOf(object),
      age(object),
      orNone(spec?.signerName),
      spec?.username ?? '',
      seconds === undefined || seconds === null ? '<none>' : humanDuration(seconds * 1000),
      stateOf(status),
    ];
  },
};

type Bundle = Kind<{ spec: V1beta1ClusterTrustBundleSpec }>;

export const trustBundleColumns: TableColumns = {
  columns: [nameColumn, column('SignerName', field('certificates.v1beta1.ClusterTrustBundleSpec', 'signerName'))],
  cells: (object) => [nameOf(object), orNone((object as Bundle).spec?.signerName)],
};

type PodRequest = Kind<{ spec: V1beta1PodCertificateRequestSpec; status: V1beta1PodCertificateRequestStatus }>;

const POD_SPEC = 'certificates.v1beta1.PodCertificateRequestSpec';
const ENDS: ReadonlySet<string> = new Set(['Issued', 'Denied', 'Failed']);

export const podCertificateRequestColumns: TableColumns = {
  columns: [
    nameColumn,
    column('PodName', field(POD_SPEC, 'podName')),
    column('ServiceAccountName', field(POD_SPEC, 'serviceAccountName')),
    column('NodeName', field(POD_SPEC, 'nodeName')),
    column('SignerName', field(POD_SPEC, 'signerName')),
    column('State', 'Is the request Pending, Issued, Denied, or Failed?'),
    column('UnverifiedUserAnnotations', field(POD_SPEC, 'unverifiedUserAnnotations')),
  ],
  cells(object) {
    const { spec, status } = object as PodRequest;
    const end = (status?.conditions ?? []).findLast(({ type = '' }) => ENDS.has(type));
    return [
      nameOf(object),
      spec?.podName ?? '',
      spec?.serviceAccountName ?? '',
      spec?.nodeName ?? '',
      spec?.signerName ?? '',
      end?.type ?? 'Pending',
      formatLabels(spec?.unverifiedUserAnnotations as Record<string, string> | undefined),
    ];
  },
};

/** Returns the decision and the result, for example `Approved,Issued`. */
function stateOf(status: Request['status']): string {
  const has = (type: string): boolean => (status?.conditions ?? []).some((condition) => condition.type === type);
  const decision = has('Denied') ? 'Denied' : has('Approved') ? 'Approved' : 'Pending';
  const failed = has('Failed') ? ',Failed' : '';
  return `${decision}${failed}${(status?.certificate ?? '') === '' ? '' : ',Issued'}`;
}
