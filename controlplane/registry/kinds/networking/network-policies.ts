/** Defines the strategy of network policies, which the agents or a network plugin enforce. */
import type { V1LabelSelector } from '@kubernetes/client-node';
import { forbidden, invalid, required, unsupportedValue, type FieldError } from '../../../../api/meta/field-error.ts';
import { cidrContains, cidrErrors, parseCidr } from '../../../../api/meta/ip-addresses.ts';
import { portNameErrors, portNumberErrors } from '../../../../api/meta/names.ts';
import { validateLabelSelector } from '../../../../api/meta/selector.ts';
import { networkPolicyColumns } from './columns.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import type { Strategy } from '../../strategy.ts';
import { cidrWarnings } from '../../../../api/kinds/address-warnings.ts';

import type { NetworkPolicy } from './networking-types.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type Spec = NonNullable<NetworkPolicy['spec']>;
type IngressRule = NonNullable<Spec['ingress']>[number];
type Port = NonNullable<IngressRule['ports']>[number];
type Peer = NonNullable<IngressRule['from']>[number];

const PROTOCOLS = ['TCP', 'UDP', 'SCTP'];
const TYPES = ['Ingress', 'Egress'];

function applyDefaults(object: NetworkPolicy): void {
  const spec: Spec = (object.spec ??= {});
  for (const rule of [...(spec.ingress ?? []), ...(spec.egress ?? [])])
    for (const port of rule.ports ?? []) port.protocol ??= 'TCP';
  if ((spec.policyTypes ?? []).length > 0) return;
  spec.policyTypes = (spec.egress ?? []).length > 0 ? ['Ingress', 'Egress'] : ['Ingress'];
}

/** Returns all CIDRs of a policy. Those of the stored one stay valid even if they are not in canonical form. */
function cidrsOf(spec: Spec): Set<string> {
  const peers = [
    ...(spec.ingress ?? []).flatMap((rule) => rule.from ?? []),
    ...(spec.egress ?? []).flatMap((rule) => rule.to ?? []),
  ];
  return new Set(
    peers.flatMap(({ ipBlock }) => (ipBlock === undefined ? [] : [ipBlock.cidr ?? '', ...(ipBlock.except ?? [])])),
  );
}

function policyErrors(object: NetworkPolicy, old?: NetworkPolicy): FieldError[] {
  const spec: Spec = object.spec ?? {};
  const stored = old === undefined ? new Set<string>() : cidrsOf(old.spec ?? {});
  const errors = validateLabelSelector((spec.podSelector ?? {}) as V1LabelSelector, 'spec.podSelector');
  for (const [index, rule] of (spec.ingress ?? []).entries())
    errors.push(
      ...ruleErrors(rule.ports ?? [], rule.from ?? [], { at: `spec.ingress[${index}]`, peers: 'from', stored }),
    );
  for (const [index, rule] of (spec.egress ?? []).entries())
    errors.push(...ruleErrors(rule.ports ?? [], rule.to ?? [], { at: `spec.egress[${index}]`, peers: 'to', stored }));
  const types = spec.policyTypes ?? [];
  if (types.length > TYPES.length) {
    errors.push(invalid('spec.policyTypes', types, 'may not specify more than two policyTypes'));
    return errors;
  }
  for (const [index, type] of types.entries())
    if (!TYPES.includes(type)) errors.push(unsupportedValue(`spec.policyTypes[${index}]`, type, TYPES));
  return errors;
}

interface RulePlace {
  readonly at: string;
  readonly peers: 'from' | 'to';
  readonly stored: ReadonlySet<string>;
}

function ruleErrors(ports: readonly Port[], peers: readonly Peer[], place: RulePlace): FieldError[] {
  return [
    ...ports.flatMap((port, index) => portErrors(port, `${place.at}.ports[${index}]`)),
    ...peers.flatMap((peer, index) => peerErrors(peer, `${place.at}.${place.peers}[${index}]`, place.stored)),
  ];
}

