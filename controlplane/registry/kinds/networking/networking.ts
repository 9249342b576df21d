/** Defines the strategies of ingresses, ingress classes, network policies, IPAddress and ServiceCIDR. */
import { quoteText } from '../../../../api/meta/quote.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../../../../api/meta/field-error.ts';
import { canonicalIp, cidrErrors, formatCidr, ipErrors, parseCidr } from '../../../../api/meta/ip-addresses.ts';
import {
  dnsLabelErrors,
  dnsSubdomainErrors,
  domainPrefixedPathErrors,
  pathSegmentErrors,
} from '../../../../api/meta/names.ts';
import { ingressClassColumns, ingressColumns, ipAddressColumns, serviceCidrColumns } from './columns.ts';
import { restore, specAndStatus, specChanged, statusWithoutMetadata } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import { ipWarnings } from '../../../../api/kinds/address-warnings.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { immutable, IMMUTABLE, maxBytes } from '../field-rules.ts';
import { ingressErrors, ingressStatusErrors, referenceErrors } from './ingress-validation.ts';
import { networkPolicyStrategy } from './network-policies.ts';
import type { Ingress, IngressClass, IpAddress, ServiceCidr } from './networking-types.ts';
import { INGRESS_CLASS_ANNOTATION } from '../../../../api/meta/well-known-labels.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

const GROUP = 'networking.k8s.io';

function classErrors(object: Ingress): FieldError[] {
  const annotated = object.metadata.annotations?.[INGRESS_CLASS_ANNOTATION];
  const className = object.spec?.ingressClassName;
  if (annotated === undefined || className === undefined || annotated === className) return [];
  const text = 'must match `ingressClassName` when both are specified';
  return [invalid(`annotations.${INGRESS_CLASS_ANNOTATION}`, annotated, text)];
}

const ingresses: Strategy<Ingress> = {
  ...specAndStatus,
  validateCreate: (object) => [...ingressErrors(object), ...classErrors(object)],
  validateUpdate: ingressErrors,
  warningsOnCreate: (object) =>
    object.metadata.annotations?.[INGRESS_CLASS_ANNOTATION] === undefined || object.spec?.ingressClassName !== undefined
      ? []
      : [`annotation "${INGRESS_CLASS_ANNOTATION}" is deprecated, please use 'spec.ingressClassName' instead`],
  columns: ingressColumns,
  status: {
    prepareForUpdate: (object, old) => restore(object, old, 'spec'),
    validateUpdate: ingressStatusErrors,
    warningsOnUpdate: (object) =>
      (object.status?.loadBalancer?.ingress ?? []).flatMap(({ ip = '' }, index) =>
        ip === '' ? [] : ipWarnings(`status.loadBalancer.ingress[${index}].ip`, ip),
      ),
    resetFields: [['spec']],
  },
};

/** The maximum number of bytes of the controller of an IngressClass. */
const MAX_CONTROLLER_BYTES = 250;
const SCOPES = ['Cluster', 'Namespace'];

type Parameters = NonNullable<NonNullable<IngressClass['spec']>['parameters']>;

function ingressClassErrors(object: IngressClass): FieldError[] {
  const { controller = '', parameters } = object.spec ?? {};
  return [
    ...maxBytes('spec.controller', controller, MAX_CONTROLLER_BYTES),
    ...domainPrefixedPathErrors('spec.controller', controller),
    ...(parameters === undefined ? [] : parametersErrors(parameters)),
  ];
}

function parametersErrors(parameters: Parameters): FieldError[] {
  const at = 'spec.parameters';
  const { scope, namespace } = parameters;
  const errors = referenceErrors(parameters, at);
  if (scope === undefined) errors.push(required(`${at}.scope`));
  else if (!SCOPES.includes(scope)) errors.push(notSupported(`${at}.scope`, scope, SCOPES));
  else if (scope === 'Cluster') {
    if (namespace !== undefined) errors.push(forbidden(`${at}.namespace`, "`parameters.scope` is set to 'Cluster'"));
  } else if (namespace === undefined)
    errors.push(required(`${at}.namespace`, "`parameters.scope` is set to 'Namespace'"));
  else errors.push(...invalidFor(`${at}.namespace`, namespace, dnsLabelErrors(namespace)));
  return errors;
}

const ingressClasses: Strategy<IngressClass> = {
  managesGeneration: true,
  changesGeneration: specChanged,
  applyDefaults(object) {
    if (object.spec?.parameters !== undefined) object.spec.parameters.scope ??= 'Cluster';
  },
  validateCreate: ingressClassErrors,
  validateUpdate: (object, old) => [
    ...immutable('spec.controller', object.spec?.controller ?? '', old.spec?.controller),
    ...ingressClassErrors(object),
  ],
  columns: ingressClassColumns,
};

