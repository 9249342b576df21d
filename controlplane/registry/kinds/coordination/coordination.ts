/** Defines the strategies of leases and lease candidates. */
import type { V1LeaseSpec, V1beta1LeaseCandidateSpec } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { type FieldError, forbidden, invalid, notSupported } from '../../../../api/meta/field-error.ts';
import { kindRow, type Strategy } from '../../strategy.ts';
import { leaseCandidateColumns, leaseColumns } from './columns.ts';
import { immutable, positive, requiredText } from '../field-rules.ts';
import { configKeyErrors, qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { compareVersions, parseVersion, type SemanticVersion } from './semantic-version.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type Lease = Kind<{ spec: V1LeaseSpec }>;

const STRATEGIES = ['OldestEmulationVersion'];

function specErrors(spec: Lease['spec']): FieldError[] {
  const errors: FieldError[] = [];
  errors.push(...positive('spec.leaseDurationSeconds', spec?.leaseDurationSeconds));
  const transitions = spec?.leaseTransitions;
  if (transitions !== undefined && transitions < 0) {
    errors.push(invalid('spec.leaseTransitions', transitions, 'must be greater than or equal to 0'));
  }
  const strategy = spec?.strategy;
  if (strategy !== undefined) errors.push(...strategyErrors(strategy));
  if ((spec?.preferredHolder ?? '') !== '' && (strategy ?? '') === '') {
    errors.push(forbidden('spec.preferredHolder', 'may only be specified if `strategy` is defined'));
  }
  return errors;
}

/** Validates the strategy of an election: a built-in one, or a custom one with a domain prefix. */
function strategyErrors(strategy: string): FieldError[] {
  if (strategy === '') return requiredText('spec.strategy', strategy);
  // kube-apiserver names the field twice.
  const field = 'spec.strategy.strategy';
  if (strategy.includes('/')) return invalidFor(field, strategy, qualifiedNameErrors(strategy));
  return STRATEGIES.includes(strategy) ? [] : [notSupported(field, strategy, STRATEGIES)];
}

/** Drops the fields of coordinated leader election, whose feature gate is off. An object that already has them keeps them. */
function dropElection(object: Lease, old?: Lease): void {
  const { spec } = object;
  if (spec === undefined) return;
  const used = old?.spec?.strategy !== undefined || old?.spec?.preferredHolder !== undefined;
  if (used) return;
  delete spec.strategy;
  delete spec.preferredHolder;
}

const lease: Strategy<Lease> = {
  metadataChecks: ['plainUpdate'],
  allowCreateOnUpdate: true,
  requiresResourceVersion: true,
  prepareForCreate: (object) => dropElection(object),
  prepareForUpdate: dropElection,
  validateCreate: (object) => specErrors(object.spec),
  validateUpdate: (object) => specErrors(object.spec),
  columns: leaseColumns,
};

type LeaseCandidate = Kind<{ spec: V1beta1LeaseCandidateSpec }>;

const NO_VERSION = 'must be a valid semantic version';

/** Stands for a version that is absent or malformed. */
const ZERO_VERSION: SemanticVersion = { numbers: [0, 0, 0], preRelease: [] };

function candidateErrors({ spec }: LeaseCandidate): FieldError[] {
  const { leaseName = '', binaryVersion = '', emulationVersion = '', strategy = '' } = spec ?? {};
  const errors = requiredText('spec.leaseName', leaseName);
  const emulated = parseVersion(emulationVersion);
  const binary = parseVersion(binaryVersion);
  if (emulationVersion !== '' && emulated === undefined)
    errors.push(invalid('spec.emulationVersion', emulationVersion, NO_VERSION));
  if (binaryVersion === '') errors.push(...requiredText('spec.binaryVersion', binaryVersion));
  else if (binary === undefined) errors.push(invalid('spec.binaryVersion', binaryVersion, NO_VERSION));
  const [lower, upper] = [emulated ?? ZERO_VERSION, binary ?? ZERO_VERSION];
  if (emulationVersion !== '' && binaryVersion !== '' && compareVersions(upper, lower) < 0) {
    const text = 'must be greater than or equal to `emulationVersion`';
    errors.push(invalid('spec.binaryVersion', binaryVersion, text));
  }
  if (strategy === 'OldestEmulationVersion' && compareVersions(lower, ZERO_VERSION) === 0) {
    const text = "must be specified when `strategy` is 'OldestEmulationVersion'";
    errors.push(...requiredText('spec.emulationVersion', '', text));
  }
  return [...errors, ...strategyErrors(strategy)];
}

const leaseCandidate: Strategy<LeaseCandidate> = {
  nameRule: (name) => configKeyErrors(name),
  allowCreateOnUpdate: true,
  requiresResourceVersion: true,
  validateCreate: candidateErrors,
  validateUpdate: (object, old) => [
    ...candidateErrors(object),
    ...immutable('spec.leaseName', object.spec?.leaseName, old.spec?.leaseName),
  ],
  columns: leaseCandidateColumns,
};

export const coordinationKinds = [
  kindRow('coordination.k8s.io', 'leases', lease),
  kindRow('coordination.k8s.io', 'leasecandidates', leaseCandidate),
];
