/**
 * Cleans up tokens of service accounts that clusters before 1.24 generated automatically and that are unused: they are first
 * marked invalid, and deleted after the same time again. Tokens that users created are kept.
 */
import type { Pod, Secret, ServiceAccount } from '../../../api/kinds/kinds.ts';
import { configMaps, pods, secrets, serviceAccounts } from '../../../api/client/resources.ts';
import { isNotFound } from '../../../api/meta/status-error.ts';
import { every, type RunController } from '../controller.ts';
import { ACCOUNT_NAME, TOKEN_SECRET_TYPE } from './token-secrets.ts';
import { TOKEN_INVALID_SINCE_LABEL, TOKEN_LAST_USED_LABEL } from '../../../api/meta/well-known-labels.ts';
import { SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

/** The ConfigMap in kube-system with the date from which the use of tokens is recorded. */
export const TRACKING = 'kube-apiserver-legacy-service-account-token-tracking';
const PERIOD_MS = 24 * 3600_000;

/** What happens to a token now. */
type Verdict = 'keep' | 'mark' | 'delete';

const dayMs = (text: string | undefined): number => Date.parse(`${text ?? ''}T00:00:00Z`);

/** Decides about an automatically generated token that no pod mounts. */
export function judge(
  secret: Secret,
  { nowMs, sinceMs, unusedMs }: { readonly nowMs: number; readonly sinceMs: number; readonly unusedMs: number },
): Verdict {
  const labels = secret.metadata.labels ?? {};
  const createdMs = Date.parse(secret.metadata.creationTimestamp ?? '') || 0;
  const usedMs = dayMs(labels[TOKEN_LAST_USED_LABEL]);
  // A token without a label was not used since the API server tracks the use of tokens.
  const idleSinceMs = Number.isFinite(usedMs) ? usedMs : Math.max(sinceMs, createdMs);
  if (idleSinceMs + unusedMs > nowMs) return 'keep';
  const invalidMs = dayMs(labels[TOKEN_INVALID_SINCE_LABEL]);
  if (!Number.isFinite(invalidMs)) return 'mark';
  return Math.max(invalidMs, Number.isFinite(usedMs) ? usedMs : 0) + unusedMs > nowMs ? 'keep' : 'delete';
}

/** Whether the secret was generated automatically: the service account lists such secrets. */
function isAutomatic(secret: Secret, account: ServiceAccount | undefined): boolean {
  return (account?.secrets ?? []).some(({ name }) => name === secret.metadata.name);
}

const mounts = (pod: Pod): string[] =>
  (pod.spec?.volumes ?? []).flatMap(({ secret }) => (secret?.secretName === undefined ? [] : [secret.secretName]));

/**
 * Runs the controller that marks unused token secrets as invalid and deletes them later. It does nothing until the use of
 * tokens has been recorded for the whole clean-up period.
 */
export const runLegacyTokenCleaner: RunController = async (environment, signal) => {
  const { client, informers, clock, options } = environment;
  const accounts = informers.for(serviceAccounts);
  const podCache = informers.for(pods);
  const tokens = informers.for(secrets, { fieldSelector: `type=${TOKEN_SECRET_TYPE}` });

  async function trackedSinceMs(): Promise<number> {
    try {
      const tracking = await client.get(configMaps, SYSTEM_NAMESPACE, TRACKING);
      return dayMs(tracking.data?.['since']);
    } catch (error) {
      if (isNotFound(error)) return Number.NaN;
      throw error;
    }
  }

  await every(environment, PERIOD_MS, signal, async () => {
    await Promise.all([accounts.synced(signal), podCache.synced(signal), tokens.synced(signal)]);
    const unusedMs = options.legacyServiceAccountTokenCleanUpPeriodMs;
    const sinceMs = await trackedSinceMs();
    const nowMs = clock.now();
    if (!Number.isFinite(sinceMs) || sinceMs + unusedMs > nowMs) return;
    for (const secret of tokens.list()) {
      const { name = '', namespace = '', uid, annotations } = secret.metadata;
      if (!isAutomatic(secret, accounts.get(namespace, annotations?.[ACCOUNT_NAME] ?? ''))) continue;
      if (podCache.list(namespace).some((pod) => mounts(pod).includes(name))) continue;
      const verdict = judge(secret, { nowMs, sinceMs, unusedMs });
      if (verdict === 'mark') {
        const labels = { [TOKEN_INVALID_SINCE_LABEL]: new Date(nowMs).toISOString().slice(0, 10) };
        await client.patch(secrets, namespace, name, { type: 'merge', body: { metadata: { labels } } });
      } else if (verdict === 'delete')
        await client.delete(secrets, namespace, name, uid === undefined ? {} : { preconditions: { uid } });
    }
  });
};
