/**
 * Resolves the service of an APIService or a webhook: the address of one of its endpoints, and the name that the server's
 * certificate must have.
 */
import { quoteText } from '../../api/meta/quote.ts';
import type { Service, EndpointSlice } from '../../api/kinds/kinds.ts';
import type { Lister } from './listers.ts';
import { SERVICE_NAME_LABEL } from '../../api/meta/well-known-labels.ts';

/** The service that an APIService or a webhook names. The port is 443 if it is absent. */
export interface ServiceReference {
  readonly namespace?: string;
  readonly name?: string;
  readonly port?: number;
}

/** The caches in which services are resolved. */
export interface BackendListers {
  readonly services: Lister<Service>;
  readonly endpointSlices: Lister<EndpointSlice>;
}

/** The address of an endpoint, and how the server there is verified. */
export interface Backend {
  readonly host: string;
  readonly port: number;
  /** The service as `service/<namespace>/<name>`. */
  readonly service: string;
  /** The name that the server's certificate must have. */
  readonly serverName: string;
}

/** A service that cannot be reached, with the reason of the condition. */
export class BackendError extends Error {
  readonly reason: string;
  constructor(reason: string, message: string) {
    super(message);
    this.reason = reason;
  }
}

/**
 * Returns the address of a service's backend. `random` picks one of several addresses. Throws `BackendError` if the service is
 * missing, has no such port, or has no ready endpoint.
 */
export function backendOf(reference: ServiceReference, listers: BackendListers, random: () => number): Backend {
  const { namespace = '', name = '', port = 443 } = reference;
  const shown = `service/${name} in ${quoteText(namespace)}`;
  const service = listers.services.get(namespace, name);
  if (service === undefined) throw new BackendError('ServiceNotFound', `${shown} is not present`);
  const serverName = `${name}.${namespace}.svc`;
  const { spec } = service;
  const verification = { service: `service/${namespace}/${name}`, serverName };
  if (spec?.type === 'ExternalName') return { host: spec.externalName ?? '', port, ...verification };
  const found = (spec?.ports ?? []).find((one) => one.port === port);
  if (found === undefined) throw new BackendError('ServicePortError', `${shown} is not listening on port ${port}`);
  const portName = found.name ?? '';
  const addresses: { host: string; port: number }[] = [];
  const slices = listers.endpointSlices
    .list(namespace)
    .filter((one) => one.metadata.labels?.[SERVICE_NAME_LABEL] === name);
  if (slices.length === 0) {
    const why = `cannot find endpointslices for service/${name} in ${quoteText(namespace)}`;
    throw new BackendError('EndpointsNotFound', why);
  }
  for (const slice of slices) {
    const target = (slice.ports ?? []).find((one) => (one.name ?? '') === portName)?.port;
    if (target === undefined) continue;
    for (const endpoint of slice.endpoints ?? []) {
      if (endpoint.conditions?.ready === false) continue;
      for (const host of endpoint.addresses ?? []) addresses.push({ host, port: target });
    }
  }
  const picked = addresses[Math.floor(random() * addresses.length)];
  if (picked === undefined) {
    const where = quoteText(portName);
    throw new BackendError(
      'MissingEndpoints',
      `endpoints for service/${name} in ${quoteText(namespace)} have no addresses with port name ${where}`,
    );
  }
  return { ...picked, ...verification };
}
