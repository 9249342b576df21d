/**
 * Computes topology aware hints, for services with `service.kubernetes.io/topology-mode: Auto` (an annotation): each zone gets
 * endpoints in proportion to the CPUs of its nodes, its own ones first. Without enough endpoints or information there are no
 * hints. Pure; the rules and words are those of kube-controller-manager.
 */
import type { EndpointSlice, Node, Service } from '../../../api/kinds/kinds.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { milliUnits, parseQuantity } from '../../../api/meta/quantity.ts';
import { identityOf, type AddressType, type Endpoint, type EndpointGroup } from './slice-core.ts';
import { ZONE_LABEL } from '../../../api/meta/well-known-labels.ts';

const ANNOTATIONS = ['service.kubernetes.io/topology-aware-hints', 'service.kubernetes.io/topology-mode'];
const EXCLUDED = ['node-role.kubernetes.io/control-plane', 'node-role.kubernetes.io/master'];
/** The fraction by which an endpoint may get more clients than its share. */
const OVERLOAD = 0.2;

/**
 * Whether the annotation is `Auto` or `auto`. The older annotation, `topology-aware-hints`, outweighs the current one.
 */
export function wantsTopologyHints({ metadata }: Service): boolean {
  const name = ANNOTATIONS.find((annotation) => ownMember(metadata.annotations, annotation) !== undefined) ?? '';
  return /^[Aa]uto$/.test(ownMember(metadata.annotations, name) ?? '');
}

/** Returns the facts of a node that the shares of the zones depend on. */
export function zoneFacts({ metadata, status }: Node): readonly unknown[] {
  const isReady = status?.conditions?.some((condition) => condition.type === 'Ready' && condition.status === 'True');
  const isExcluded = EXCLUDED.some((label) => ownMember(metadata.labels, label) !== undefined);
  return [
    ownMember(metadata.labels, ZONE_LABEL) ?? '',
    isReady === true && !isExcluded,
    status?.allocatable?.['cpu'] ?? '0',
  ];
}

/**
 * Returns the share of each zone in the CPUs of the ready nodes, without control planes; `undefined` with fewer than two zones,
 * or if such a node has no zone or no CPUs.
 */
export function zoneShares(nodes: readonly Node[]): ReadonlyMap<string, number> | undefined {
  const cpus = new Map<string, number>();
  let total = 0;
  for (const node of nodes) {
    const [zone, counts, cpu] = zoneFacts(node) as readonly [string, boolean, string];
    if (!counts) continue;
    const milli = Number(milliUnits(parseQuantity(cpu)));
    if (zone === '' || milli === 0) return undefined;
    cpus.set(zone, (cpus.get(zone) ?? 0) + milli);
    total += milli;
  }
  return cpus.size < 2 ? undefined : new Map([...cpus].map(([zone, milli]) => [zone, milli / total]));
}

interface Allocation {
  readonly desired: number;
  readonly maximum: number;
}

/** Returns how many endpoints each zone gets, or why there can be no hints. */
function allocate(count: number, shares: ReadonlyMap<string, number> | undefined): Map<string, Allocation> | string {
  if (shares === undefined)
    return 'Insufficient Node information: allocatable CPU or zone not specified on one or more nodes';
  const counts = `(${count} endpoints, ${shares.size} zones)`;
  if (shares.size > count) return `Insufficient number of endpoints ${counts}`;
  const minima = [...shares].map(([zone, share]) => {
    const minimum = Math.ceil(share * count * (1 / (1 + OVERLOAD)));
    return { zone, minimum, desired: Math.max(share * count, minimum) };
  });
  const least = minima.reduce((sum, { minimum }) => sum + minimum, 0);
  if (least > count)
    return `Unable to allocate minimum required endpoints to each zone without exceeding overload threshold ${counts}`;
  return new Map(
    minima.map(({ zone, minimum, desired }) => [zone, { desired, maximum: minimum + count - least }] as const),
  );
}

interface TopologyHints {
  readonly groups: readonly EndpointGroup[];
  /** Why there are no hints. */
  readonly problem: string | undefined;
}

