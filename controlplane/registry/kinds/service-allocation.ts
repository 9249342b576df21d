/**
 * Cluster addresses and node ports of services. What is taken is known from the stored services alone, so a restart needs
 * no second record; it is read when first asked for. What a write takes is given back if the write fails, and what it no
 * longer needs is freed once it came through.
 */
import {
  cidrAddress,
  cidrContains,
  cidrSize,
  formatIp,
  parseCidr,
  parseIp,
  type Cidr,
} from '../../../api/meta/ip-addresses.ts';
import { duplicate, invalid, notSupported, type FieldError } from '../../../api/meta/field-error.ts';
import { newInternalError, newInvalid, newStatusError } from '../../../api/meta/status-error.ts';
import { selectionOf } from '../../storage/selection.ts';
import type { Store } from '../store.ts';
import type { Reservation } from '../strategy.ts';
import {
  isHeadless,
  needsClusterIp,
  needsHealthPort,
  needsNodePort,
  type Service,
  type ServiceSpec,
} from './service-types.ts';

export interface AllocationOptions {
  readonly clusterCidrs: readonly string[];
  readonly nodePorts: { readonly from: number; readonly to: number };
  readonly services: () => Store;
}

const FAMILIES = ['IPv4', 'IPv6'];
const POLICIES = ['PreferDualStack', 'RequireDualStack', 'SingleStack'];
const ADDRESS_TEXT = 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)';
const IMMUTABLE_ADDRESS = 'provided IP is already allocated';

interface Range {
  readonly family: 'IPv4' | 'IPv6';
  readonly cidr: Cidr;
}

const familyOf = (address: string): string => (parseIp(address)?.family === 6 ? 'IPv6' : 'IPv4');

export class ServiceAllocator {
  readonly #options: AllocationOptions;
  readonly #ranges: readonly Range[];
  readonly #addresses = new Set<string>();
  readonly #ports = new Set<number>();
  #loaded = false;