function portErrors({ protocol, port, endPort }: Port, at: string): FieldError[] {
  const errors: FieldError[] = [];
  if (protocol !== undefined && !PROTOCOLS.includes(protocol))
    errors.push(unsupportedValue(`${at}.protocol`, protocol, PROTOCOLS));
  if (port === undefined) {
    if (endPort !== undefined)
      errors.push(invalid(`${at}.endPort`, endPort, 'may not be specified when `port` is not specified'));
  } else if (typeof port === 'number') {
    errors.push(...invalidFor(`${at}.port`, port, portNumberErrors(port)));
    if (endPort !== undefined) {
      if (endPort < port) errors.push(invalid(`${at}.endPort`, port, 'must be greater than or equal to `port`'));
      errors.push(...invalidFor(`${at}.endPort`, endPort, portNumberErrors(endPort)));
    }
  } else {
    if (endPort !== undefined)
      errors.push(invalid(`${at}.endPort`, endPort, 'may not be specified when `port` is non-numeric'));
    errors.push(...invalidFor(`${at}.port`, port, portNameErrors(port)));
  }
  return errors;
}

function peerErrors(
  { podSelector, namespaceSelector, ipBlock }: Peer,
  at: string,
  stored: ReadonlySet<string>,
): FieldError[] {
  const errors: FieldError[] = [];
  if (podSelector !== undefined)
    errors.push(...validateLabelSelector(podSelector as V1LabelSelector, `${at}.podSelector`));
  if (namespaceSelector !== undefined)
    errors.push(...validateLabelSelector(namespaceSelector as V1LabelSelector, `${at}.namespaceSelector`));
  if (ipBlock !== undefined) errors.push(...blockErrors(ipBlock, `${at}.ipBlock`, stored));
  const selects = podSelector !== undefined || namespaceSelector !== undefined;
  if (ipBlock === undefined) {
    if (!selects) errors.push(required(at, 'must specify a peer'));
  } else if (selects) errors.push(forbidden(at, 'may not specify both ipBlock and another peer'));
  return errors;
}

function blockErrors(block: NonNullable<Peer['ipBlock']>, at: string, stored: ReadonlySet<string>): FieldError[] {
  const { cidr: text = '', except = [] } = block;
  if (text === '') return [required(`${at}.cidr`)];
  const errors = stored.has(text) ? [] : cidrErrors(`${at}.cidr`, text);
  const cidr = parseCidr(text);
  if (cidr === undefined) return errors;
  for (const [index, hole] of except.entries()) {
    const field = `${at}.except[${index}]`;
    if (!stored.has(hole)) errors.push(...cidrErrors(field, hole));
    const inner = parseCidr(hole);
    if (inner === undefined) continue;
    if (!cidrContains(cidr, inner.address) || cidr.prefixLength >= inner.prefixLength)
      errors.push(invalid(field, hole, 'must be a strict subset of `cidr`'));
  }
  return errors;
}

function policyWarnings(object: NetworkPolicy): string[] {
  const spec: Spec = object.spec ?? {};
  const of = (peers: readonly Peer[], at: string): string[] =>
    peers.flatMap(({ ipBlock }, index) => {
      if (ipBlock === undefined) return [];
      const block = `${at}[${index}].ipBlock`;
      return [
        ...cidrWarnings(`${block}.cidr`, ipBlock.cidr ?? ''),
        ...(ipBlock.except ?? []).flatMap((hole, number) => cidrWarnings(`${block}.except[${number}]`, hole)),
      ];
    });
  return [
    ...(spec.ingress ?? []).flatMap((rule, index) => of(rule.from ?? [], `spec.ingress[${index}].from`)),
    ...(spec.egress ?? []).flatMap((rule, index) => of(rule.to ?? [], `spec.egress[${index}].to`)),
  ];
}

export const networkPolicyStrategy: Strategy<NetworkPolicy> = {
  metadataChecks: ['update'],
  managesGeneration: true,
  // kube-apiserver compares this kind strictly, so that an empty list differs from an absent one.
  changesGeneration: (object, old) => !jsonEqual(object.spec, old.spec),
  applyDefaults,
  validateCreate: (object) => policyErrors(object),
  validateUpdate: policyErrors,
  warningsOnCreate: policyWarnings,
  warningsOnUpdate: policyWarnings,
  columns: networkPolicyColumns,
};
