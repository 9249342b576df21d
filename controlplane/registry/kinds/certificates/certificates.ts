/** Defines the strategy of certificate signing requests. */
import { formatTime } from '../../../../api/machinery/clock.ts';
import { certificateRequestColumns } from './columns.ts';
import { restore } from '../../generic-strategy.ts';
import { type StrategyContext, kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import {
  type Condition,
  conditionsOf,
  createErrors,
  type SigningRequest,
  stateOf,
  updateErrors,
} from './certificate-validation.ts';
import { podCertificateRequests } from './pod-certificate-requests.ts';
import { trustBundles } from './trust-bundles.ts';

type Status = NonNullable<SigningRequest['status']>;

function prepareForCreate(object: SigningRequest, context: StrategyContext): void {
  const { user } = context.request;
  const spec = (object.spec ??= {} as NonNullable<SigningRequest['spec']>);
  spec.username = user.name;
  if (user.uid === undefined || user.uid === '') delete spec.uid;
  else spec.uid = user.uid;
  spec.groups = [...user.groups];
  if (user.extra === undefined) delete spec.extra;
  else spec.extra = Object.fromEntries(Object.entries(user.extra).map(([key, values]) => [key, [...values]]));
  object.status = {} as Status;
}

/** Fills in the times that conditions lack. A condition whose status is unchanged keeps the time of its last transition. */
function fillTimes(object: SigningRequest, old: SigningRequest, nowMs: number): void {
  const now = formatTime(nowMs);
  const times = new Map<string, string>();
  for (const condition of conditionsOf(old)) {
    const { lastTransitionTime: time } = condition as { readonly lastTransitionTime?: unknown };
    if (typeof time === 'string' && !times.has(stateOf(condition))) times.set(stateOf(condition), time);
  }
  for (const condition of conditionsOf(object) as (Condition & { lastTransitionTime?: unknown })[]) {
    condition.lastUpdateTime ??= now;
    if (typeof condition.lastTransitionTime === 'string') continue;
    condition.lastTransitionTime = times.get(stateOf(condition)) ?? now;
  }
}

/** Keeps the old decisions if their number is unchanged, because a signer must not change them. */
function keepDecisions(object: SigningRequest, old: SigningRequest): void {
  const conditions = object.status?.conditions ?? [];
  for (const type of ['Approved', 'Denied']) {
    const before = conditionsOf(old).filter((condition) => condition.type === type);
    const places = conditions.flatMap((condition, i) => (condition.type === type ? [i] : []));
    if (before.length !== places.length) continue;
    for (const [n, place] of places.entries()) conditions[place] = { ...before[n] } as Condition;
  }
}

/** The strategy of the subresource `approval`: it changes the decisions and keeps the certificate. */
const approval: UpdateStrategy<SigningRequest> = {
  prepareForUpdate(object, old, { nowMs }) {
    fillTimes(object, old, nowMs);
    restore(object, old, 'spec');
    const status = (object.status ??= {} as Status);
    if (old.status?.certificate === undefined) delete status.certificate;
    else status.certificate = old.status.certificate;
  },
  validateUpdate: (object, old) => updateErrors(object, old, { decisions: true }),
  resetFields: [['spec'], ['status', 'certificate']],
};

/** The strategy of the subresource `status`: it changes the certificate and the other conditions. */
const status: UpdateStrategy<SigningRequest> = {
  prepareForUpdate(object, old, { nowMs }) {
    restore(object, old, 'spec');
    keepDecisions(object, old);
    fillTimes(object, old, nowMs);
  },
  validateUpdate: (object, old) => updateErrors(object, old, { certificate: true }),
  resetFields: [['spec'], ['status', 'conditions']],
};

const request: Strategy<SigningRequest> = {
  // Kubernetes leaves the name to the storage, which refuses one that cannot be part of a key.
  nameRule: () => [],
  status,
  subresources: { approval },
  prepareForCreate,
  validateCreate: createErrors,
  prepareForUpdate(object, old) {
    restore(object, old, 'spec');
    restore(object, old, 'status');
  },
  validateUpdate: (object, old) => updateErrors(object, old),
  resetFields: [['spec'], ['status']],
  selectableFields: { 'spec.signerName': (object) => object.spec?.signerName ?? '' },
  columns: certificateRequestColumns,
};

export const certificateKinds = [
  kindRow('certificates.k8s.io', 'certificatesigningrequests', request),
  kindRow('certificates.k8s.io', 'clustertrustbundles', trustBundles),
  kindRow('certificates.k8s.io', 'podcertificaterequests', podCertificateRequests),
];
