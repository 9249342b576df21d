/** Knows the addresses of this API server, so that connections to addresses that others choose cannot lead back to it. */
import { addressClasses, addressKey } from '../../api/http/address-class.ts';
import { hostAddresses } from './host-address.ts';

const SERVICE_PORT = 443;

interface OwnEndpointOptions {
  /** `--secure-port`, until the server listens. */
  readonly port: number;
  /** Addresses such as that of `--advertise-address`, in addition to the addresses of the host. */
  readonly addresses: readonly string[];
  /** The cluster IP of the service `kubernetes`. */
  readonly serviceIp: string | undefined;
}

/** The addresses and the port of this API server. */
export class OwnEndpoint {
  readonly #addresses: ReadonlySet<string>;
  readonly #service: string | undefined;
  #port: number;

  constructor({ port, addresses, serviceIp }: OwnEndpointOptions) {
    this.#port = port;
    this.#addresses = new Set(addresses.map(addressKey));
    this.#service = serviceIp === undefined ? undefined : addressKey(serviceIp);
  }

  /** Sets the port, which is known once the server listens. */
  listensOn(port: number): void {
    this.#port = port;
  }

  /** Whether the address and port are those of this server. The host's addresses are read each time, because they change. */
  includes(address: string, port: number): boolean {
    const key = addressKey(address);
    if (port === SERVICE_PORT && key === this.#service) return true;
    if (port !== this.#port) return false;
    const classes = addressClasses(address);
    if (classes.includes('loopback') || classes.includes('unspecified')) return true;
    return this.#addresses.has(key) || hostAddresses().some((hostAddress) => addressKey(hostAddress) === key);
  }
}
