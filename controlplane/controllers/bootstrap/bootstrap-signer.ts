/** Signs the kubeconfig of `cluster-info` with each bootstrap token that may sign, so that joining hosts can verify it. */
import { stringifyJson } from '../../../api/codec/json.ts';
import { createHmac } from 'node:crypto';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import type { Secret } from '../../../api/kinds/kinds.ts';
import { configMaps, secrets } from '../../../api/client/resources.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';
import { BOOTSTRAP_TOKENS, isExpired, tokenField } from './token-cleaner.ts';
import { CLUSTER_INFO, PUBLIC_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

const PREFIX = 'jws-kubeconfig-';

/** Returns a detached JWS (RFC 7515, appendix F) with HS256 over the content. */
export function detachedSignature(content: string, tokenId: string, tokenSecret: string): string {
  const header = Buffer.from(stringifyJson({ alg: 'HS256', kid: tokenId })).toString('base64url');
  const payload = Buffer.from(content).toString('base64url');
  const signature = createHmac('sha256', tokenSecret).update(`${header}.${payload}`).digest('base64url');
  return `${header}..${signature}`;
}

function wantedSignatures(content: string, tokens: readonly Secret[], nowMs: number): Record<string, string> {
  const signatures: Record<string, string> = {};
  for (const secret of tokens) {
    const id = tokenField(secret, 'token-id');
    const key = tokenField(secret, 'token-secret');
    if (
      secret.metadata.name !== `bootstrap-token-${id}` ||
      key === '' ||
      tokenField(secret, 'usage-bootstrap-signing') !== 'true'
    )
      continue;
    if (secret.metadata.deletionTimestamp === undefined && !isExpired(secret, nowMs))
      signatures[`${PREFIX}${id}`] = detachedSignature(content, id, key);
  }
  return signatures;
}

/**
 * Signs the ConfigMap `cluster-info` in kube-public when it or a token changes. Signatures of removed tokens are removed.
 */
export const runBootstrapSigner: RunController = (environment, signal) => {
  const { client, clock, informers } = environment;
  const tokens = informers.for(secrets, BOOTSTRAP_TOKENS);
  const maps = informers.for(configMaps, {
    namespace: PUBLIC_NAMESPACE,
    fieldSelector: `metadata.name=${CLUSTER_INFO}`,
  });
  const loop = new ReconcileLoop(environment, {
    reconcile: async () => {
      const map = maps.get(PUBLIC_NAMESPACE, CLUSTER_INFO);
      const content = map?.data?.['kubeconfig'];
      if (map === undefined || content === undefined) return;
      const otherKeys = Object.fromEntries(Object.entries(map.data ?? {}).filter(([key]) => !key.startsWith(PREFIX)));
      const data = { ...otherKeys, ...wantedSignatures(content, tokens.list(), clock.now()) };
      if (!semanticEqual(data, map.data)) await client.update(configMaps, { ...map, data });
    },
  });
  const changed = (): void => void loop.queue.add(CLUSTER_INFO);
  maps.addHandler({ add: changed, update: changed });
  tokens.addHandler({ add: changed, update: changed, delete: changed });
  return loop.run(signal, tokens, maps);
};
