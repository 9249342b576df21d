/**
 * ResourceQuota: refuses what would exceed a quota of the namespace, and charges what it lets in.
 *
 * Charges of one namespace go through one queue and are written with compare-and-swap, so that no number of concurrent
 * creators (here or at another API server) gets more than there is. A batch of waiters costs one write of each quota.
 */
import type { Pod, ResourceQuota } from '../../api/machinery/kinds.ts';
import { resourceQuotas } from '../../api/machinery/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import {
  addQuantities,
  compareQuantities,
  formatQuantity,
  newQuantity,
  parseQuantity,
  subtractQuantities,
  type Quantity,
} from '../../api/meta/quantity.ts';
import { isConflict, isNotFound, newInternalError } from '../../api/meta/status-error.ts';
import { type LimitedResource, uncovered } from './limited-resources.ts';
import { refusal } from './pod-attributes.ts';
import { missingAmounts, quotaMatches, usageOf, type Usage } from './quota-usage.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { Source, Sources } from '../readers/sources.ts';

export interface ResourceQuotaOptions {
  readonly sources: Sources;
  /** Writes the status; throws a conflict when the quota changed. */
  readonly updateStatus: (quota: ResourceQuota) => Promise<KubeObject>;
  /** Resources that may be used only where a quota covers them. */
  readonly limited?: readonly LimitedResource[];
}

interface Waiter {
  readonly attributes: AdmissionAttributes;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

const UPDATED = new Set(['services', 'persistentvolumeclaims', 'resourceclaims.resource.k8s.io']);
const ATTEMPTS = 10;
const ZERO = newQuantity(0);
/** Reviews and bindings store nothing, and events would run into quotas of their own making. */
const UNCOUNTED = new Set([
  'subjectaccessreviews',
  'selfsubjectaccessreviews',
  'localsubjectaccessreviews',
  'selfsubjectrulesreviews',
  'tokenreviews',
  'selfsubjectreviews',
  'events',
  'bindings',
]);

export function resourceQuota(options: ResourceQuotaOptions): AdmissionPlugin {
  const source = options.sources.of(resourceQuotas);
  const { limited = [] } = options;
  const queues = new Map<string, Waiter[]>();

  const drain = async (namespace: string, queue: Waiter[]): Promise<void> => {
    while (queue.length > 0) {
      const batch = queue.splice(0);
      try {
        await charge(namespace, batch, source, options);
      } catch (error) {
        for (const waiter of batch) waiter.reject(error);
      }
    }
    queues.delete(namespace);
  };
  return {
    name: 'ResourceQuota',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    validate(attributes) {
      const { namespace, object } = attributes;
      if (namespace === '' || object === undefined || UNCOUNTED.has(attributes.resource.resource)) return undefined;
      if (!isCharged(attributes)) return undefined;
      const { group, resource } = attributes.resource;
      const isLimited = limited.some((one) => one.group === group && one.resource === resource);
      if (!isLimited && source.list(namespace).length === 0) return undefined;
      return new Promise<void>((resolve, reject) => {
        const waiter = { attributes, resolve, reject };
        const queue = queues.get(namespace);
        if (queue !== undefined) {
          queue.push(waiter);
          return;
        }
        const fresh = [waiter];
        queues.set(namespace, fresh);
        // `drain` passes every failure on to its waiters.
        drain(namespace, fresh).catch(reject);
      });
    },
  };
}

/** Pods are charged when they are made and resized, claims and services on each write, all others when they are made. */
function isCharged({ operation, resource: { group, resource }, subresource }: AdmissionAttributes): boolean {
  if (group === '' && resource === 'pods')
    return operation === 'CREATE' ? subresource === '' : subresource === 'resize';
  if (subresource !== '') return false;
  return operation === 'CREATE' || UPDATED.has(group === '' ? resource : `${resource}.${group}`);
}

async function charge(
  namespace: string,
  batch: readonly Waiter[],
  source: Source<ResourceQuota>,
  { updateStatus, limited = [] }: ResourceQuotaOptions,
): Promise<void> {
  const decided = new Set<Waiter>();
  const written = new WrittenCharges();
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const names = source
      .list(namespace)
      .map((quota) => quota.metadata.name ?? '')
      .sort();
    const live = await Promise.all(names.map((name) => source.live(namespace, name)));
    const ledgers = live.flatMap((quota) => (quota === undefined ? [] : [new Ledger(quota)]));
    const accepted: Waiter[] = [];
    for (const waiter of batch) {
      if (decided.has(waiter)) continue;
      try {
        const charges = chargesOf(waiter.attributes, ledgers, limited, (ledger) => written.has(waiter, ledger));
        for (const [ledger, delta] of charges) ledger.add(waiter, delta);
        accepted.push(waiter);
      } catch (error) {
        decided.add(waiter);
        for (const ledger of ledgers) written.giveBack(waiter, ledger);
        waiter.reject(error);
      }
    }
    try {
      for (const ledger of ledgers) {
        if (!ledger.isChanged) continue;
        await updateStatus(ledger.updated());
        written.add(ledger);
      }
      for (const waiter of accepted) waiter.resolve();
      return;
    } catch (error) {
      if (!isConflict(error) && !isNotFound(error)) throw error;
    }
  }
  throw newInternalError('the quotas of the namespace changed too often');
}