  constructor(options: AllocationOptions) {
    this.#options = options;
    this.#ranges = options.clusterCidrs.flatMap((text) => {
      const cidr = parseCidr(text);
      return cidr === undefined ? [] : [{ family: cidr.family === 6 ? 'IPv6' : 'IPv4', cidr } as const];
    });
  }

  /** Takes what `service` needs beyond what `old` has. Throws 422 for what cannot be given. */
  reserve(service: Service, old: Service | undefined): Reservation {
    this.#load();
    const spec = (service.spec ??= {});
    normalizeAddresses(spec, old?.spec);
    if (old?.spec !== undefined) keepAllocated(spec, old.spec);
    const taken: (() => void)[] = [];
    const revert = (): void => {
      for (const undo of taken.splice(0).reverse()) undo();
    };
    try {
      this.#refuse(service, this.#defaultFamilies(spec, old?.spec));
      this.#takeAddresses(service, old?.spec, taken);
      this.#takePorts(service, old?.spec, taken);
    } catch (error) {
      revert();
      throw error;
    }
    return { commit: () => (old?.spec === undefined ? undefined : this.#releaseDropped(spec, old.spec)), revert };
  }

  /** After a service is gone. */
  release(service: Service): void {
    this.#load();
    for (const address of service.spec?.clusterIPs ?? []) this.#addresses.delete(address);
    for (const port of portsOf(service.spec ?? {})) this.#ports.delete(port);
  }

  #load(): void {
    if (this.#loaded) return;
    this.#loaded = true;
    for (const { object } of this.#options.services().cache.list({ selection: selectionOf('') }).entries) {
      const { spec = {} } = object as Service;
      for (const address of spec.clusterIPs ?? []) if (address !== 'None') this.#addresses.add(address);
      for (const port of portsOf(spec)) this.#ports.add(port);
    }
  }

  #refuse(service: Service, errors: readonly FieldError[]): void {
    if (errors.length > 0) throw newInvalid({ group: '', resource: 'Service' }, service.metadata.name ?? '', errors);
  }

  /** Families and their policy, from what the client said and what the cluster has. */
  #defaultFamilies(spec: ServiceSpec, old: ServiceSpec | undefined): FieldError[] {
    if (!needsClusterIp(spec)) return [];
    const errors = addressErrors(spec);
    if (errors.length > 0) return errors;
    const first = this.#ranges[0]?.family ?? 'IPv4';
    const dual = this.#ranges.length > 1;
    const headlessAlone = isHeadless(spec) && Object.keys(spec.selector ?? {}).length === 0;
    if (old !== undefined && needsClusterIp(old) && old.ipFamilyPolicy !== undefined)
      spec.ipFamilyPolicy ??= old.ipFamilyPolicy;
    spec.ipFamilies ??= [];
    for (const address of spec.clusterIPs ?? []) {
      if (address !== 'None' && spec.ipFamilies.length < (spec.clusterIPs ?? []).length)
        spec.ipFamilies.push(familyOf(address));
    }
    if (headlessAlone) {
      spec.ipFamilyPolicy ??= spec.ipFamilies.length === 1 ? 'SingleStack' : 'RequireDualStack';
      if (spec.ipFamilies.length === 0) spec.ipFamilies.push(first);
      if (spec.ipFamilies.length === 1 && spec.ipFamilyPolicy !== 'SingleStack')
        spec.ipFamilies.push(spec.ipFamilies[0] === 'IPv4' ? 'IPv6' : 'IPv4');
      return [];
    }
    if (!dual && spec.ipFamilyPolicy === 'RequireDualStack') {
      return [
        invalid('spec.ipFamilyPolicy', 'RequireDualStack', 'this cluster is not configured for dual-stack services'),
      ];
    }
    if (spec.ipFamilyPolicy === undefined)
      spec.ipFamilyPolicy = dual && spec.ipFamilies.length > 1 ? 'RequireDualStack' : 'SingleStack';
    const tooMany = singleStackErrors(spec);
    if (tooMany.length > 0 && old === undefined) return tooMany;
    for (const [index, family] of spec.ipFamilies.entries()) {
      if (!this.#ranges.some((range) => range.family === family))
        return [invalid(`spec.ipFamilies[${index}]`, family, 'not configured on this cluster')];
    }
    if (spec.ipFamilies.length === 0) spec.ipFamilies.push(first);
    if (dual && spec.ipFamilies.length === 1 && spec.ipFamilyPolicy !== 'SingleStack') {
      spec.ipFamilies.push(spec.ipFamilies[0] === 'IPv4' ? 'IPv6' : 'IPv4');
    }
    if (spec.ipFamilyPolicy === 'SingleStack' && spec.ipFamilies.length > 1 && old !== undefined)
      spec.ipFamilies.splice(1);
    return [];
  }

  #takeAddresses(service: Service, old: ServiceSpec | undefined, taken: (() => void)[]): void {
    const spec = service.spec ?? {};
    if (!needsClusterIp(spec) || isHeadless(spec)) return;
    const had = new Set(old === undefined ? [] : old.clusterIPs);
    const addresses = [...(spec.clusterIPs ?? [])];
    if (spec.ipFamilyPolicy === 'SingleStack') addresses.splice(1);
    for (const [index, family] of (spec.ipFamilies ?? []).entries()) {
      const asked = addresses[index];
      if (asked === undefined || asked === '') {
        const address = this.#nextAddress(family);
        addresses[index] = address;
        taken.push(() => this.#addresses.delete(address));
      } else if (!had.has(asked)) {
        this.#refuse(service, this.#takeAddress(asked, family, addresses));
        taken.push(() => this.#addresses.delete(asked));
      }
    }
    spec.clusterIPs = addresses;
    spec.clusterIP = addresses[0];
  }

  #takeAddress(address: string, family: string, all: readonly string[]): FieldError[] {
    const ip = parseIp(address);
    const range = this.#ranges.find((one) => one.family === family);
    if (ip === undefined || range === undefined || !cidrContains(range.cidr, ip)) {
      return [
        invalid(
          'spec.clusterIPs',
          all,
          `failed to allocate IP ${address}: the provided network does not match the current range`,
        ),
      ];
    }
    if (this.#addresses.has(address))
      return [invalid('spec.clusterIPs', all, `failed to allocate IP ${address}: ${IMMUTABLE_ADDRESS}`)];
    this.#addresses.add(address);
    return [];
  }

  #nextAddress(family: string): string {
    const range = this.#ranges.find((one) => one.family === family);
    if (range === undefined) throw newInternalError(`no range of ${family} addresses is configured`);
    // The network's own address is no service's; so is the last one of IPv4.
    const size =
      Number(cidrSize(range.cidr) > 65536n ? 65536n : cidrSize(range.cidr)) - (range.family === 'IPv4' ? 2 : 1);
    // The lower part is for addresses that are asked for by name.
    const reserved = Math.min(Math.max(16, Math.floor(size / 16)), 256);
    const start = reserved >= size ? 0 : reserved + Math.floor(Math.random() * (size - reserved));
    for (let step = 0; step < size; step++) {
      const index = 1 + ((start + step) % size);
      const address = canonical(cidrAddress(range.cidr, index));
      if (this.#addresses.has(address)) continue;
      this.#addresses.add(address);
      return address;
    }
    throw newStatusError(
      500,
      'InternalError',
      'Internal error occurred: failed to allocate a serviceIP: range is full',
    );
  }

  #takePorts(service: Service, old: ServiceSpec | undefined, taken: (() => void)[]): void {
    const spec = service.spec ?? {};
    const had = new Set(portsOf(old ?? {}));
    const own = new Map<number, string>();
    if (spec.type === 'NodePort' || spec.type === 'LoadBalancer') {
      for (const [index, port] of (spec.ports ?? []).entries()) {
        const asked = port.nodePort ?? 0;
        if (asked !== 0) {
          // One number may serve TCP and UDP inside one service.
          const other = own.get(asked);
          own.set(asked, port.protocol ?? '');
          if (had.has(asked) || (other !== undefined && other !== port.protocol)) continue;
          this.#refuse(service, this.#takePort(asked, `spec.ports[${index}].nodePort`));
          taken.push(() => this.#ports.delete(asked));
        } else if (needsNodePort(spec)) {
          const next = this.#nextPort();
          port.nodePort = next;
          taken.push(() => this.#ports.delete(next));
        }
      }
    }
    if (!needsHealthPort(spec)) return;
    const health = spec.healthCheckNodePort ?? 0;
    if (health !== 0) {
      if (had.has(health)) return;
      this.#refuse(service, this.#takePort(health, 'spec.healthCheckNodePort'));
      taken.push(() => this.#ports.delete(health));
      return;
    }
    const next = this.#nextPort();
    spec.healthCheckNodePort = next;
    taken.push(() => this.#ports.delete(next));
  }

  #takePort(port: number, field: string): FieldError[] {
    const { from, to } = this.#options.nodePorts;
    if (port < from || port > to) {
      return [
        invalid(field, port, `provided port is not in the valid range. The range of valid ports is ${from}-${to}`),
      ];
    }
    if (this.#ports.has(port)) return [invalid(field, port, 'provided port is already allocated')];
    this.#ports.add(port);
    return [];
  }

  #nextPort(): number {
    const { from, to } = this.#options.nodePorts;
    const size = to - from + 1;
    const start = Math.floor(Math.random() * size);
    for (let step = 0; step < size; step++) {
      const port = from + ((start + step) % size);
      if (this.#ports.has(port)) continue;
      this.#ports.add(port);
      return port;
    }
    throw newStatusError(500, 'InternalError', 'Internal error occurred: failed to allocate a nodePort: range is full');
  }

  #releaseDropped(spec: ServiceSpec, old: ServiceSpec): void {
    const addresses = new Set(spec.clusterIPs);
    for (const address of old.clusterIPs ?? []) if (!addresses.has(address)) this.#addresses.delete(address);
    const ports = new Set(portsOf(spec));
    for (const port of portsOf(old)) if (!ports.has(port)) this.#ports.delete(port);
  }
}

function canonical(address: string): string {
  const ip = parseIp(address);
  return ip === undefined ? address : formatIp(ip);
}

function portsOf(spec: ServiceSpec): number[] {
  const ports = (spec.ports ?? []).map(({ nodePort }) => nodePort ?? 0);
  return [...ports, spec.healthCheckNodePort ?? 0].filter((port) => port !== 0);
}

/** `clusterIP` is the first of `clusterIPs`: what a client that knows only one says counts for both. */
function normalizeAddresses(spec: ServiceSpec, old: ServiceSpec | undefined): void {
  const { clusterIP = '', clusterIPs = [] } = spec;
  if (old === undefined) {
    if (clusterIP !== '' && clusterIPs.length === 0) spec.clusterIPs = [clusterIP];
    return;
  }
  const same =
    clusterIPs.length === (old.clusterIPs ?? []).length &&
    clusterIPs.every((one, index) => one === old.clusterIPs?.[index]);
  if (clusterIP !== (old.clusterIP ?? '') && same) spec.clusterIPs = clusterIP === '' ? [] : [clusterIP];
}

/** What the server gave before is kept where the client does not say. */
function keepAllocated(spec: ServiceSpec, old: ServiceSpec): void {
  if (needsClusterIp(spec) && needsClusterIp(old)) {
    if ((spec.clusterIP ?? '') === '' && (spec.clusterIPs ?? []).length === 0) {
      spec.clusterIP = old.clusterIP;
      spec.clusterIPs = [...(old.clusterIPs ?? [])];
    }
  }
  if (needsNodePort(spec) && (old.type === 'NodePort' || old.type === 'LoadBalancer')) {
    const used = new Set((spec.ports ?? []).map(({ nodePort }) => nodePort ?? 0));
    for (const port of spec.ports ?? []) {
      if ((port.nodePort ?? 0) !== 0) continue;
      const before = (old.ports ?? []).find((one) => one.port === port.port && one.protocol === port.protocol);
      if (before?.nodePort === undefined || used.has(before.nodePort)) continue;
      port.nodePort = before.nodePort;
      used.add(before.nodePort);
    }
  }
  if (needsHealthPort(spec) && needsHealthPort(old) && (spec.healthCheckNodePort ?? 0) === 0)
    spec.healthCheckNodePort = old.healthCheckNodePort;
}

function singleStackErrors({ clusterIPs = [], ipFamilies = [], ipFamilyPolicy }: ServiceSpec): FieldError[] {
  if (ipFamilyPolicy !== 'SingleStack' || (ipFamilies.length < 2 && clusterIPs.length < 2)) return [];
  const what = ipFamilies.length > 1 ? 'IP families' : 'cluster IPs';
  const text = `must be 'RequireDualStack' or 'PreferDualStack' when multiple ${what} are specified`;
  return [invalid('spec.ipFamilyPolicy', ipFamilyPolicy, text)];
}

/** Addresses, families and policy as the client wrote them; checked before anything is taken, and again with the rest. */
export function addressErrors(spec: ServiceSpec): FieldError[] {
  const errors: FieldError[] = [];
  const { clusterIP = '', clusterIPs = [], ipFamilies = [], ipFamilyPolicy } = spec;
  if (ipFamilyPolicy !== undefined && !POLICIES.includes(ipFamilyPolicy))
    errors.push(notSupported('spec.ipFamilyPolicy', ipFamilyPolicy, POLICIES));
  const seen = new Set<string>();
  for (const [index, family] of ipFamilies.entries()) {
    if (!FAMILIES.includes(family)) errors.push(notSupported(`spec.ipFamilies[${index}]`, family, FAMILIES));
    else if (seen.has(family)) errors.push(duplicate(`spec.ipFamilies[${index}]`, family));
    seen.add(family);
  }
  errors.push(...singleStackErrors(spec));
  if (clusterIPs.length > 0 && clusterIP === '')
    errors.push(invalid('spec.clusterIPs', clusterIPs, 'must be empty when `clusterIP` is not specified'));
  else if (clusterIPs.length > 0 && clusterIPs[0] !== clusterIP)
    errors.push(invalid('spec.clusterIPs', clusterIPs, 'first value must match `clusterIP`'));
  for (const [index, address] of clusterIPs.entries()) {
    if (address === 'None') {
      if (clusterIPs.length > 1)
        errors.push(invalid(`spec.clusterIPs[${index}]`, address, "'None' must be the first and only value"));
      if (spec.type !== 'ClusterIP')
        errors.push(
          invalid(`spec.clusterIPs[${index}]`, address, `may not be set to 'None' for ${spec.type ?? ''} services`),
        );
      continue;
    }
    if (parseIp(address) === undefined) errors.push(invalid(`spec.clusterIPs[${index}]`, address, ADDRESS_TEXT));
    else if (ipFamilies[index] !== undefined && ipFamilies[index] !== familyOf(address)) {
      const article = ipFamilies[index] === 'IPv4' ? 'an IPv4' : 'an IPv6';
      errors.push(
        invalid(
          `spec.clusterIPs[${index}]`,
          address,
          `expected ${article} value as indicated by \`ipFamilies[${index}]\``,
        ),
      );
    }
  }
  return errors;
}
