/** The kubeconfig-format file that names a webhook: cluster = where it is, user = who calls. */
import { loadKubeconfig, serverAccess } from '../../api/machinery/kubeconfig.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { WebhookEndpoint } from './webhook-client.ts';

/** Resolves the endpoint anew for each call, because certificate and token files may be replaced. Throws for a file that will not do. */
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

export function presentedOf(presented: Presented): Pick<WebhookEndpoint, 'clientCertificate' | 'authorization'> {
  const { certificate, key, authorization } = presented;
  return {
    ...(certificate === undefined || key === undefined ? {} : { clientCertificate: { certificate, key } }),
    ...(authorization === undefined ? {} : { authorization }),
  };
}
