/** Authenticates bootstrap tokens `<id>.<secret>`, which are Secrets of kube-system, for nodes that have no credentials yet. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Secret } from '../../../api/kinds/kinds.ts';
import type { Authenticated, TokenAuthenticator } from './authentication.ts';

/** Matches a token. The groups are its id and its secret. */
export const BOOTSTRAP_TOKEN = /^([a-z0-9]{6})\.([a-z0-9]{16})$/;
const GROUP = /^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$/;
const RFC3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
/** The type of the Secrets of tokens. */
export const BOOTSTRAP_TOKEN_TYPE = 'bootstrap.kubernetes.io/token';

interface BootstrapTokenOptions {
  /** Returns a Secret of kube-system by its name. */
  readonly secret: (name: string) => Secret | undefined;
  readonly clock: Clock;
}

/** Returns the extra groups, sorted and without duplicates; `undefined` if one of them is not allowed. */
function bootstrapGroups(text: string): string[] | undefined {
  if (text === '') return [];
  const groups = [...new Set(text.split(','))].sort();
  return groups.every((group) => GROUP.test(group)) ? groups : undefined;
}

/**
 * Creates the authenticator of bootstrap tokens. It returns `undefined` for every token that is not valid for authentication,
 * whatever the reason. Secrets are compared in constant time.
 */
export function bootstrapTokenAuthenticator(options: BootstrapTokenOptions): TokenAuthenticator {
  return {
    authenticateToken(token): Authenticated | undefined {
      const match = BOOTSTRAP_TOKEN.exec(token);
      if (match === null) return undefined;
      const [, id = '', given = ''] = match;
      const secret = options.secret(`bootstrap-token-${id}`);
      if (secret === undefined || secret.metadata.deletionTimestamp !== undefined) return undefined;
      if (secret.type !== BOOTSTRAP_TOKEN_TYPE) return undefined;
      const data = (key: string): string => Buffer.from(secret.data?.[key] ?? '', 'base64').toString('utf8');
      if (!sameText(data('token-secret'), given) || data('token-id') !== id) return undefined;
      if (expired(data('expiration'), options.clock.now())) return undefined;
      if (data('usage-bootstrap-authentication') !== 'true') return undefined;
      const extra = bootstrapGroups(data('auth-extra-groups'));
      if (extra === undefined) return undefined;
      return { user: { name: `system:bootstrap:${id}`, groups: ['system:bootstrappers', ...extra] } };
    },
  };
}

/**
 * Whether the time has passed. A time that is not in RFC 3339, to which `Date.parse` may give another meaning, counts as
 * passed.
 */
function expired(text: string, nowMs: number): boolean {
  if (text === '') return false;
  if (!RFC3339.test(text)) return true;
  const atMs = Date.parse(text);
  return Number.isNaN(atMs) || atMs < nowMs;
}

/** Compares digests, so that the duration reveals neither content nor length. */
export function sameText(a: string, b: string): boolean {
  const hash = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(hash(a), hash(b)) && a.length === b.length;
}
