/**
 * Allocates devices of one node to claims. It searches the requests in order and, for each of them, its alternatives and the
 * suitable devices.
 */
import type { DeviceClass, ResourceClaim } from '../../../api/kinds/kinds.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { formatQuantity, type Quantity } from '../../../api/meta/quantity.ts';
import { deviceKey } from '../../../api/kinds/device-claims.ts';
import { addConsumption, type Consumption, type DevicesInUse } from './allocated-devices.ts';
import { consumptionOf, suffices } from './device-capacity.ts';
import { consume, type DevicePool, type PooledDevice } from './device-pools.ts';
import {
  type DeviceAllocation,
  type DeviceAlternative,
  type DeviceConstraint,
  includesRequest,
  requestsOf,
} from './device-requests.ts';
import { type DeviceSelection, SelectorError } from './device-selection.ts';
import { type SearchBudget, SearchExhausted } from './search-budget.ts';

interface AllocationInput {
  readonly claims: readonly ResourceClaim[];
  readonly pools: readonly DevicePool[];
  /** The devices that are already allocated. */
  readonly allocated: DevicesInUse;
  readonly deviceClass: (name: string) => DeviceClass | undefined;
  readonly selection: DeviceSelection;
  /** Returns an id for the part of a shared device. */
  readonly newShareId: () => string;
  /** A search that exhausts the budget finds nothing. */
  readonly budget: SearchBudget;
}

/**
 * `unavailable`: the devices or the budget of the search do not suffice. `invalid`: a selector fails, so that another
 * claim, class or slice is necessary.
 */
export type AllocationOutcome =
  /** The allocations in the order of the claims. */
  | { readonly kind: 'allocated'; readonly allocations: readonly DeviceAllocation[] }
  | { readonly kind: 'unavailable' }
  | { readonly kind: 'invalid'; readonly message: string };

/** The API's limit for the devices of one claim. */
const MAX_DEVICES = 32;

interface Pick {
  readonly claim: number;
  readonly alternative: DeviceAlternative;
  readonly pooled: PooledDevice;
  /** What the request consumes of a device that claims share. `undefined` if it gets the whole device. */
  readonly consumption: Consumption | undefined;
}

/** A request of a claim. */
interface Slot {
  readonly claim: number;
  readonly alternatives: readonly DeviceAlternative[];
}

/** Searches devices for all requests of the claims at once. */
export function allocateDevices(input: AllocationInput): AllocationOutcome {
  const slots = input.claims.flatMap((claim, index): Slot[] =>
    requestsOf(claim).map(({ alternatives }) => ({ claim: index, alternatives })),
  );
  const search = new Search(input, slots);
  try {
    if (!search.allocateFrom(0)) return { kind: 'unavailable' };
  } catch (error) {
    if (error instanceof SearchExhausted) return { kind: 'unavailable' };
    if (!(error instanceof SelectorError)) throw error;
    const { namespace = '', name = '' } = input.claims[search.claim]?.metadata ?? {};
    return { kind: 'invalid', message: `claim ${namespace}/${name}: ${error.message}` };
  }
  return {
    kind: 'allocated',
    allocations: input.claims.map((claim, index) => allocationOf(input, claim, index, search.picks)),
  };
}

class Search {
  /** The index of the claim that is being allocated. */
  claim = 0;
  readonly picks: Pick[] = [];
  readonly #input: AllocationInput;
  readonly #slots: readonly Slot[];
  readonly #taken = new Set<string>();
  /** What the picks consume of shared devices, by the keys of the devices. */
  readonly #shared = new Map<string, Consumption[]>();
  readonly #counters: ReadonlyMap<DevicePool, ReadonlyMap<string, Map<string, Quantity>>>;
  readonly #suitable = new Map<
    DeviceAlternative,
    readonly { readonly pool: DevicePool; readonly pooled: PooledDevice }[]
  >();

