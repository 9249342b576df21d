/**
 * Provides the credentials by which a client authenticates to the server: none, a bearer token (fixed, or from a file that is
 * replaced), basic authentication, or a client certificate (fixed, or from files that are rotated).
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import type { Clock } from '../machinery/clock.ts';

/** What a request presents. */
export interface PresentedCredentials {
  /** The value of the Authorization header. */
  readonly authorization?: string;
  /** PEM. It is set if and only if `key` is. Connections are replaced when one of them changes. */
  readonly certificate?: string;
  readonly key?: string;
}

/** The source of credentials. `current` rejects if they cannot be read. */
export interface ClientCredentials {
  current(): Promise<PresentedCredentials>;
  /**
   * Reports that the server refused the last credentials. The next `current` does not use a cache. Returns whether a retry may
   * help.
   */
  refused?(): boolean;
}

/** Presents nothing: the client is anonymous. */
export const noCredentials: ClientCredentials = { current: () => Promise.resolve({}) };

/** Presents the same credentials each time. */
export function fixedCredentials(presented: PresentedCredentials): ClientCredentials {
  return { current: () => Promise.resolve(presented) };
}

/** Tokens that are mounted into pods are replaced before they expire, so reading them once a minute is enough. */
const TOKEN_FILE_CHECK_MS = 60_000;

/** Presents a token from a file, which is read again periodically. As in client-go, `initial` is used until it can be read. */
export function tokenFileCredentials(path: string, clock: Clock, initial?: string): ClientCredentials {
  const read = rereadText(path, clock, TOKEN_FILE_CHECK_MS, initial);
  return {
    current: async () => ({ authorization: `Bearer ${(await read.text()).trim()}` }),
    refused: () => read.forget(),
  };
}

/**
 * Reads a certificate from files. While they are being replaced, one may be missing or not match the other; the previous pair
 * is used until both are complete. `current` rejects as long as no pair could be read.
 */
export function certificateFileCredentials(
  paths: { readonly certificate: string; readonly key: string },
  clock: Clock,
): ClientCredentials {
  let checkedAt = Number.NEGATIVE_INFINITY;
  let version = '';
  let presented: PresentedCredentials | undefined;
  const read = async (): Promise<PresentedCredentials> => {
    const now = await versionOf([paths.certificate, paths.key]);
    if (presented !== undefined && now === version) return presented;
    const [certificate, key] = await Promise.all([readFile(paths.certificate, 'utf8'), readFile(paths.key, 'utf8')]);
    if (presented !== undefined && !isPair(certificate, key)) return presented;
    version = now;
    return { certificate, key };
  };
  return {
    async current() {
      if (presented !== undefined && clock.monotonic() - checkedAt < 1000) return presented;
      checkedAt = clock.monotonic();
      try {
        presented = await read();
      } catch (error) {
        if (presented === undefined) throw error;
      }
      return presented;
    },
  };
}

/** Whether the key is that of the certificate. Throws if one of them is not in PEM. */
function isPair(certificate: string, key: string): boolean {
  return new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key));
}

/**
 * Combines two providers. The values of the first one have precedence, and the second one fills in what the first one lacks.
 */
export function combinedCredentials(first: ClientCredentials, second: ClientCredentials): ClientCredentials {
  return {
    current: async () => ({ ...(await second.current()), ...(await first.current()) }),
    refused: () => [first.refused?.(), second.refused?.()].includes(true),
  };
}

async function versionOf(paths: readonly string[]): Promise<string> {
  const stats = await Promise.all(paths.map((path) => stat(path)));
  return stats.map(({ mtimeMs, ino, size }) => `${mtimeMs}.${ino}.${size}`).join(',');
}

/**
 * Reads a text from a file, and again at most once in `everyMs`. `text` returns `initial` until the file could be read, and
 * rejects without it. `forget` makes the next `text` read the file, and returns whether the last reading was more than a second
 * ago, so that the file may have changed.
 */
function rereadText(
  path: string,
  clock: Clock,
  everyMs: number,
  initial: string | undefined,
): { text(): Promise<string>; forget(): boolean } {
  let readAt = Number.NEGATIVE_INFINITY;
  let text = initial;
  return {
    async text() {
      if (text !== undefined && clock.monotonic() - readAt < everyMs) return text;
      try {
        text = await readFile(path, 'utf8');
      } catch (error) {
        // The last valid token is better than none while the file is being replaced.
        if (text === undefined) throw error;
      }
      readAt = clock.monotonic();
      return text;
    },
    forget() {
      const stale = clock.monotonic() - readAt > 1000;
      readAt = Number.NEGATIVE_INFINITY;
      return stale;
    },
  };
}