type Delta = ReadonlyMap<string, Quantity>;

/**
 * The charges of a batch that stand in quotas already. After a conflict on one quota the batch is tried again, and must not be
 * charged to the others a second time.
 */
class WrittenCharges {
  readonly #deltas = new Map<string, Map<Waiter, Delta>>();

  has(waiter: Waiter, ledger: Ledger): boolean {
    return this.#deltas.get(ledger.uid)?.has(waiter) === true;
  }

  add(ledger: Ledger): void {
    const deltas = this.#deltas.get(ledger.uid) ?? new Map<Waiter, Delta>();
    this.#deltas.set(ledger.uid, deltas);
    for (const [waiter, delta] of ledger.charges) deltas.set(waiter, delta);
  }

  /** What another quota refused after all must not stay charged to this one. */
  giveBack(waiter: Waiter, ledger: Ledger): void {
    const delta = this.#deltas.get(ledger.uid)?.get(waiter);
    if (delta === undefined) return;
    ledger.add(waiter, new Map([...delta].map(([name, amount]) => [name, subtractQuantities(ZERO, amount)])));
  }
}

/** A quota with what has been charged to it in this attempt. */
class Ledger {
  readonly quota: ResourceQuota;
  readonly uid: string;
  readonly #used: Map<string, Quantity>;
  readonly hard: ReadonlyMap<string, Quantity>;
  readonly charges = new Map<Waiter, Delta>();

  constructor(quota: ResourceQuota) {
    this.quota = quota;
    this.uid = quota.metadata.uid ?? quota.metadata.name ?? '';
    const parse = (amounts: Readonly<Record<string, string>> | undefined) =>
      new Map(Object.entries(amounts ?? {}).map(([name, text]) => [name, parseQuantity(text)]));
    this.hard = parse(quota.status?.hard);
    this.#used = parse(quota.status?.used);
  }

  get isChanged(): boolean {
    return this.charges.size > 0;
  }

  used(name: string): Quantity | undefined {
    return this.#used.get(name);
  }

  add(waiter: Waiter, delta: Delta): void {
    for (const [name, amount] of delta) this.#used.set(name, addQuantities(this.#used.get(name) ?? ZERO, amount));
    this.charges.set(waiter, delta);
  }

