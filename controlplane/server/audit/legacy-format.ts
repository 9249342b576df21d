/** Formats an event as a line of `--audit-log-format=legacy`, which contains metadata only. Pure. */
import { quote } from '../../../api/meta/field-error.ts';
import type { AuditEvent } from './event.ts';

interface Person {
  readonly username?: string;
  readonly groups?: readonly string[];
}

const quoted = (items: readonly string[]): string => items.map(quote).join(',');

/** Returns the line without a line break; strings are quoted, so that a request cannot forge another line. */
export function legacyLine(event: AuditEvent): string {
  const user = (event['user'] ?? {}) as Person;
  const as = event['impersonatedUser'] as Person | undefined;
  const text = (name: string): string => quote(String(event[name] ?? ''));
  const hasName = (user.username ?? '') !== '';
  const groups = hasName && (user.groups ?? []).length > 0 ? quoted(user.groups ?? []) : '<none>';
  const asGroups = as?.groups === undefined ? '<lookup>' : quoted(as.groups);
  const [address = '<unknown>'] = (event['sourceIPs'] ?? []) as readonly string[];
  const { namespace = '<none>' } = (event['objectRef'] ?? {}) as { readonly namespace?: string };
  const { code } = (event['responseStatus'] ?? {}) as { readonly code?: number };
  return [
    `${String(event['requestReceivedTimestamp'])} AUDIT:`,
    `id=${text('auditID')}`,
    `stage=${text('stage')}`,
    `ip=${quote(address)}`,
    `method=${text('verb')}`,
    `user=${quote(hasName ? (user.username ?? '') : '<none>')}`,
    `groups=${groups}`,
    `as=${quote(as === undefined ? '<self>' : (as.username ?? ''))}`,
    `asgroups=${asGroups}`,
    `user-agent=${text('userAgent')}`,
    `namespace=${quote(namespace)}`,
    `uri=${text('requestURI')}`,
    `response="${code ?? '<deferred>'}"`,
  ].join(' ');
}
