/** Defines the table columns of certificate signing requests. */
import type { V1CertificateSigningRequestSpec, V1CertificateSigningRequestStatus } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf, orNone } from '../../columns/column.ts';
import { humanDuration } from '../../columns/human-duration.ts';

type Request = Kind<{ spec: V1CertificateSigningRequestSpec; status: V1CertificateSigningRequestStatus }>;

/** kube-apiserver describes the other columns by the fields of the version v1beta1. */
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

/** Returns the decision and the result, for example `Approved,Issued`. */
function stateOf(status: Request['status']): string {
  const has = (type: string): boolean => (status?.conditions ?? []).some((condition) => condition.type === type);
  const decision = has('Denied') ? 'Denied' : has('Approved') ? 'Approved' : 'Pending';
  const failed = has('Failed') ? ',Failed' : '';
  return `${decision}${failed}${(status?.certificate ?? '') === '' ? '' : ',Issued'}`;
}
