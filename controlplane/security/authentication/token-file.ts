/** Authenticates by the static token file: CSV of token, user, uid and optional groups, which is read once. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Logger } from '../../../api/component/logger.ts';
import type { Authenticated, TokenAuthenticator } from './authentication.ts';

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/**
 * Reads the tokens from the text of the file. Skips a record with an empty token. Throws for text that is not CSV and for a
 * record with fewer than three columns.
 */
export function tokenFileAuthenticator(csv: string, path: string, logger: Logger): TokenAuthenticator {
  const byDigest = new Map<string, { readonly digest: Buffer; readonly authenticated: Authenticated }>();
  for (const [i, record] of readCsv(csv, path).entries()) {
    const [token = '', name = '', uid, groups = ''] = record;
    if (uid === undefined)
      throw new Error(`${path}, record ${i + 1}: at least token, user name and user uid are needed`);
    if (token === '') {
      logger.warn({ path, record: i + 1 }, 'A record of the token file has no token and is skipped');
      continue;
    }
    const hash = digest(token);
    const list = groups === '' ? [] : groups.split(',').map((group) => group.trim());
    byDigest.set(hash.toString('base64'), { digest: hash, authenticated: { user: { name, uid, groups: list } } });
  }
  return {
    authenticateToken(token) {
      const hash = digest(token);
      const found = byDigest.get(hash.toString('base64'));
      return found !== undefined && timingSafeEqual(found.digest, hash) ? found.authenticated : undefined;
    },
  };
}

/**
 * Parses CSV by RFC 4180, except that a quoted field cannot contain a line break. Spaces around fields are dropped, and empty
 * lines are skipped. Throws for quotation marks that are not around a field.
 */
function readCsv(text: string, path: string): string[][] {
  const records: string[][] = [];
  for (const line of text.split(/\r?\n/)) {
    if (line.trim() === '') continue;
    const fields: string[] = [];
    const field = /\s*(?:"((?:[^"]|"")*)"|([^",]*))\s*(?:,|$)/gy;
    while (field.lastIndex < line.length) {
      const match = field.exec(line);
      if (match === null)
        throw new Error(`${path}, record ${records.length + 1}: a quotation mark is not closed, or not around a field`);
      fields.push(match[1]?.replaceAll('""', '"') ?? (match[2] ?? '').trim());
    }
    if (line.endsWith(',')) fields.push('');
    records.push(fields);
  }
  return records;
}
