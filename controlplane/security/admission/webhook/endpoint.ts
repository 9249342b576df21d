/** Resolves the address of a webhook, a URL or a service of the cluster, and the server's credentials for it by host name. */
import { errorMessage } from '../../../../api/meta/error-message.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import type { EndpointSlice, Service } from '../../../../api/kinds/kinds.ts';
import { BackendError, backendOf } from '../../../model/service-backend.ts';
import type { WebhookEndpoint } from '../../webhooks/webhook-client.ts';
import type { Lister } from '../../../model/listers.ts';
import type { Webhook } from './matching.ts';

/** Credentials for a server's `host` or `host:port`, from the admission configuration's kubeconfig. */
export type WebhookCredentials = (
  serverName: string,
) => Promise<Pick<WebhookEndpoint, 'clientCertificate' | 'authorization'>>;

/** Where services are resolved, and which credentials the server has. */
export interface EndpointOptions {
  readonly services: Lister<Service>;
  readonly endpointSlices: Lister<EndpointSlice>;
  readonly credentials?: WebhookCredentials;
  /** Returns a number from 0 up to 1, which picks one of several addresses. */
  readonly random: () => number;
}

type ClientConfig = Webhook['clientConfig'];

class EndpointError extends Error {
  override readonly name = 'EndpointError';
}

/** Returns why a call had no response, in the words of Go's HTTP client. */
export function failedCall(config: ClientConfig, timeoutSeconds: number, error: unknown, isLate: boolean): string {
  const reason = errorMessage(error);
  return `Post ${quoteText(shownUrl(config, timeoutSeconds))}: ${isLate ? 'context deadline exceeded' : reason}`;
}

/** Returns the URL as in error messages: always with the port of a service, and with the port of a URL if it names one. */
function shownUrl({ url, service }: ClientConfig, timeoutSeconds: number): string {
  const query = `timeout=${timeoutSeconds}s`;
  if (url !== undefined && url !== null && url !== '') {
    const { protocol, hostname, port, pathname } = new URL(url);
    const named = port === '' && /^https:\/\/[^/]*:443(\/|$)/.test(url) ? '443' : port;
    return `${protocol}//${hostname}${named === '' ? '' : `:${named}`}${pathname}?${query}`;
  }
  const { name = '', namespace = '', port = 443, path = '/' } = service ?? {};
  return `https://${name}.${namespace}.svc:${port}${path}?${query}`;
}

/**
 * Returns the URL, the TLS settings and the credentials for a webhook. Throws `EndpointError` if it has neither a URL nor a
 * service with an address.
 */
export async function endpointOf(
  config: ClientConfig,
  timeoutSeconds: number,
  options: EndpointOptions,
): Promise<WebhookEndpoint> {
  const ca =
    config.caBundle === undefined || config.caBundle === ''
      ? {}
      : { ca: Buffer.from(config.caBundle, 'base64').toString('utf8') };
  if (config.url !== undefined && config.url !== null && config.url !== '') {
    const url = new URL(config.url);
    url.searchParams.set('timeout', `${timeoutSeconds}s`);
    const credentials = await options.credentials?.(url.port === '' ? url.hostname : url.host);
    return { url, purpose: 'webhook-url', ...ca, ...credentials };
  }
  const { service } = config;
  if (service === undefined || service === null) throw new EndpointError('webhook must specify either url or service');
  const port = service.port ?? 443;
  const serverName = `${service.name}.${service.namespace}.svc`;
  const url = new URL(`https://${serverName}${port === 443 ? '' : `:${port}`}`);
  url.pathname = service.path ?? '/';
  url.searchParams.set('timeout', `${timeoutSeconds}s`);
  const connectTo = addressOf(service, port, options);
  const credentials = await options.credentials?.(port === 443 ? serverName : `${serverName}:${port}`);
  return { url, serverName, connectTo, purpose: 'webhook-service', ...ca, ...credentials };
}

/**
 * Returns an address of the service's endpoints, so that the webhook is reachable without a service proxy on this host. The
 * owner of the service chooses the address, so the dialer checks it.
 */
function addressOf(
  service: NonNullable<ClientConfig['service']>,
  port: number,
  options: EndpointOptions,
): { readonly host: string; readonly port: number } {
  const name = quoteText(service.name);
  try {
    const { host, port: target } = backendOf({ ...service, port }, options, options.random);
    return { host, port: target };
  } catch (error) {
    if (!(error instanceof BackendError)) throw error;
    if (error.reason === 'ServiceNotFound') throw new EndpointError(`service ${name} not found`, { cause: error });
    if (error.reason === 'ServicePortError')
      throw new EndpointError(`no service port ${port} found for service ${name}`, { cause: error });
    throw new EndpointError(`no endpoints available for service ${name}`, { cause: error });
  }
}
