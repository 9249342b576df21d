/**
 * ResourceQuota: refuses objects that would exceed a quota of their namespace, and charges the others.
 *
 * The charges of a namespace pass through one queue and are written with compare-and-swap, so that concurrent clients, here or
 * at another API server, cannot exceed a quota.
 */
import type { Pod, ResourceQuota } from '../../../api/kinds/kinds.ts';
import { deviceClasses, pods, resourceClaims, resourceQuotas } from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import {
  addQuantities,
  compareQuantities,
  formatQuantity,
  newQuantity,
  parseQuantity,
  subtractQuantities,
  type Quantity,
} from '../../../api/meta/quantity.ts';
import { isConflict, isNotFound, newInternalError } from '../../../api/meta/status-error.ts';
import type { ClaimLookup } from './claim-owners.ts';
import { type LimitedResource, uncovered } from './limited-resources.ts';
import { refusal } from './pod-attributes.ts';
import { COMPUTE_AMOUNT, isCharged, missingAmounts, quotaMatches, usageOf, type Usage } from './quota-usage.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { Lister, Listers } from '../../model/listers.ts';
import { isResource } from '../../../api/meta/group-resource.ts';

/** Where quotas are read from, and how their usage is written. */
export interface ResourceQuotaOptions {
  readonly listers: Listers;
  /** Writes the status; throws a conflict if the quota changed. */
  readonly updateStatus: (quota: ResourceQuota) => Promise<KubeObject>;
  /** Resources that may be used only where a quota covers them. */
  readonly limited?: readonly LimitedResource[];
}

interface Waiter {
  readonly attributes: AdmissionAttributes;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** A charge of an object that was not written in the end. */
interface Refund {
  readonly quota: string;
  readonly uid: string;
  readonly delta: Delta;
  /** The era of the quota at the time of the charge. */
  readonly era: number;
}

/** The work of one namespace, which is processed in batches. */
interface Queue {
  waiters: Waiter[];
  refunds: Refund[];
}

/** The attempts to write the status of quotas that other servers change as well. */
const ATTEMPTS = 10;
const ZERO = newQuantity(0);

/** Builds the plugin. A charge whose write fails later is refunded by the next batch of its namespace. */
export function resourceQuota(options: ResourceQuotaOptions): AdmissionPlugin {
  const lister = options.listers.of(resourceQuotas);
  const { limited = [] } = options;
  const queues = new Map<string, Queue>();
  const eras = new Eras();
  const lookup = claimLookup(options.listers);

  const drain = async (namespace: string, queue: Queue): Promise<void> => {
    while (queue.waiters.length > 0 || queue.refunds.length > 0) {
      const { waiters, refunds } = queue;
      queue.waiters = [];
      queue.refunds = [];
      await giveBack(namespace, refunds, { lister, eras, lookup, ...options });
      const refund = (charges: readonly Refund[]): void => void queueOf(namespace).refunds.push(...charges);
      try {
        await charge(namespace, waiters, { lister, eras, lookup, refund, ...options });
      } catch (error) {
        for (const waiter of waiters) waiter.reject(error);
      }
    }
    queues.delete(namespace);
  };

  /** Returns the queue of the namespace, and starts to process it. */
  const queueOf = (namespace: string): Queue => {
    const existing = queues.get(namespace);
    if (existing !== undefined) return existing;
    const queue: Queue = { waiters: [], refunds: [] };
    queues.set(namespace, queue);
    // The caller fills the queue first.
    queueMicrotask(() => {
      drain(namespace, queue).catch((error: unknown) => {
        queues.delete(namespace);
        for (const waiter of queue.waiters) waiter.reject(error);
      });
    });
    return queue;
  };
  return {
    name: 'ResourceQuota',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    validate(attributes) {
      const { namespace, object } = attributes;
      if (namespace === '' || object === undefined || !isCharged(attributes)) return undefined;
      const { group, resource } = attributes.resource;
      const isLimited = limited.some((one) => one.group === group && one.resource === resource);
      if (!isLimited && lister.list(namespace).length === 0) return undefined;
      return new Promise<void>((resolve, reject) => {
        queueOf(namespace).waiters.push({ attributes, resolve, reject });
      });
    },
  };
}

function claimLookup(listers: Listers): ClaimLookup {
  const classes = listers.of(deviceClasses);
  const podLister = listers.of(pods);
  const claims = listers.of(resourceClaims);
  return {
    deviceClass: (name) => classes.get('', name),
    pod: (namespace, name) => podLister.get(namespace, name),
    claims: (namespace) => claims.list(namespace),
  };
}

interface Charging extends ResourceQuotaOptions {
  readonly lister: Lister<ResourceQuota>;
  readonly eras: Eras;
  readonly lookup: ClaimLookup;
}

/** Charges quotas for the requests and settles these, unless it throws: errors of the storage, or a 500 after all attempts. */
async function charge(
  namespace: string,
  batch: readonly Waiter[],
  {
    lister,
    eras,
    refund,
    updateStatus,
    lookup,
    limited = [],
  }: Charging & { readonly refund: (charges: readonly Refund[]) => void },
): Promise<void> {
  if (batch.length === 0) return;
  const decided = new Set<Waiter>();
  const written = new Map<Waiter, Refund[]>();
  const isWritten = (waiter: Waiter, { uid }: Ledger): boolean =>
    written.get(waiter)?.some((one) => one.uid === uid) === true;
  try {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const ledgers = await liveLedgers(namespace, lister, eras);
      const accepted: Waiter[] = [];
      for (const waiter of batch) {
        if (decided.has(waiter)) continue;
        try {
          const charges = chargesOf(waiter.attributes, ledgers, { limited, lookup }, (ledger) =>
            isWritten(waiter, ledger),
          );
          for (const [ledger, delta] of charges) ledger.add(waiter, delta);
          accepted.push(waiter);
        } catch (error) {
          decided.add(waiter);
          waiter.reject(error);
        }
      }
      try {
        for (const ledger of ledgers) {
          if (!ledger.isChanged) continue;
          await write(ledger, eras, updateStatus);
          for (const [waiter, delta] of ledger.charges) {
            const refunds = written.get(waiter) ?? [];
            written.set(waiter, [...refunds, ledger.refundOf(delta, eras)]);
          }
        }
      } catch (error) {
        if (!isConflict(error) && !isNotFound(error)) throw error;
        continue;
      }
      for (const waiter of accepted) {
        const charges = written.get(waiter) ?? [];
        written.delete(waiter);
        if (charges.length > 0) waiter.attributes.whenNotWritten?.(() => refund(charges));
        waiter.resolve();
      }
      return;
    }
    throw newInternalError(`the quotas of namespace ${namespace} changed in ${ATTEMPTS} attempts; try again`);
  } finally {
    // If another quota refuses the request, or an error ends it, the quotas that were already written get the charge back.
    refund([...written.values()].flat());
  }
}

