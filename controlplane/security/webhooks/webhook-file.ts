/** Reads the kubeconfig file of a webhook: the cluster is the webhook's address, and the user has this server's credentials. */
import { loadKubeconfig, serverAccess } from '../../../api/client/kubeconfig.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { WebhookEndpoint } from './webhook-client.ts';

/**
 * Reads the kubeconfig file, and returns the function that reads the endpoint for each call, because certificate and token
 * files may change. Rejects if the file is invalid.
 */
export async function webhookFromFile(path: string, clock: Clock): Promise<() => Promise<WebhookEndpoint>> {
  const access = await serverAccess(await loadKubeconfig(path), { clock });
  const url = new URL(access.server);
  return async () => {
    const presented = await access.credentials.current();
    return {
      url,
      purpose: 'configured',
      ...(access.ca === undefined ? {} : { ca: access.ca }),
      ...(access.serverName === undefined ? {} : { serverName: access.serverName }),
      ...(access.insecureSkipVerify === true ? { insecureSkipVerify: true } : {}),
      ...presentedOf(presented),
    };
  };
}

interface Presented {
  readonly certificate?: string;
  readonly key?: string;
  readonly authorization?: string;
}

/** Returns the credentials of the kubeconfig's user as members of an endpoint; absent ones are left out. */
export function presentedOf(presented: Presented): Pick<WebhookEndpoint, 'clientCertificate' | 'authorization'> {
  const { certificate, key, authorization } = presented;
  return {
    ...(certificate === undefined || key === undefined ? {} : { clientCertificate: { certificate, key } }),
    ...(authorization === undefined ? {} : { authorization }),
  };
}