  updated(): ResourceQuota {
    const used = Object.fromEntries([...this.#used].map(([name, amount]) => [name, formatQuantity(amount)]));
    return { ...this.quota, status: { ...this.quota.status, used } };
  }
}

/** What is to be charged to which quota; throws the refusal. `isChargedTo`: the quota has been charged for it already. */
function chargesOf(
  attributes: AdmissionAttributes,
  ledgers: readonly Ledger[],
  limited: readonly LimitedResource[],
  isChargedTo: (ledger: Ledger) => boolean,
): readonly (readonly [Ledger, Delta])[] {
  const { object, oldObject } = attributes;
  const { group, resource } = attributes.resource;
  if (object === undefined) return [];
  const now = usageOf(group, resource, object);
  const before =
    attributes.operation === 'UPDATE' && oldObject !== undefined ? usageOf(group, resource, oldObject) : undefined;
  const charges: [Ledger, Delta][] = [];
  const covering: ResourceQuota[] = [];
  for (const ledger of ledgers) {
    if (!quotaMatches(ledger.quota, resource, object)) continue;
    const names = [...ledger.hard.keys()].filter((name) => now.has(name) || isAsked(group, resource, name));
    if (names.length === 0) continue;
    covering.push(ledger.quota);
    if (isChargedTo(ledger)) continue;
    const quotaName = ledger.quota.metadata.name ?? '';
    if (group === '' && resource === 'pods' && attributes.operation === 'CREATE') {
      const missing = missingAmounts((object as Pod & { spec: NonNullable<Pod['spec']> }).spec, names);
      if (missing !== undefined) throw refusal(attributes, `failed quota: ${quotaName}: ${missing}`);
    }
    const unknown = names.filter((name) => ledger.used(name) === undefined);
    if (unknown.length > 0)
      throw refusal(attributes, `status unknown for quota: ${quotaName}, resources: ${unknown.sort().join(',')}`);
    const wasIn = before !== undefined && oldObject !== undefined && quotaMatches(ledger.quota, resource, oldObject);
    const delta = deltaOf(names, now, wasIn ? before : undefined);
    if (delta.size === 0) continue;
    const exceeded = [...delta.keys()].filter((name) => exceeds(ledger, name, delta.get(name) ?? ZERO)).sort();
    if (exceeded.length > 0) throw refusal(attributes, exceededMessage(ledger, quotaName, delta, exceeded));
    charges.push([ledger, delta]);
  }
  const why = uncovered(limited, { group, resource, object, usage: now }, covering);
  if (why !== undefined) throw refusal(attributes, why);
  return attributes.dryRun ? [] : charges;
}

/** Amounts that a quota makes every pod state. */
function isAsked(group: string, resource: string, name: string): boolean {
  return group === '' && resource === 'pods' && /^(?:cpu|memory|(?:requests|limits)\.(?:cpu|memory))$/.test(name);
}

function deltaOf(names: readonly string[], now: Usage, before: Usage | undefined): Map<string, Quantity> {
  const delta = new Map<string, Quantity>();
  for (const name of names) {
    const amount = subtractQuantities(now.get(name) ?? ZERO, before?.get(name) ?? ZERO);
    if (compareQuantities(amount, ZERO) !== 0) delta.set(name, amount);
  }
  return delta;
}

function exceeds(ledger: Ledger, name: string, amount: Quantity): boolean {
  // Giving back is always allowed.
  if (compareQuantities(amount, ZERO) <= 0) return false;
  const hard = ledger.hard.get(name);
  return hard !== undefined && compareQuantities(addQuantities(ledger.used(name) ?? ZERO, amount), hard) > 0;
}

function exceededMessage(
  ledger: Ledger,
  name: string,
  delta: ReadonlyMap<string, Quantity>,
  exceeded: readonly string[],
): string {
  const list = (amount: (resource: string) => Quantity | undefined): string =>
    exceeded.map((resource) => `${resource}=${formatQuantity(amount(resource) ?? ZERO)}`).join(',');
  const requested = list((resource) => delta.get(resource));
  const used = list((resource) => ledger.used(resource));
  const limited = list((resource) => ledger.hard.get(resource));
  return `exceeded quota: ${name}, requested: ${requested}, used: ${used}, limited: ${limited}`;
}
