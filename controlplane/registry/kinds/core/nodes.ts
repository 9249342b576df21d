/** Defines the strategy of nodes: the facts that the agents report, and the fields that decide which pods may run there. */
import type { V1Node } from '@kubernetes/client-node';
import { quoteText } from '../../../../api/meta/quote.ts';
import { parseExactJson } from '../../../../api/codec/json.ts';
import { resourceValueErrors } from '../../../../api/kinds/resource-validation.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import {
  duplicate,
  FieldError,
  forbidden,
  internal,
  invalid,
  required,
  unsupportedValue,
} from '../../../../api/meta/field-error.ts';
import { cidrErrors, parseCidr } from '../../../../api/meta/ip-addresses.ts';
import { labelValueErrors, qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { nodeColumns } from './columns.ts';
import { restore } from '../../generic-strategy.ts';
import { kindRow, type Strategy } from '../../strategy.ts';

import { internalForm } from '../../../../api/schema/internal-form.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type Node = Kind<Pick<V1Node, 'spec' | 'status'>>;

type Spec = NonNullable<Node['spec']>;
type Taint = NonNullable<Spec['taints']>[number];

const TAINT_EFFECTS = ['NoSchedule', 'PreferNoSchedule', 'NoExecute'];

/** Aligns `podCIDR` with the first of `podCIDRs`. The single field has precedence if they differ. */
function alignCidrs(spec: Spec): void {
  const first = spec.podCIDR ?? '';
  if (first !== '' && spec.podCIDRs?.[0] !== first) spec.podCIDRs = [first];
  const [leading] = spec.podCIDRs ?? [];
  if (leading !== undefined) spec.podCIDR = leading;
}

/** Drops the dynamic configuration of kubelets, which Kubernetes has removed. A node that already has it keeps it. */
function dropConfig(object: Node, old?: Node): void {
  if (old?.spec?.configSource === undefined) delete object.spec?.configSource;
  if (old?.status?.config === undefined) delete object.status?.config;
}

function taintErrors(taints: readonly Taint[]): FieldError[] {
  const seen = new Set<string>();
  return taints.flatMap((taint, index) => {
    // kube-apiserver reports taints under the metadata, where they once were.
    const at = `metadata.taints[${index}]`;
    const { key = '', value = '', effect = '' } = taint;
    const errors = invalidFor(`${at}.key`, key, qualifiedNameErrors(key));
    const valueErrors = labelValueErrors(value);
    if (valueErrors.length > 0) errors.push(invalid(`${at}.value`, value, valueErrors.join(';')));
    if (effect === '') errors.push(required(`${at}.effect`));
    else if (!TAINT_EFFECTS.includes(effect)) errors.push(unsupportedValue(`${at}.effect`, effect, TAINT_EFFECTS));
    const pair = `${effect}:${key}`;
    if (seen.has(pair))
      errors.push(new FieldError('FieldValueDuplicate', at, taint, 'taints must be unique by key and effect pair'));
    seen.add(pair);
    return errors;
  });
}

function resourceErrors({ status }: Node): FieldError[] {
  return (['capacity', 'allocatable'] as const).flatMap((list) => {
    const amounts = status?.[list] ?? {};
    return Object.keys(amounts)
      .sort()
      .flatMap((name) => resourceValueErrors(`status.${list}.${name}`, name, amounts[name] ?? '0'));
  });
}

function cidrListErrors({ podCIDRs: cidrs = [] }: Spec): FieldError[] {
  const field = 'spec.podCIDRs';
  const errors = cidrs.flatMap((cidr, index) => cidrErrors(`${field}[${index}]`, cidr));
  if (cidrs.length < 2) return errors;
  const families = cidrs.map((cidr) => parseCidr(cidr)?.family);
  const unreadable = families.indexOf(undefined);
  if (unreadable >= 0) {
    const fault = `invalid CIDR[${unreadable}]: <nil> (invalid CIDR address: ${cidrs[unreadable]})`;
    const text = `invalid PodCIDRs. failed to check with dual stack with error:${fault}`;
    errors.push(internal(field, text));
  }
  if (cidrs.length > 2 || unreadable >= 0 || new Set(families).size < 2)
    errors.push(invalid(field, cidrs, 'may specify no more than one CIDR for each IP family'));
  return errors;
}

const FEATURE_NAME = /^[A-Z][a-zA-Z0-9]*(?:\/[a-zA-Z][a-zA-Z0-9]*)*$/;
const FEATURE_FORM =
  "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";
/** The maximum number of bytes of a feature's name. */
const MAX_FEATURE_BYTES = 253;

/** Validates the names of the features that the kubelet declares, and their order. */
function featureErrors({ status }: Node): FieldError[] {
  const features = status?.declaredFeatures ?? [];
  return features.flatMap((name, index) => {
    const errors: FieldError[] = [];
    const refuse = (at: number, value: string, text: string): unknown =>
      errors.push(invalid(`status.declaredFeatures[${at}]`, value, text));
    const named = `invalid feature name ${quoteText(name)}`;
    if (Buffer.byteLength(name) > MAX_FEATURE_BYTES)
      refuse(index, name, `${named}: must be no more than ${MAX_FEATURE_BYTES} characters`);
    else if (!FEATURE_NAME.test(name)) refuse(index, name, `${named}: ${FEATURE_FORM}`);
    const next = features[index + 1];
    if (next === name) errors.push(duplicate(`status.declaredFeatures[${index + 1}]`, next));
    else if (next !== undefined && next < name) refuse(index + 1, next, 'list must be sorted alphabetically');
    return errors;
  });
}

/** Returns the error of the swap in a node's status, which kube-apiserver reports under the metadata. */
function swapErrors({ status }: Node): FieldError[] {
  const capacity = status?.nodeInfo?.swap?.capacity;
  return capacity !== undefined && capacity <= 0
    ? [invalid('metadata.nodeSwapStatus.capacity', capacity, 'must be greater than zero')]
    : [];
}

const AVOID_PODS = 'scheduler.alpha.kubernetes.io/preferAvoidPods';

/** Matches the first character that cannot begin a JSON value. */
const NO_JSON = /^\s*([^\s[\]{}"\-0-9tfn])/;

interface AvoidPods {
  readonly preferAvoidPods?: readonly {
    readonly podSignature?: { readonly podController?: { readonly controller?: boolean } };
  }[];
}

/** Validates an annotation that no scheduler reads any more, because kube-apiserver still validates it. */
function avoidPodsErrors({ metadata }: Node): FieldError[] {
  const text = metadata.annotations?.[AVOID_PODS] ?? '';
  if (text === '') return [];
  let avoid: AvoidPods | null;
  try {
    avoid = parseExactJson(text) as AvoidPods | null;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    const wrong = NO_JSON.exec(text)?.[1];
    const why =
      wrong === undefined
        ? 'unexpected end of JSON input'
        : `invalid character '${wrong}' looking for beginning of value`;
    return [invalid('metadata.annotations.AvoidPods', AVOID_PODS, why)];
  }
  const entries = avoid?.preferAvoidPods;
  if (!Array.isArray(entries)) return [];
  return (entries as NonNullable<AvoidPods['preferAvoidPods']>).flatMap((entry, index) => {
    const at = `metadata.annotations.${AVOID_PODS}[${index}].PodSignature`;
    const controller = entry?.podSignature?.podController;
    if (controller === undefined) return [required(at)];
    if (controller.controller === true) return [];
    return [invalid(`${at}.PodController.Controller`, false, 'must point to a controller')];
  });
}

function nodeErrors(object: Node): FieldError[] {
  return [
    ...avoidPodsErrors(object),
    ...taintErrors(object.spec?.taints ?? []),
    ...resourceErrors(object),
    ...swapErrors(object),
    ...featureErrors(object),
    ...cidrListErrors(object.spec ?? {}),
  ];
}

function addressErrors({ status }: Node): FieldError[] {
  const seen = new Set<string>();
  return (status?.addresses ?? []).flatMap((address, index) => {
    const key = `${address.type ?? ''} ${address.address ?? ''}`;
    const errors = seen.has(key)
      ? [duplicate(`status.addresses[${index}]`, internalForm('io.k8s.api.core.v1.NodeAddress', address))]
      : [];
    seen.add(key);
    return errors;
  });
}

/** Validates that the pod CIDRs and the provider ID do not change once they are set. */
function fixedErrors(spec: Spec, old: Spec): FieldError[] {
  const errors: FieldError[] = [];
  const before = old.podCIDRs ?? [];
  const cidrs = spec.podCIDRs ?? [];
  if (before.length > 0) {
    const text = 'node updates may not change podCIDR except from "" to valid';
    const changes = before.length === cidrs.length ? before.filter((cidr, index) => cidr !== cidrs[index]).length : 1;
    for (let i = 0; i < changes; i++) errors.push(forbidden('spec.podCIDRs', text));
  }
  const provider = old.providerID ?? '';
  if (provider !== '' && provider !== (spec.providerID ?? ''))
    errors.push(forbidden('spec.providerID', 'node updates may not change providerID except from "" to valid'));
  return errors;
}

function nodeUpdateErrors(object: Node, old: Node): FieldError[] {
  const spec = object.spec ?? {};
  const errors = [
    ...avoidPodsErrors(object),
    ...resourceErrors(object),
    ...featureErrors(object),
    ...addressErrors(object),
    ...fixedErrors(spec, old.spec ?? {}),
    ...taintErrors(spec.taints ?? []),
  ];
  if ((spec.externalID ?? '') !== (old.spec?.externalID ?? ''))
    errors.push(forbidden('spec.externalID', 'may not be updated'));
  return errors;
}

function nodeWarnings({ spec }: Node): string[] {
  const warnings: string[] = [];
  if (spec?.configSource !== undefined) warnings.push('spec.configSource: the feature is no longer available');
  if ((spec?.externalID ?? '') !== '')
    warnings.push('spec.externalID: this field is deprecated, and is unused by Kubernetes');
  return warnings;
}

const nodes: Strategy<Node> = {
  metadataChecks: ['whole', 'update'],
  applyDefaults({ spec, status }) {
    if (spec !== undefined) alignCidrs(spec);
    // Without `allocatable`, the whole capacity is allocatable.
    if (status?.capacity !== undefined) status.allocatable ??= { ...status.capacity };
  },
  canonicalise({ status }) {
    // An empty map is not stored, and gets the default of an absent one when it is read.
    if (status?.capacity !== undefined && Object.keys(status.allocatable ?? {}).length === 0) {
      status.allocatable = { ...status.capacity };
    }
  },
  prepareForCreate: (object) => dropConfig(object),
  prepareForUpdate(object, old) {
    restore(object, old, 'status');
    dropConfig(object, old);
  },
  validateCreate: nodeErrors,
  validateUpdate: (object, old) => [...nodeErrors(object), ...nodeUpdateErrors(object, old)],
  warningsOnCreate: nodeWarnings,
  warningsOnUpdate: nodeWarnings,
  resetFields: [['status']],
  selectableFields: { 'spec.unschedulable': (object) => String(object.spec?.unschedulable === true) },
  columns: nodeColumns,
  status: {
    prepareForUpdate(object, old) {
      restore(object, old, 'spec');
      dropConfig(object, old);
    },
    validateUpdate: nodeUpdateErrors,
    resetFields: [['spec']],
  },
};

export const nodeObjectKinds = [kindRow('', 'nodes', nodes)];