  constructor(input: AllocationInput, slots: readonly Slot[]) {
    this.#input = input;
    this.#slots = slots;
    this.#counters = new Map(
      input.pools.map((pool) => [
        pool,
        new Map([...pool.counters].map(([name, counters]) => [name, new Map(counters)])),
      ]),
    );
  }

  /** Allocates the slots from the one at `at` on. On failure, it takes nothing. */
  allocateFrom(at: number): boolean {
    const slot = this.#slots[at];
    if (slot === undefined) return true;
    return slot.alternatives.some((alternative) => {
      // The slots after this one may have been tried with the alternative before.
      this.claim = slot.claim;
      const suitable = this.#suitableFor(alternative);
      if (alternative.allocationMode !== 'All') return this.#choose(at, alternative, alternative.count ?? 1, 0);
      // This alternative takes all suitable devices.
      if (suitable.length === 0 || this.#input.pools.some(({ isIncomplete }) => isIncomplete)) return false;
      const before = this.picks.length;
      if (suitable.every((found) => this.#take(slot.claim, alternative, found)) && this.allocateFrom(at + 1))
        return true;
      this.#undoTo(before);
      return false;
    });
  }

  /** Takes `count` of the devices from an index on, and then allocates the next slots. */
  #choose(at: number, alternative: DeviceAlternative, count: number, first: number): boolean {
    if (count === 0) return this.allocateFrom(at + 1);
    const claim = this.#slots[at]?.claim ?? 0;
    const suitable = this.#suitableFor(alternative);
    // One claim can use a shared device several times.
    const isShared = suitable.some(({ pooled }) => pooled.device.allowMultipleAllocations === true);
    for (let index = first; index + (isShared ? 1 : count) <= suitable.length; index += 1) {
      const found = suitable[index];
      if (found === undefined) return false;
      const before = this.picks.length;
      const next = found.pooled.device.allowMultipleAllocations === true ? index : index + 1;
      if (this.#take(claim, alternative, found) && this.#choose(at, alternative, count - 1, next)) return true;
      this.#undoTo(before);
    }
    return false;
  }

  #suitableFor(alternative: DeviceAlternative) {
    const cached = this.#suitable.get(alternative);
    if (cached !== undefined) return cached;
    const { pools, deviceClass, selection, budget } = this.#input;
    const found = deviceClass(alternative.deviceClassName);
    const suitable =
      found === undefined
        ? []
        : pools
            .filter(({ isIncomplete }) => !isIncomplete)
            .flatMap((pool) =>
              pool.devices
                .filter((pooled) => selection.suits(pooled, alternative, { deviceClass: found, budget }))
                .map((pooled) => ({ pool, pooled })),
            );
    this.#suitable.set(alternative, suitable);
    return suitable;
  }

  /**
   * Takes a device, or a part of one. With admin access, other claims may have it already. Returns `false` and takes nothing if
   * that is impossible.
   */
  #take(
    claim: number,
    alternative: DeviceAlternative,
    { pool, pooled }: { readonly pool: DevicePool; readonly pooled: PooledDevice },
  ): boolean {
    this.#input.budget.spend(this.#costOf(claim, pooled));
    if (this.picks.filter((pick) => pick.claim === claim).length >= MAX_DEVICES) return false;
    const key = keyOf(pooled);
    const isShared = pooled.device.allowMultipleAllocations === true;
    const consumption = isShared ? consumptionOf(pooled.device, alternative) : undefined;
    const pick: Pick = { claim, alternative, pooled, consumption };
    if (isShared && (consumption === undefined || !this.#hasRoom(pooled, consumption))) return false;
    if (!this.#meetsConstraints(pick)) return false;
    if (alternative.adminAccess === true) {
      if (!isShared && this.picks.some((other) => other.claim === claim && keyOf(other.pooled) === key)) return false;
    } else if (!this.#occupy(pool, pick)) return false;
    this.picks.push(pick);
    return true;
  }

  #hasRoom(pooled: PooledDevice, consumption: Consumption): boolean {
    const key = keyOf(pooled);
    const total = new Map(this.#input.allocated.consumed(key, nodeOf(pooled)));
    for (const part of [...(this.#shared.get(key) ?? []), consumption]) addConsumption(total, part, 1);
    return suffices(pooled.device, total);
  }

  /** Takes the device, or a part of it. The first part of a shared device consumes the counters of the device. */
  #occupy(pool: DevicePool, { pooled, consumption }: Pick): boolean {
    const { device } = pooled;
    const key = keyOf(pooled);
    if (this.#taken.has(key) || this.#input.allocated.isTaken(key, nodeOf(pooled))) return false;
    const counters = this.#counters.get(pool) ?? new Map<string, Map<string, Quantity>>();
    if (!this.#isPartlyUsed(pooled) && !consume(counters, device, -1)) {
      consume(counters, device, 1);
      return false;
    }
    if (consumption === undefined) this.#taken.add(key);
    else this.#shared.set(key, [...(this.#shared.get(key) ?? []), consumption]);
    return true;
  }

  /** Whether an allocation or a pick uses a part of the device. */
  #isPartlyUsed(pooled: PooledDevice): boolean {
    const key = keyOf(pooled);
    return this.#shared.has(key) || this.#input.allocated.consumed(key, nodeOf(pooled)) !== undefined;
  }

  /** Returns the units that checking a device costs. */
  #costOf(claim: number, { device }: PooledDevice): number {
    const constraints = this.#input.claims[claim]?.spec?.devices?.constraints?.length ?? 0;
    const counters = (device.consumesCounters ?? []).map((consumed) => Object.keys(consumed.counters).length);
    const capacities = device.allowMultipleAllocations === true ? Object.keys(device.capacity ?? {}).length : 0;
    const compared = this.picks.length * (constraints + 1) + (this.picks.length + 1) * capacities;
    return 1 + compared + counters.reduce((sum, count) => sum + count, 0);
  }

  #undoTo(length: number): void {
    for (const { alternative, pooled, consumption } of this.picks.splice(length).toReversed()) {
      if (alternative.adminAccess === true) continue;
      const key = keyOf(pooled);
      if (consumption === undefined) this.#taken.delete(key);
      else {
        const remaining = (this.#shared.get(key) ?? []).slice(0, -1);
        if (remaining.length === 0) this.#shared.delete(key);
        else this.#shared.set(key, remaining);
        if (this.#isPartlyUsed(pooled)) continue;
      }
      const pool = this.#input.pools.find(({ driver, name }) => driver === pooled.driver && name === pooled.pool);
      const counters = pool === undefined ? undefined : this.#counters.get(pool);
      if (counters !== undefined) consume(counters, pooled.device, 1);
    }
  }

  #meetsConstraints(pick: Pick): boolean {
    const constraints = this.#input.claims[pick.claim]?.spec?.devices?.constraints ?? [];
    return constraints.every((constraint) => {
      if (!includesRequest(constraint.requests, pick.alternative.name)) return true;
      const others = this.picks.filter(
        ({ claim, alternative }) => claim === pick.claim && includesRequest(constraint.requests, alternative.name),
      );
      return meets(
        constraint,
        pick.pooled,
        others.map(({ pooled }) => pooled),
      );
    });
  }
}

function meets(
  { matchAttribute, distinctAttribute }: DeviceConstraint,
  pooled: PooledDevice,
  others: readonly PooledDevice[],
): boolean {
  if (matchAttribute !== undefined) {
    const value = attributeOf(pooled, matchAttribute);
    return value !== undefined && others.every((other) => attributeOf(other, matchAttribute) === value);
  }
  if (distinctAttribute === undefined) return true;
  const value = attributeOf(pooled, distinctAttribute);
  return value !== undefined && others.every((other) => attributeOf(other, distinctAttribute) !== value);
}

/**
 * Returns an attribute as text. Values of different types differ. Attributes without a domain belong to the driver's domain.
 */
function attributeOf({ driver, device }: PooledDevice, name: string): string | undefined {
  const short = name.startsWith(`${driver}/`) ? name.slice(driver.length + 1) : undefined;
  const found =
    ownMember(device.attributes, name) ?? (short === undefined ? undefined : ownMember(device.attributes, short));
  if (found === undefined) return undefined;
  const { bool, int, string, version } = found;
  return `${bool ?? ''}/${int ?? ''}/${version ?? ''}/${string ?? ''}`;
}

/** Returns the only node that can use the device. `undefined` if several can. */
const nodeOf = ({ nodes }: PooledDevice): string | undefined =>
  nodes !== undefined && 'name' in nodes ? nodes.name : undefined;

function keyOf({ driver, pool, device }: PooledDevice): string {
  return deviceKey({ driver, pool, device: device.name });
}

function allocationOf(
  { deviceClass, newShareId }: AllocationInput,
  claim: ResourceClaim,
  index: number,
  picks: readonly Pick[],
): DeviceAllocation {
  const picked = picks.filter((pick) => pick.claim === index);
  const results = picked.map(({ alternative: { name, adminAccess, tolerations }, pooled, consumption }) => ({
    request: name,
    driver: pooled.driver,
    pool: pooled.pool,
    device: pooled.device.name,
    ...(adminAccess === undefined ? {} : { adminAccess }),
    ...(tolerations === undefined ? {} : { tolerations }),
    ...(consumption === undefined ? {} : { shareID: newShareId(), ...consumedCapacity(consumption) }),
  }));
  const used = new Map(picked.map(({ alternative }) => [alternative.name, alternative]));
  const config = [
    ...[...used.values()].flatMap(({ name, deviceClassName }) =>
      (deviceClass(deviceClassName)?.spec?.config ?? []).map((entry) => ({
        ...entry,
        source: 'FromClass',
        requests: [name],
      })),
    ),
    ...(claim.spec?.devices?.config ?? [])
      .filter(({ requests }) => [...used.keys()].some((name) => includesRequest(requests, name)))
      .map((entry) => ({ ...entry, source: 'FromClaim' })),
  ];
  const nodeSelector = nodesOf(picked.map(({ pooled }) => pooled));
  return {
    devices: { results, ...(config.length === 0 ? {} : { config }) },
    ...(nodeSelector === undefined ? {} : { nodeSelector }),
  } as DeviceAllocation;
}

function consumedCapacity(consumption: Consumption): object {
  const entries = [...consumption].map(([name, amount]) => [name, formatQuantity(amount)]);
  return entries.length === 0 ? {} : { consumedCapacity: Object.fromEntries(entries) };
}

/** Returns the nodes that can use all devices: one node, those that all selectors select, or every node. */
function nodesOf(devices: readonly PooledDevice[]): object | undefined {
  const local = devices.find(({ nodes }) => nodes !== undefined && 'name' in nodes)?.nodes;
  if (local !== undefined && 'name' in local) {
    const matchFields = [{ key: 'metadata.name', operator: 'In', values: [local.name] }];
    return { nodeSelectorTerms: [{ matchFields }] };
  }
  const selectors = devices.flatMap(({ nodes }) =>
    nodes !== undefined && 'selector' in nodes ? [nodes.selector] : [],
  );
  if (selectors.length === 0) return undefined;
  // The API allows one term in the selector of a slice, so the terms of several slices can be merged.
  const terms = selectors.flatMap(({ nodeSelectorTerms }) => nodeSelectorTerms.slice(0, 1));
  const unique = <T>(entries: readonly T[]): T[] =>
    entries.filter((entry, index) => entries.findIndex((other) => semanticEqual(other, entry)) === index);
  const matchExpressions = unique(terms.flatMap((term) => term.matchExpressions ?? []));
  const matchFields = unique(terms.flatMap((term) => term.matchFields ?? []));
  return {
    nodeSelectorTerms: [
      {
        ...(matchExpressions.length === 0 ? {} : { matchExpressions }),
        ...(matchFields.length === 0 ? {} : { matchFields }),
      },
    ],
  };
}
