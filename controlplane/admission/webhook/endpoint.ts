/** Where a webhook is and how the server proves itself there: URL, or a service of the cluster; credentials by host name. */
import type { Service } from '../../../api/machinery/kinds.ts';
import { isLocalAddress, type WebhookEndpoint } from '../../authentication/webhook-client.ts';
import type { Source } from '../sources.ts';
import type { Webhook } from './matching.ts';

/** Credentials for a server's `host` or `host:port`, from the admission configuration's kubeconfig. */
export type WebhookCredentials = (
  serverName: string,
) => Promise<Pick<WebhookEndpoint, 'clientCertificate' | 'authorization'>>;

export interface EndpointOptions {
  readonly services: Source<Service>;
  readonly credentials?: WebhookCredentials;
}

export class EndpointError extends Error {
  override readonly name = 'EndpointError';
}

/** Throws `EndpointError` where the service cannot be found. */
export async function endpointOf(
  webhook: Webhook,
  timeoutSeconds: number,
  options: EndpointOptions,
): Promise<WebhookEndpoint> {
  const config = webhook.clientConfig;
  const ca =
    config.caBundle === undefined || config.caBundle === ''
      ? {}
      : { ca: Buffer.from(config.caBundle, 'base64').toString('utf8') };
  if (config.url !== undefined && config.url !== null && config.url !== '') {
    const url = new URL(config.url);
    url.searchParams.set('timeout', `${timeoutSeconds}s`);
    const credentials = await options.credentials?.(url.port === '' ? url.hostname : url.host);
    return { url, ...ca, ...credentials };
  }
  const { service } = config;
  if (service === undefined || service === null) throw new EndpointError('webhook must specify either url or service');
  const port = service.port ?? 443;
  const serverName = `${service.name}.${service.namespace}.svc`;
  const url = new URL(`https://${serverName}${port === 443 ? '' : `:${port}`}`);
  url.pathname = service.path ?? '/';
  url.searchParams.set('timeout', `${timeoutSeconds}s`);
  const found =
    options.services.get(service.namespace, service.name) ??
    (await options.services.live(service.namespace, service.name));
  if (found === undefined) throw new EndpointError(`service ${JSON.stringify(service.name)} not found`);
  const connectTo = { host: addressOf(found, port), port, isForeign: true };
  const credentials = await options.credentials?.(port === 443 ? serverName : `${serverName}:${port}`);
  return { url, serverName, connectTo, ...ca, ...credentials };
}

function checkedAddress(host: string): string {
  if (isLocalAddress(host)) throw new EndpointError(`${host} is an address of the control plane's own host`);
  return host;
}

/** Only an address that the cluster gave the service: never one that its author chose freely. */
function addressOf(service: Service, port: number): string {
  const { spec } = service;
  const name = service.metadata.name ?? '';
  // Names are looked at when they are resolved.
  if (spec?.type === 'ExternalName') return checkedAddress(spec.externalName ?? '');
  const address = spec?.clusterIP ?? '';
  if (address === '' || address === 'None')
    throw new EndpointError(`service ${JSON.stringify(name)} has no cluster address`);
  if (!(spec?.ports ?? []).some((one) => one.port === port)) {
    throw new EndpointError(`no service port ${port} found for service ${JSON.stringify(name)}`);
  }
  return address;
}
