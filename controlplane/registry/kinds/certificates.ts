/** Certificate signing requests: who asks is written by the server; approval and certificate come through endpoints of their own. */
import type { V1CertificateSigningRequestSpec, V1CertificateSigningRequestStatus } from '@kubernetes/client-node';
import type { Kind } from '../../../api/kinds/wire.ts';
import type { StrategyContext } from '../strategy.ts';
import { kindRow, type Strategy } from '../strategy.ts';

type Request = Kind<{ spec: V1CertificateSigningRequestSpec; status: V1CertificateSigningRequestStatus }>;

function prepareForCreate(object: Request, context: StrategyContext): void {
  const { user } = context.request;
  const spec = (object.spec ??= {} as NonNullable<Request['spec']>);
  spec.username = user.name;
  if (user.uid === undefined || user.uid === '') delete spec.uid;
  else spec.uid = user.uid;
  spec.groups = [...user.groups];
  if (user.extra === undefined) delete spec.extra;
  else spec.extra = Object.fromEntries(Object.entries(user.extra).map(([key, values]) => [key, [...values]]));
  object.status = {} as NonNullable<Request['status']>;
}

const request: Strategy<Request> = {
  prepareForCreate,
  prepareForUpdate(object, old) {
    object.spec = structuredClone(old.spec) as NonNullable<Request['spec']>;
    object.status = structuredClone(old.status) as NonNullable<Request['status']>;
  },
  selectableFields: { 'spec.signerName': (object) => object.spec?.signerName ?? '' },
};

export const certificateKinds = [kindRow('certificates.k8s.io', 'certificatesigningrequests', request)];
