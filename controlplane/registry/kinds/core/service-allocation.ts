/** Allocates cluster addresses (`service-ranges.ts`) and node ports of services. */
import { invalid, type FieldError } from '../../../../api/meta/field-error.ts';
import { newErrorWithoutReason, newInternalError, newInvalid } from '../../../../api/meta/status-error.ts';
import type { Reservation } from '../../strategy.ts';
import { initFamilies, keepAllocated, normalizeAddresses, staysPreferred } from './service-families.ts';
import { NodePortRange } from './node-port-range.ts';
import { ServiceClaims } from './service-claims.ts';
import { ServiceRanges, type ServiceRangesOptions } from './service-ranges.ts';
import {
  hasNodePorts,
  isHeadless,
  needsClusterIp,
  needsHealthPort,
  needsNodePort,
  type Service,
  type ServicePort,
  type ServiceSpec,
} from './service-types.ts';
import { upperFirst } from '../upper-first.ts';

interface AllocationOptions extends ServiceRangesOptions {
  readonly nodePorts: { readonly from: number; readonly to: number };
}

/** Allocates addresses and ports. One instance serves all writes of this server. */
export class ServiceAllocator {
  readonly #options: AllocationOptions;
  readonly #ranges: ServiceRanges;
  readonly #claims: ServiceClaims;
  /** The node ports of running writes. */
  readonly #ports = new Set<number>();
  /** Allocates node ports among several servers. */
  readonly nodePorts: NodePortRange;

  constructor(options: AllocationOptions) {
    this.#options = options;
    this.#claims = new ServiceClaims(options.stores);
    this.#ranges = new ServiceRanges(options, this.#claims);
    this.nodePorts = new NodePortRange({
      ports: options.nodePorts,
      claims: this.#claims,
      storage: () => options.stores.get('', 'services').storage,
    });
  }

  /**
   * Allocates what `service` needs beyond `old`. Throws a 422 if a requested address or port cannot be allocated, and a 500 if
   * a range is full, a requested health check port cannot be allocated, or a changed service has one node port twice.
   */
  reserve(service: Service, old: Service | undefined): Reservation {
    const spec = (service.spec ??= {});
    if (old?.spec !== undefined) keepAllocated(spec, old.spec);
    normalizeAddresses(spec, old?.spec);
    const releases: (() => void)[] = [];
    const release = (): void => {
      for (const undo of releases.splice(0).reverse()) undo();
    };
    try {
      this.#refuse(service, initFamilies(spec, old?.spec, this.#ranges.families));
      this.#takeAddresses(service, old?.spec, releases);
      this.#takePorts(service, old?.spec, releases);
    } catch (error) {
      release();
      throw error;
    }
    return { commit: release, revert: release };
  }