function parentErrors({ spec }: IpAddress): FieldError[] {
  const reference = spec?.parentRef;
  if (reference === undefined) return [required('spec.parentRef')];
  const { group = '', resource = '', namespace = '', name = '' } = reference;
  const at = 'spec.parentRef';
  const segment = (field: string, text: string): FieldError[] => invalidFor(field, text, pathSegmentErrors(text));
  return [
    ...(group === '' ? [] : invalidFor(`${at}.group`, group, dnsSubdomainErrors(group))),
    ...(resource === '' ? [required(`${at}.resource`)] : segment(`${at}.resource`, resource)),
    ...(name === '' ? [required(`${at}.name`)] : segment(`${at}.name`, name)),
    ...(namespace === '' ? [] : segment(`${at}.namespace`, namespace)),
  ];
}

const ipAddresses: Strategy<IpAddress> = {
  generateName: 'name',
  metadataChecks: ['whole', 'update'],
  nameRule: (name) => {
    const errors = ipErrors('', name);
    const texts = errors.map(({ detail }) => detail);
    return texts.length > 0 ? texts : canonicalFormErrors(name);
  },
  validateCreate: parentErrors,
  validateUpdate: (object, old) => [
    ...parentErrors(object),
    ...immutable(
      'spec.parentRef',
      object.spec?.parentRef,
      old.spec?.parentRef,
      'io.k8s.api.networking.v1.ParentReference',
    ),
  ],
  columns: ipAddressColumns,
};

function canonicalFormErrors(text: string): string[] {
  const canonical = canonicalIp(text);
  return canonical === undefined || canonical === text ? [] : [`must be in canonical form (${quoteText(canonical)})`];
}

const CIDRS = 'spec.cidrs';

function canonicalRangeErrors(field: string, text: string): FieldError[] {
  const errors = cidrErrors(field, text);
  const cidr = parseCidr(text);
  if (errors.length > 0 || cidr === undefined) return errors;
  const canonical = formatCidr(cidr);
  return canonical === text ? [] : [invalid(field, text, `must be in canonical form (${quoteText(canonical)})`)];
}

function rangeErrors({ spec }: ServiceCidr): FieldError[] {
  const cidrs = spec?.cidrs ?? [];
  if (cidrs.length === 0) return [required(CIDRS, 'at least one CIDR required')];
  if (cidrs.length > 2)
    return [
      invalid(CIDRS, internalForm('io.k8s.api.networking.v1.ServiceCIDRSpec', spec), 'may only hold up to 2 values'),
    ];
  const errors = cidrs.flatMap((cidr, index) => canonicalRangeErrors(`${CIDRS}[${index}]`, cidr));
  const [first, second] = cidrs.map((cidr) => parseCidr(cidr)?.family);
  if (cidrs.length === 2 && first !== undefined && first === second) {
    const text = 'may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64';
    errors.push(invalid(CIDRS, cidrs, text));
  }
  return errors;
}

function rangeUpdateErrors(object: ServiceCidr, old: ServiceCidr): FieldError[] {
  const cidrs = object.spec?.cidrs ?? [];
  const before = old.spec?.cidrs ?? [];
  if (before.length === cidrs.length) {
    return cidrs.flatMap((cidr, index) =>
      cidr === before[index] ? [] : [invalid(`${CIDRS}[${index}]`, cidr, IMMUTABLE)],
    );
  }
  // A CIDR of the second family may be added.
  if (before.length !== 1 || cidrs.length !== 2) return [invalid(CIDRS, object.spec?.cidrs, IMMUTABLE)];
  const errors = cidrs[0] === before[0] ? [] : [invalid(`${CIDRS}[0]`, cidrs[0], IMMUTABLE)];
  return [...errors, ...rangeErrors(object)];
}

const serviceCidrs: Strategy<ServiceCidr> = {
  metadataChecks: ['update'],
  prepareForCreate: specAndStatus.prepareForCreate,
  prepareForUpdate: specAndStatus.prepareForUpdate,
  resetFields: specAndStatus.resetFields,
  validateCreate: rangeErrors,
  validateUpdate: rangeUpdateErrors,
  columns: serviceCidrColumns,
  status: statusWithoutMetadata as UpdateStrategy<ServiceCidr>,
};

export const networkingKinds = [
  kindRow(GROUP, 'ingresses', ingresses),
  kindRow(GROUP, 'ingressclasses', ingressClasses),
  kindRow(GROUP, 'networkpolicies', networkPolicyStrategy),
  kindRow(GROUP, 'ipaddresses', ipAddresses),
  kindRow(GROUP, 'servicecidrs', serviceCidrs),
];
