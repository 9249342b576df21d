/** Makes and reads bootstrap tokens (`abcdef.0123456789abcdef`) and the Secrets of the cluster that hold them. */
import { randomInt } from 'node:crypto';
import { formatTime } from '../../api/machinery/clock.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { BOOTSTRAP_TOKEN, BOOTSTRAP_TOKEN_TYPE } from '../../controlplane/security/authentication/bootstrap-token.ts';
import { SYSTEM_NAMESPACE } from '../../api/meta/system-namespaces.ts';

/** The namespace in which the token authenticator looks for tokens. */
export const TOKEN_NAMESPACE = SYSTEM_NAMESPACE;

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** The two parts of a token. The id is no secret. */
export interface BootstrapToken {
  readonly id: string;
  readonly secret: string;
}

/** Creates a token from random numbers of the operating system. */
export function newBootstrapToken(): BootstrapToken {
  return { id: randomText(6), secret: randomText(16) };
}

/** Parses a token. Returns `undefined` if the text has another form. */
export function parseBootstrapToken(text: string): BootstrapToken | undefined {
  const [, id, secret] = BOOTSTRAP_TOKEN.exec(text) ?? [];
  return id === undefined || secret === undefined ? undefined : { id, secret };
}

/** Returns the form in which a token is passed to commands. */
export const formatBootstrapToken = ({ id, secret }: BootstrapToken): string => `${id}.${secret}`;

/** Returns random characters of a token. `randomInt` draws without bias. */
function randomText(length: number): string {
  return Array.from({ length }, () => ALPHABET[randomInt(ALPHABET.length)]).join('');
}

interface TokenFacts {
  readonly description: string;
  readonly groups: readonly string[];
  readonly usages: readonly string[];
  /** Wall-clock milliseconds; `undefined` if the token does not expire. */
  readonly expiresAtMs: number | undefined;
}

/** Returns the name of the Secret of a token. */
export const secretNameOf = (id: string): string => `bootstrap-token-${id}`;

/** Builds the Secret, in the form of `kubeadm token create`. */
export function tokenSecret({ id, secret }: BootstrapToken, facts: TokenFacts): KubeObject {
  const data: Record<string, string> = { 'token-id': id, 'token-secret': secret };
  for (const usage of facts.usages) data[`usage-bootstrap-${usage}`] = 'true';
  if (facts.groups.length > 0) data['auth-extra-groups'] = facts.groups.join(',');
  if (facts.description !== '') data['description'] = facts.description;
  if (facts.expiresAtMs !== undefined) data['expiration'] = formatTime(facts.expiresAtMs);
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: secretNameOf(id), namespace: TOKEN_NAMESPACE },
    type: BOOTSTRAP_TOKEN_TYPE,
    data: Object.fromEntries(Object.entries(data).map(([key, value]) => [key, Buffer.from(value).toString('base64')])),
  } as KubeObject;
}