  #refuse(service: Service, errors: readonly FieldError[]): void {
    if (errors.length > 0) throw newInvalid({ group: '', resource: 'Service' }, service.metadata.name ?? '', errors);
  }

  #takeAddresses(service: Service, old: ServiceSpec | undefined, releases: (() => void)[]): void {
    const spec = service.spec ?? {};
    if (!needsClusterIp(spec) || isHeadless(spec) || staysPreferred({ spec }, old)) return;
    const oldAddresses = old !== undefined && needsClusterIp(old) ? (old.clusterIPs ?? []) : [];
    if (oldAddresses[0] === 'None') return;
    const addresses = [...(spec.clusterIPs ?? [])];
    for (const [index, family] of (spec.ipFamilies ?? []).entries()) {
      // Validation refuses to replace the address of a service.
      if (oldAddresses[index] !== undefined) continue;
      const requested = addresses[index] ?? '';
      if (requested === '') {
        const address = this.#nextAddress(family);
        addresses[index] = address;
        releases.push(() => this.#ranges.free(address));
      } else {
        const refusal = this.#ranges.take(requested, family);
        if (refusal !== undefined) {
          const text = `failed to allocate IP ${requested}: ${refusal}`;
          this.#refuse(service, [invalid('spec.clusterIPs', addresses, text)]);
        }
        releases.push(() => this.#ranges.free(requested));
      }
    }
    spec.clusterIPs = addresses;
    spec.clusterIP = addresses[0];
  }

  #nextAddress(family: string): string {
    const address = this.#ranges.takeNext(family);
    if (address === undefined) throw newInternalError('failed to allocate a serviceIP: range is full');
    return address;
  }

  #takePorts(service: Service, old: ServiceSpec | undefined, releases: (() => void)[]): void {
    const spec = service.spec ?? {};
    if (hasNodePorts(spec)) {
      if (old === undefined) this.#newNodePorts(service, spec, releases);
      else this.#changedNodePorts(service, spec, old, releases);
    }
    if (!needsHealthPort(spec) || (old !== undefined && needsHealthPort(old))) return;
    const health = spec.healthCheckNodePort ?? 0;
    if (health === 0) {
      spec.healthCheckNodePort = this.#nextPort(releases);
      return;
    }
    const [error] = this.#takePort(health, 'spec.healthCheckNodePort', releases);
    if (error !== undefined) {
      const text = `failed to allocate requested HealthCheck NodePort ${health}: ${error.detail}`;
      throw old === undefined ? newInternalError(text) : newErrorWithoutReason(text);
    }
  }

  /** Allocates node ports. A service port may have the same node port for several protocols. */
  #newNodePorts(service: Service, spec: ServiceSpec, releases: (() => void)[]): void {
    const nodePorts = new Map<number, number>();
    const ports = spec.ports ?? [];
    for (const [index, port] of ports.entries()) {
      const requested = port.nodePort ?? 0;
      if (requested === 0 && !needsNodePort(spec)) continue;
      const number = port.port ?? 0;
      const allocated = nodePorts.get(number);
      const field = `spec.ports[${index}].nodePort`;
      if (allocated === undefined) {
        const first = requestedPort(number, ports);
        if (first === 0) port.nodePort = this.#nextPort(releases);
        else {
          this.#refuse(service, this.#takePort(first, field, releases));
          port.nodePort = first;
        }
        nodePorts.set(number, port.nodePort);
      } else if (requested === 0) port.nodePort = allocated;
      else if (requested !== allocated) this.#refuse(service, this.#takePort(requested, field, releases));
    }
  }

  #changedNodePorts(service: Service, spec: ServiceSpec, old: ServiceSpec, releases: (() => void)[]): void {
    const oldPorts = new Set((old.ports ?? []).map(({ nodePort }) => nodePort ?? 0));
    const newPorts = new Set<number>();
    const pairs = new Set<string>();
    for (const [index, port] of (spec.ports ?? []).entries()) {
      const requested = port.nodePort ?? 0;
      if (requested === 0 && !needsNodePort(spec)) continue;
      if (requested === 0) port.nodePort = this.#nextPort(releases);
      else if (!oldPorts.has(requested) && !newPorts.has(requested)) {
        this.#refuse(service, this.#takePort(requested, `spec.ports[${index}].nodePort`, releases));
        newPorts.add(requested);
      }
      const pair = `{${port.protocol ?? ''} ${port.nodePort}}`;
      if (pairs.has(pair)) throw newErrorWithoutReason(`duplicate nodePort: ${pair}`);
      pairs.add(pair);
    }
  }

  #takePort(port: number, field: string, releases: (() => void)[]): FieldError[] {
    const { from, to } = this.#options.nodePorts;
    if (port < from || port > to) {
      return [
        invalid(field, port, `provided port is not in the valid range. The range of valid ports is ${from}-${to}`),
      ];
    }
    if (this.#isTaken(port)) return [invalid(field, port, 'provided port is already allocated')];
    this.#ports.add(port);
    releases.push(() => this.#ports.delete(port));
    return [];
  }

  #nextPort(releases: (() => void)[]): number {
    const { from, to } = this.#options.nodePorts;
    const size = to - from + 1;
    // As in kube-apiserver, a 32nd of the range, but 16 to 128 ports, comes last: clients request its ports.
    const reserved = size <= 16 ? 0 : Math.min(Math.max(16, Math.floor(size / 32)), 128);
    for (const index of upperFirst(size, reserved)) {
      const port = from + index;
      if (this.#isTaken(port) || this.nodePorts.avoids(port)) continue;
      this.#ports.add(port);
      releases.push(() => this.#ports.delete(port));
      return port;
    }
    this.nodePorts.forgetAvoided();
    throw newInternalError('failed to allocate a nodePort: range is full');
  }

  #isTaken(port: number): boolean {
    return this.#ports.has(port) || this.#claims.countOf(port) > 0;
  }
}

/** Returns the first node port that a client requests for one of the protocols of a port, or 0 if it requests none. */
function requestedPort(number: number, ports: readonly ServicePort[]): number {
  return ports.find(({ port, nodePort }) => port === number && (nodePort ?? 0) !== 0)?.nodePort ?? 0;
}
