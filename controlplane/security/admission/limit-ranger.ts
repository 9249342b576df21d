/**
 * LimitRanger: applies the defaults of a namespace's LimitRanges, and refuses containers, pods and claims beyond their minimum,
 * maximum and ratio of resources.
 */
import type { LimitRange, PersistentVolumeClaim, Pod } from '../../../api/kinds/kinds.ts';
import { limitRanges } from '../../../api/client/resources.ts';
import { approximate, formatQuantity, milliUnits, parseQuantity, type Quantity } from '../../../api/meta/quantity.ts';
import { aggregate } from '../authorization/rbac.ts';
import { isPod, podOf, refusal, type PodSpec, isClaim } from './pod-attributes.ts';
import { podTotal, quantities } from './pod-resources.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { Listers } from '../../model/listers.ts';

const ANNOTATION = 'kubernetes.io/limit-ranger';

type Item = NonNullable<LimitRange['spec']>['limits'][number];
type Amounts = Record<string, string>;
type Container = PodSpec['containers'][number];

/**
 * Creates the plugin. Its mutating step sets defaults of new pods. Its validating step lists all violations of one LimitRange
 * in a refusal.
 */
export function limitRanger(listers: Listers): AdmissionPlugin {
  const lister = listers.of(limitRanges);
  return {
    name: 'LimitRanger',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    admit(attributes) {
      const pod = attributes.operation === 'CREATE' ? podOf(attributes) : undefined;
      if (pod !== undefined)
        for (const range of lister.list(attributes.namespace)) applyDefaults(pod, range.spec?.limits ?? []);
    },
    validate(attributes) {
      if (attributes.object?.metadata.deletionTimestamp !== undefined) return;
      const pod = boundedPod(attributes);
      if (pod === undefined && !isClaim(attributes)) return;
      for (const range of lister.list(attributes.namespace)) {
        const errors = (range.spec?.limits ?? []).flatMap((item) =>
          pod === undefined
            ? claimErrors(attributes.object as PersistentVolumeClaim | undefined, item)
            : podErrors(pod, item),
        );
        if (errors.length > 0) throw refusal(attributes, aggregate(errors));
      }
    },
  };
}

/**
 * Returns the spec of the pod whose resources are limited: a new one, or one that is resized. Returns `undefined` for other
 * updates, which keep the resources of a pod, and for other objects.
 */
function boundedPod(attributes: AdmissionAttributes): PodSpec | undefined {
  if (attributes.operation === 'CREATE') return podOf(attributes)?.spec;
  if (!isPod(attributes) || attributes.subresource !== 'resize') return undefined;
  return (attributes.object as Pod | undefined)?.spec;
}

function applyDefaults(pod: Pod & { spec: PodSpec }, items: readonly Item[]): void {
  const requests: Amounts = {};
  const limits: Amounts = {};
  for (const item of items) {
    if (item.type !== 'Container') continue;
    Object.assign(requests, item.defaultRequest ?? {});
    Object.assign(limits, item.default ?? {});
  }
  const notes: string[] = [];
  for (const container of pod.spec.containers) notes.push(...fill(container, 'container', requests, limits));
  for (const container of pod.spec.initContainers ?? [])
    notes.push(...fill(container, 'init container', requests, limits));
  if (notes.length > 0) {
    const annotations = (pod.metadata.annotations ??= {});
    annotations[ANNOTATION] = `LimitRanger plugin set: ${notes.join('; ')}`;
  }
}

/** Sets the requests and limits that a container lacks, and returns texts that list them. `kind` describes the container. */
function fill(container: Container, kind: string, requests: Amounts, limits: Amounts): string[] {
  const resources = (container.resources ??= {});
  const notes: string[] = [];
  for (const [word, field, defaults] of [
    ['request', 'requests', requests],
    ['limit', 'limits', limits],
  ] as const) {
    const current: Amounts = { ...resources[field] };
    const added: string[] = [];
    for (const [name, amount] of Object.entries(defaults)) {
      if (current[name] !== undefined) continue;
      current[name] = amount;
      added.push(name);
    }
    if (added.length === 0) continue;
    resources[field] = current;
    notes.push(`${added.sort().join(', ')} ${word} for ${kind} ${container.name}`);
  }
  return notes;
}

