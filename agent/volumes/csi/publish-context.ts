/** The information about the pod that a driver gets: its name, tokens of its service account, secrets. */
import type { CSIDriver } from '../../../api/kinds/kinds.ts';
import type { Pod } from '../../base/model/pod.ts';

interface TokenStatus {
  readonly token: string;
  readonly expirationTimestamp: string;
}

/** Where secrets and tokens come from. Both reject if the API server refuses them. */
export interface ContextSources {
  readonly secret: (namespace: string, name: string) => Promise<Readonly<Record<string, string>>>;
  readonly token: (
    pod: Pod,
    spec: { readonly audience: string | undefined; readonly expirationSeconds: number },
  ) => Promise<TokenStatus>;
}

interface PublishContext {
  readonly attributes: Readonly<Record<string, string>>;
  readonly secrets: Readonly<Record<string, string>>;
}

const DEFAULT_TOKEN_SECONDS = 3600;
const TOKENS = 'csi.storage.k8s.io/serviceAccount.tokens';

/** Resolves to the context and the secrets of NodePublishVolume. A driver gets what its CSIDriver object asks for. */
export async function publishContext(
  request: {
    readonly pod: Pod;
    readonly driver: CSIDriver | undefined;
    readonly isEphemeral: boolean;
    readonly attributes: Readonly<Record<string, string>>;
    readonly secretRef: { readonly namespace: string; readonly name: string } | undefined;
  },
  sources: ContextSources,
): Promise<PublishContext> {
  const { pod, driver, isEphemeral, secretRef } = request;
  const tokens = await tokensFor(pod, driver, sources);
  const tokenEntry = tokens === undefined ? {} : { [TOKENS]: tokens };
  const asSecret = driver?.spec?.serviceAccountTokenInSecrets === true;
  const secrets = secretRef === undefined ? {} : await sources.secret(secretRef.namespace, secretRef.name);
  return {
    attributes: {
      ...request.attributes,
      ...(driver?.spec?.podInfoOnMount === true
        ? {
            'csi.storage.k8s.io/pod.name': pod.metadata.name,
            'csi.storage.k8s.io/pod.namespace': pod.metadata.namespace,
            'csi.storage.k8s.io/pod.uid': pod.metadata.uid,
            'csi.storage.k8s.io/serviceAccount.name': pod.spec.serviceAccountName ?? '',
            'csi.storage.k8s.io/ephemeral': String(isEphemeral),
          }
        : {}),
      ...(asSecret ? {} : tokenEntry),
    },
    secrets: { ...secrets, ...(asSecret ? tokenEntry : {}) },
  };
}

async function tokensFor(
  pod: Pod,
  driver: CSIDriver | undefined,
  sources: ContextSources,
): Promise<string | undefined> {
  const requests = driver?.spec?.tokenRequests ?? [];
  if (requests.length === 0) return undefined;
  const byAudience: Record<string, TokenStatus> = {};
  for (const { audience, expirationSeconds } of requests) {
    const spec = {
      audience: audience === '' ? undefined : audience,
      expirationSeconds: expirationSeconds ?? DEFAULT_TOKEN_SECONDS,
    };
    byAudience[audience] = await sources.token(pod, spec);
  }
  return JSON.stringify(byAudience);
}
