/**
 * Reads request headers that name a user, for impersonation and for the authenticating proxy. Node.js decodes the bytes of a
 * header as Latin-1 and joins repeated headers with a comma; names of users and groups are UTF-8 and may contain commas.
 */

/** A request, as far as its headers are concerned. The names in `headers` are in lower case. */
interface HeaderSource {
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Alternating names and values as they were received. If they are absent, the values in `headers` are used. */
  readonly rawHeaders?: readonly string[] | undefined;
}

const NONE: readonly string[] = [];

/**
 * Returns the values of a header one by one, in their order. A joined value is never split: a client that can choose the name
 * of a group could add another group after a comma. Bytes that are no UTF-8 become U+FFFD, as in the JSON of kube-apiserver.
 */
export function headerValues({ headers, rawHeaders }: HeaderSource, name: string): readonly string[] {
  const value = headers[name];
  if (value === undefined) return NONE;
  if (rawHeaders === undefined) return (typeof value === 'string' ? [value] : value).map(decoded);
  const values: string[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    if (rawHeaders[at]?.toLowerCase() === name) values.push(decoded(rawHeaders[at + 1] ?? ''));
  }
  return values;
}

/** Returns the text that makes Node.js send the UTF-8 bytes of the value in a header. */
export function encodedHeaderValue(value: string): string {
  return Buffer.from(value, 'utf8').toString('latin1');
}

function decoded(value: string): string {
  return Buffer.from(value, 'latin1').toString('utf8');
}