async function liveLedgers(namespace: string, lister: Lister<ResourceQuota>, eras: Eras): Promise<Ledger[]> {
  const names = lister.list(namespace).map((quota) => quota.metadata.name ?? '');
  const live = await Promise.all(names.sort().map((name) => lister.live(namespace, name)));
  const ledgers = live.flatMap((quota) => (quota === undefined ? [] : [new Ledger(quota)]));
  for (const { quota, uid } of ledgers) eras.saw(uid, quota.status?.used);
  return ledgers;
}

async function write(ledger: Ledger, eras: Eras, updateStatus: ResourceQuotaOptions['updateStatus']): Promise<void> {
  const updated = ledger.updated();
  await updateStatus(updated);
  eras.wrote(ledger.uid, updated.status?.used);
}

/** Reverts charges, unless the quota was recounted since then and no longer contains them. Gives up after `ATTEMPTS`. */
async function giveBack(
  namespace: string,
  refunds: readonly Refund[],
  { lister, eras, updateStatus }: Charging,
): Promise<void> {
  let pending = refunds;
  for (let attempt = 0; attempt < ATTEMPTS && pending.length > 0; attempt++) {
    const failed: Refund[] = [];
    for (const [uid, ofQuota] of Map.groupBy(pending, (one) => one.uid)) {
      try {
        const quota = await lister.live(namespace, ofQuota[0]?.quota ?? '');
        if (quota === undefined || idOf(quota) !== uid) continue;
        eras.saw(uid, quota.status?.used);
        const ledger = new Ledger(quota);
        for (const { delta } of ofQuota.filter((one) => one.era === eras.of(uid))) ledger.subtract(delta);
        if (ledger.isChanged) await write(ledger, eras, updateStatus);
      } catch {
        // The quota changed in the meantime, or the storage refuses writes; the controller recounts it at its next resync.
        failed.push(...ofQuota);
      }
    }
    pending = failed;
  }
}

/**
 * Tracks which charges a quota still contains. If the usage is not what admission wrote last, the controller has recounted it:
 * a new era begins, and charges of earlier eras are not reverted.
 */