/** Adds hints to the endpoints of one address family. */
export function withTopologyHints(
  given: readonly EndpointGroup[],
  existing: readonly EndpointSlice[],
  shares: ReadonlyMap<string, number> | undefined,
): TopologyHints {
  // The annotation replaces the hints of the traffic distribution of the service.
  const groups = given.map((group) => ({ ...group, endpoints: group.endpoints.map(withoutHints) }));
  const ready = groups.flatMap(({ endpoints }) => endpoints).filter(isReady);
  const allocations = allocate(ready.length, shares);
  if (typeof allocations === 'string') return { groups, problem: allocations };
  const zones = new Map<string, string>();
  const counts = keptZones(ready, existing, allocations, zones);
  const unassigned = ready.filter((endpoint) => !zones.has(identityOf(endpoint)));
  for (const endpoint of unassigned) {
    const { zone = '' } = endpoint;
    if (zone === '') return { groups, problem: 'One or more endpoints do not have a zone specified' };
    zones.set(identityOf(endpoint), zone);
    counts.set(zone, (counts.get(zone) ?? 0) + 1);
  }
  redistribute(unassigned, zones, transfers(allocations, counts));
  const hinted = (endpoint: Endpoint): Endpoint => {
    const zone = isReady(endpoint) ? zones.get(identityOf(endpoint)) : undefined;
    return zone === undefined ? endpoint : { ...endpoint, hints: { forZones: [{ name: zone }] } };
  };
  return { groups: groups.map((group) => ({ ...group, endpoints: group.endpoints.map(hinted) })), problem: undefined };
}

function withoutHints(endpoint: Endpoint): Endpoint {
  const { hints: _, ...unhinted } = endpoint;
  return unhinted;
}

const isReady = ({ conditions }: Endpoint): boolean => conditions?.ready === true;

/**
 * Keeps the hints of the slices whose ready endpoints have not changed, unless a zone would exceed its maximum: adds the zone
 * of each such endpoint to `zones`. Returns how many of these endpoints each zone has.
 */
function keptZones(
  ready: readonly Endpoint[],
  existing: readonly EndpointSlice[],
  allocations: ReadonlyMap<string, Allocation>,
  zones: Map<string, string>,
): Map<string, number> {
  const wanted = new Map(ready.map((endpoint) => [identityOf(endpoint), endpoint]));
  const counts = new Map<string, number>();
  for (const slice of existing) {
    const readyEndpoints = (slice.endpoints ?? []).filter(isReady);
    const named = readyEndpoints.map(
      (endpoint) => [identityOf(endpoint), endpoint.hints?.forZones?.[0]?.name ?? ''] as const,
    );
    const isSame = readyEndpoints.every((one) => semanticEqual(wanted.get(identityOf(one)), withoutHints(one)));
    if (!isSame || named.some(([, zone]) => !allocations.has(zone))) continue;
    const next = new Map(counts);
    for (const [, zone] of named) next.set(zone, (next.get(zone) ?? 0) + 1);
    if ([...next].some(([zone, count]) => count > (allocations.get(zone)?.maximum ?? 0))) continue;
    for (const [identity, zone] of named) zones.set(identity, zone);
    for (const [zone, count] of next) counts.set(zone, count);
  }
  return counts;
}

/** Returns pairs of a zone that gives an endpoint and one that receives it. */
function transfers(
  allocations: ReadonlyMap<string, Allocation>,
  counts: ReadonlyMap<string, number>,
): [from: string, to: string][] {
  const surplus = new Map([...allocations].map(([zone, { desired }]) => [zone, (counts.get(zone) ?? 0) - desired]));
  const pairs: [string, string][] = [];
  for (;;) {
    const sorted = [...surplus].toSorted(([, a], [, b]) => b - a);
    const [from, give = 0] = sorted[0] ?? ['', 0];
    const [to, negative = 0] = sorted.at(-1) ?? ['', 0];
    const take = -negative;
    // No zone may end farther from its desired number than before, and one of the two has to gain or lose a whole endpoint.
    if (give < 0.5 || take < 0.5 || (give < 1 && take < 1)) return pairs;
    pairs.push([from, to]);
    surplus.set(from, give - 1);
    surplus.set(to, 1 - take);
  }
}

function redistribute(unassigned: readonly Endpoint[], zones: Map<string, string>, pairs: [string, string][]): void {
  for (const endpoint of unassigned) {
    const at = pairs.findIndex(([from]) => from === endpoint.zone);
    const [pair] = at < 0 ? [] : pairs.splice(at, 1);
    if (pair !== undefined) zones.set(identityOf(endpoint), pair[1]);
  }
}

/** Returns the groups of all families with hints, and the problem of each family that has none. */
export function hintedGroups(
  groups: readonly EndpointGroup[],
  families: readonly AddressType[],
  existing: readonly EndpointSlice[],
  shares: ReadonlyMap<string, number> | undefined,
): { readonly groups: EndpointGroup[]; readonly problems: ReadonlyMap<AddressType, string | undefined> } {
  const problems = new Map<AddressType, string | undefined>();
  const all = families.flatMap((family) => {
    const existingOfFamily = existing.filter(({ addressType }) => addressType === family);
    const hinted = withTopologyHints(
      groups.filter(({ addressType }) => addressType === family),
      existingOfFamily,
      shares,
    );
    problems.set(family, hinted.problem);
    return hinted.groups;
  });
  return { groups: all, problems };
}
