/**
 * What a client shows the server to say who it is: nothing, a bearer token (fixed, or read from a file that is replaced now
 * and then), basic authentication, a client certificate (fixed, or from files that are rotated), or an exec plugin's.
 * The HTTP client asks before each request and tells when the server answered 401.
 */
import { readFile, stat } from 'node:fs/promises';
import type { Clock } from './clock.ts';

export interface PresentedCredentials {
  /** Value of the Authorization header. */
  readonly authorization?: string;
  /** PEM; both are set or neither. Connections are replaced when they change. */
  readonly certificate?: string;
  readonly key?: string;
}

export interface ClientCredentials {
  current(): Promise<PresentedCredentials>;
  /** The server refused what `current` gave; the next call must not come from a cache. True if trying again may help. */
  refused?(): boolean;
}

export const noCredentials: ClientCredentials = { current: () => Promise.resolve({}) };

export function fixedCredentials(presented: PresentedCredentials): ClientCredentials {
  return { current: () => Promise.resolve(presented) };
}

/** Tokens that are mounted into pods are replaced before they expire: read again after a minute. */
const TOKEN_FILE_CHECK_MS = 60_000;

export function tokenFileCredentials(path: string, clock: Clock): ClientCredentials {
  const read = rereadText(path, clock, TOKEN_FILE_CHECK_MS);
  return {
    current: async () => ({ authorization: `Bearer ${(await read.text()).trim()}` }),
    refused: () => read.forget(),
  };
}

/** Files are checked at most every second, and read if their times changed. */
export function certificateFileCredentials(
  paths: { readonly certificate: string; readonly key: string },
  clock: Clock,
): ClientCredentials {
  let checkedAt = Number.NEGATIVE_INFINITY;
  let version = '';
  let presented: PresentedCredentials | undefined;
  return {
    async current() {
      if (presented !== undefined && clock.monotonic() - checkedAt < 1000) return presented;
      checkedAt = clock.monotonic();
      const now = await versionOf([paths.certificate, paths.key]);
      if (presented === undefined || now !== version) {
        const [certificate, key] = await Promise.all([
          readFile(paths.certificate, 'utf8'),
          readFile(paths.key, 'utf8'),
        ]);
        presented = { certificate, key };
        version = now;
      }
      return presented;
    },
  };
}

/** The first gives what the second does not. */
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

function rereadText(path: string, clock: Clock, everyMs: number): { text(): Promise<string>; forget(): boolean } {
  let readAt = Number.NEGATIVE_INFINITY;
  let text: string | undefined;
  return {
    async text() {
      if (text !== undefined && clock.monotonic() - readAt < everyMs) return text;
      try {
        text = await readFile(path, 'utf8');
      } catch (error) {
        // a token that was good a minute ago beats none while the file is being replaced
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