class Eras {
  readonly #quotas = new Map<string, { readonly era: number; readonly used: string }>();
  #latest = 0;

  of(uid: string): number {
    return this.#quotas.get(uid)?.era ?? 0;
  }

  saw(uid: string, used: Used): void {
    const text = textOf(used);
    if (this.#quotas.get(uid)?.used === text) return;
    // An era number is never used again, so dropping a quota's entry invalidates its charges as well.
    if (this.#quotas.size >= MAX_KNOWN_QUOTAS) this.#quotas.clear();
    this.#latest += 1;
    this.#quotas.set(uid, { era: this.#latest, used: text });
  }

  wrote(uid: string, used: Used): void {
    this.#quotas.set(uid, { era: this.of(uid), used: textOf(used) });
  }
}

const MAX_KNOWN_QUOTAS = 10_000;

type Used = Readonly<Record<string, string>> | undefined;
type Delta = ReadonlyMap<string, Quantity>;

const textOf = (used: Used): string =>
  Object.entries(used ?? {})
    .map(([name, amount]) => `${name}=${amount}`)
    .sort()
    .join(',');

const idOf = ({ metadata }: ResourceQuota): string => metadata.uid ?? metadata.name ?? '';

/** A quota with the charges of this attempt. */
class Ledger {
  readonly quota: ResourceQuota;
  readonly uid: string;
  readonly #used: Map<string, Quantity>;
  readonly hard: ReadonlyMap<string, Quantity>;
  readonly charges = new Map<Waiter, Delta>();
  #isReduced = false;

  constructor(quota: ResourceQuota) {
    this.quota = quota;
    this.uid = idOf(quota);
    const parse = (amounts: Readonly<Record<string, string>> | undefined) =>
      new Map(Object.entries(amounts ?? {}).map(([name, text]) => [name, parseQuantity(text)]));
    this.hard = parse(quota.status?.hard);
    this.#used = parse(quota.status?.used);
  }

  get isChanged(): boolean {
    return this.charges.size > 0 || this.#isReduced;
  }

  used(name: string): Quantity | undefined {
    return this.#used.get(name);
  }

  add(waiter: Waiter, delta: Delta): void {
    for (const [name, amount] of delta) this.#used.set(name, addQuantities(this.#used.get(name) ?? ZERO, amount));
    this.charges.set(waiter, delta);
  }

  subtract(delta: Delta): void {
    this.#isReduced = true;
    for (const [name, amount] of delta) this.#used.set(name, subtractQuantities(this.#used.get(name) ?? ZERO, amount));
  }

  refundOf(delta: Delta, eras: Eras): Refund {
    return { quota: this.quota.metadata.name ?? '', uid: this.uid, delta, era: eras.of(this.uid) };
  }

  updated(): ResourceQuota {
    const used = Object.fromEntries([...this.#used].map(([name, amount]) => [name, formatQuantity(amount)]));
    return { ...this.quota, status: { ...this.quota.status, used } };
  }
}

/** Returns the charges by quota, without quotas for which `isChargedTo` is true; none for a dry run. Throws a refusal. */
function chargesOf(
  attributes: AdmissionAttributes,
  ledgers: readonly Ledger[],
  { limited, lookup }: { readonly limited: readonly LimitedResource[]; readonly lookup: ClaimLookup },
  isChargedTo: (ledger: Ledger) => boolean,
): readonly (readonly [Ledger, Delta])[] {
  const { object, oldObject } = attributes;
  const { group, resource } = attributes.resource;
  if (object === undefined) return [];
  const now = usageOf(group, resource, object, lookup);
  const before =
    attributes.operation === 'UPDATE' && oldObject !== undefined
      ? usageOf(group, resource, oldObject, lookup)
      : undefined;
  const charges: [Ledger, Delta][] = [];
  const covering: ResourceQuota[] = [];
  for (const ledger of ledgers) {
    if (!quotaMatches(ledger.quota, resource, object)) continue;
    const names = [...ledger.hard.keys()].filter((name) => now.has(name) || isRequired(group, resource, name));
    if (names.length === 0) continue;
    covering.push(ledger.quota);
    if (isChargedTo(ledger)) continue;
    const quotaName = ledger.quota.metadata.name ?? '';
    if (isResource({ group, resource }, pods)) {
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

/** Whether every pod must specify the resource under a quota. */
function isRequired(group: string, resource: string, name: string): boolean {
  return isResource({ group, resource }, pods) && COMPUTE_AMOUNT.test(name);
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
  // Lower usage is always allowed.
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
