/** Certificate signing requests: who asks is written by the server; approval and certificate come through endpoints of their own. */
import type { V1CertificateSigningRequestSpec, V1CertificateSigningRequestStatus } from '@kubernetes/client-node';
import type { Kind } from '../../../api/kinds/wire.ts';
import type { StrategyContext } from '../strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../strategy.ts';

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

type Condition = NonNullable<NonNullable<Request['status']>['conditions']>[number];

const isDecision = (condition: Condition): boolean => condition.type === 'Approved' || condition.type === 'Denied';

/** Everything as it was but what the endpoint is for. */
function keepRest(object: Request, old: Request, status: NonNullable<Request['status']>): void {
  object.spec = structuredClone(old.spec) as NonNullable<Request['spec']>;
  object.status = status;
}

const conditionsOf = (request: Request): readonly Condition[] => request.status?.conditions ?? [];

/** Decisions come through here alone; the certificate and other conditions stay. */
const approval: UpdateStrategy<Request> = {
  prepareForUpdate(object, old) {
    const conditions = [
      ...conditionsOf(old).filter((one) => !isDecision(one)),
      ...conditionsOf(object).filter(isDecision),
    ];
    keepRest(object, old, {
      ...structuredClone(old.status),
      ...(conditions.length === 0 ? {} : { conditions }),
    } as NonNullable<Request['status']>);
  },
  resetFields: [['spec'], ['status', 'certificate']],
};

/** The certificate and conditions about signing; decisions stay. */
const status: UpdateStrategy<Request> = {
  prepareForUpdate(object, old) {
    const conditions = [
      ...conditionsOf(old).filter(isDecision),
      ...conditionsOf(object).filter((one) => !isDecision(one)),
    ];
    keepRest(object, old, { ...object.status, ...(conditions.length === 0 ? {} : { conditions }) } as NonNullable<
      Request['status']
    >);
  },
  resetFields: [['spec']],
};

const request: Strategy<Request> = {
  status,
  subresources: { approval },
  prepareForCreate,
  prepareForUpdate(object, old) {
    object.spec = structuredClone(old.spec) as NonNullable<Request['spec']>;
    object.status = structuredClone(old.status) as NonNullable<Request['status']>;
  },
  selectableFields: { 'spec.signerName': (object) => object.spec?.signerName ?? '' },
};

export const certificateKinds = [kindRow('certificates.k8s.io', 'certificatesigningrequests', request)];