interface Usage {
  readonly requests: Map<string, Quantity>;
  readonly limits: Map<string, Quantity>;
}

function usageOf(container: Container): Usage {
  return { requests: quantities(container.resources?.requests), limits: quantities(container.resources?.limits) };
}

function podErrors(spec: PodSpec, item: Item): string[] {
  if (item.type === 'Container') {
    return [...spec.containers, ...(spec.initContainers ?? [])].flatMap((container) =>
      constraintErrors(item, usageOf(container)),
    );
  }
  return item.type === 'Pod' ? constraintErrors(item, podUsage(spec)) : [];
}

function claimErrors(claim: PersistentVolumeClaim | undefined, item: Item): string[] {
  if (item.type !== 'PersistentVolumeClaim' || claim === undefined) return [];
  const requested = quantities(claim.spec?.resources?.requests);
  return [
    ...eachAmount(item.min, (name, bound) => minError(item.type, name, bound, requested.get(name))),
    ...eachAmount(item.max, (name, bound) => maxRequestError(item.type, name, bound, requested.get(name))),
  ];
}

function constraintErrors(item: Item, usage: Usage): string[] {
  return [
    ...eachAmount(item.min, (name, bound) => minError(item.type, name, bound, usage.requests.get(name))),
    ...eachAmount(item.max, (name, bound) => maxError(item.type, name, bound, usage)),
    ...eachAmount(item.maxLimitRequestRatio, (name, bound) => ratioError(item.type, name, bound, usage)),
  ];
}

function eachAmount(
  amounts: Readonly<Record<string, string>> | undefined,
  check: (name: string, bound: Quantity) => string | undefined,
): string[] {
  return Object.entries(amounts ?? {}).flatMap(([name, text]) => check(name, parseQuantity(text)) ?? []);
}

const show = formatQuantity;

function minError(type: string, name: string, bound: Quantity, request: Quantity | undefined): string | undefined {
  const text = `minimum ${name} usage per ${type} is ${show(bound)}`;
  if (request === undefined) return `${text}.  No request is specified`;
  return milliUnits(request) < milliUnits(bound) ? `${text}, but request is ${show(request)}` : undefined;
}

function maxRequestError(
  type: string,
  name: string,
  bound: Quantity,
  request: Quantity | undefined,
): string | undefined {
  const text = `maximum ${name} usage per ${type} is ${show(bound)}`;
  if (request === undefined) return `${text}.  No request is specified`;
  return milliUnits(request) > milliUnits(bound) ? `${text}, but request is ${show(request)}` : undefined;
}

function maxError(type: string, name: string, bound: Quantity, usage: Usage): string | undefined {
  const limit = usage.limits.get(name);
  const request = usage.requests.get(name);
  const text = `maximum ${name} usage per ${type} is ${show(bound)}`;
  if (limit === undefined) return `${text}.  No limit is specified`;
  if (milliUnits(limit) > milliUnits(bound)) return `${text}, but limit is ${show(limit)}`;
  if (request !== undefined && milliUnits(request) > milliUnits(bound))
    return `${text}, but request is ${show(request)}`;
  return undefined;
}

function ratioError(type: string, name: string, bound: Quantity, usage: Usage): string | undefined {
  const limit = usage.limits.get(name);
  const request = usage.requests.get(name);
  const text = `${name} max limit to request ratio per ${type} is ${show(bound)}`;
  if (request === undefined || milliUnits(request) === 0n)
    return `${text}, but no request is specified or request is 0`;
  if (limit === undefined || milliUnits(limit) === 0n) return `${text}, but no limit is specified or limit is 0`;
  const ratio = approximate(limit) / approximate(request);
  // The ratio may be a fraction, so it is compared without rounding.
  const allowed = approximate(bound);
  return ratio > allowed ? `${text}, but provided ratio is ${ratio.toFixed(6)}` : undefined;
}

function podUsage(spec: PodSpec): Usage {
  return { requests: podTotal(spec, 'requests'), limits: podTotal(spec, 'limits') };
}
