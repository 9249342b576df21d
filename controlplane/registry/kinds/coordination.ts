/**
 * Leases: who holds something, and since when. A small kind that shows the pattern: a type of the wire, rules that return
 * field errors, one row.
 */
import type { V1LeaseSpec } from '@kubernetes/client-node';
import type { Kind } from '../../../api/kinds/wire.ts';
import type { FieldError } from '../../../api/meta/field-error.ts';
import { kindRow, type Strategy } from '../strategy.ts';
import { leaseColumns } from '../columns/coordination.ts';
import { forbidden, invalid, invalidFor, notSupported, positive, requiredText } from './field-rules.ts';
import { qualifiedNameErrors } from '../../../api/meta/names.ts';

export type Lease = Kind<{ spec: V1LeaseSpec }>;

const STRATEGIES = ['OldestEmulationVersion'];

function specErrors(spec: Lease['spec']): FieldError[] {
  const errors: FieldError[] = [];
  errors.push(...positive('spec.leaseDurationSeconds', spec?.leaseDurationSeconds));
  const transitions = spec?.leaseTransitions;
  if (transitions !== undefined && transitions < 0) {
    errors.push(invalid('spec.leaseTransitions', transitions, 'must be greater than or equal to 0'));
  }
  const strategy = spec?.strategy;
  if (strategy !== undefined) {
    if (strategy === '') errors.push(...requiredText('spec.strategy', strategy));
    else if (strategy.includes('/'))
      errors.push(...invalidFor('spec.strategy', strategy, qualifiedNameErrors(strategy)));
    else if (!STRATEGIES.includes(strategy)) errors.push(notSupported('spec.strategy', strategy, STRATEGIES));
  }
  if ((spec?.preferredHolder ?? '') !== '' && (strategy ?? '') === '') {
    errors.push(forbidden('spec.preferredHolder', 'may only be specified if `strategy` is defined'));
  }
  return errors;
}

/** Coordinated leader election is not switched on: what belongs to it is dropped unless the object has it already. */
function dropElection(object: Lease, old?: Lease): void {
  const { spec } = object;
  if (spec === undefined) return;
  const used = old?.spec?.strategy !== undefined || old?.spec?.preferredHolder !== undefined;
  if (used) return;
  delete spec.strategy;
  delete spec.preferredHolder;
}

const lease: Strategy<Lease> = {
  allowCreateOnUpdate: true,
  requiresResourceVersion: true,
  prepareForCreate: (object) => dropElection(object),
  prepareForUpdate: dropElection,
  validateCreate: (object) => specErrors(object.spec),
  validateUpdate: (object) => specErrors(object.spec),
  columns: leaseColumns,
};

export const coordinationKinds = [kindRow('coordination.k8s.io', 'leases', lease)];
