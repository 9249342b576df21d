/** Deletes expired bootstrap tokens. */
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { Secret } from '../../../api/kinds/kinds.ts';
import { secrets } from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type RunController } from '../controller.ts';
import { SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

/** Selects the Secrets of bootstrap tokens, for an informer. */
export const BOOTSTRAP_TOKENS = {
  namespace: SYSTEM_NAMESPACE,
  fieldSelector: 'type=bootstrap.kubernetes.io/token',
} as const;

/** Returns a field of a token's Secret, decoded from base64. A missing field is an empty text. */
export function tokenField(secret: Secret, field: string): string {
  return Buffer.from(secret.data?.[field] ?? '', 'base64').toString('utf8');
}

/** Whether the token has expired. One whose expiration cannot be parsed has, because it would be valid for ever otherwise. */
export function isExpired(secret: Secret, nowMs: number): boolean {
  const text = tokenField(secret, 'expiration');
  if (text === '') return false;
  const at = Date.parse(text);
  return !Number.isFinite(at) || at <= nowMs;
}

/**
 * Runs the controller that deletes expired bootstrap tokens. A deletion that fails is retried at least once a minute. Tokens
 * without an expiration stay.
 */
export const runTokenCleaner: RunController = (environment, signal) => {
  const { client, clock, informers } = environment;
  const tokens = informers.for(secrets, BOOTSTRAP_TOKENS);
  const loop = new ReconcileLoop(environment, {
    maxDelayMs: 60_000,
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const secret = tokens.get(namespace, name);
      if (secret === undefined || tokenField(secret, 'expiration') === '') return;
      if (!isExpired(secret, clock.now()))
        return loop.queue.addAfter(key, Date.parse(tokenField(secret, 'expiration')) - clock.now());
      const { uid } = secret.metadata;
      await tolerate(
        client.delete(secrets, namespace, name, uid === undefined ? {} : { preconditions: { uid } }),
        isNotFound,
      );
    },
  });
  tokens.addHandler({ add: loop.enqueue, update: (_, secret) => loop.enqueue(secret) });
  return loop.run(signal, tokens);
};
