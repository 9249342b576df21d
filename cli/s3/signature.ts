/**
 * Signs requests to S3 by version 4 of the signatures of AWS. Pure. The signature includes the headers that are returned beside
 * `authorization`, and the hash of the body.
 */
import { createHash, createHmac } from 'node:crypto';

/** The keys of an account. They never appear in errors. */
export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** The session token of temporary credentials. */
  readonly sessionToken?: string;
}

interface SignableRequest {
  readonly method: string;
  /** The host with its port if that is not the default of the scheme, as in the header `Host`. */
  readonly host: string;
  /** The path without encoding. */
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

interface SigningContext {
  readonly credentials: S3Credentials;
  readonly region: string;
  /** The wall-clock time in milliseconds. */
  readonly now: number;
}

/** Percent-encodes everything but the unreserved characters (RFC 3986). */
const encodeRfc3986 = (text: string): string =>
  encodeURIComponent(text).replaceAll(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );

/** Encodes each segment as the signature requires; slashes stay. */
export const encodePath = (path: string): string => path.split('/').map(encodeRfc3986).join('/');

/** Encodes the query in the order of the signature, in which it is also sent. */
export const encodeQuery = (query: Readonly<Record<string, string>>): string =>
  Object.entries(query)
    .map(([name, value]) => `${encodeRfc3986(name)}=${encodeRfc3986(value)}`)
    .sort()
    .join('&');

const sha256 = (content: string | Buffer): string => createHash('sha256').update(content).digest('hex');
const hmac = (key: string | Buffer, text: string): Buffer => createHmac('sha256', key).update(text).digest();

/** Returns the headers to send, `Authorization` among them. */
export function signedHeaders(request: SignableRequest, context: SigningContext): Readonly<Record<string, string>> {
  const { credentials, region } = context;
  const time = new Date(context.now).toISOString().replaceAll(/[-:]|\.\d{3}/g, '');
  const scope = `${time.slice(0, 8)}/${region}/s3/aws4_request`;
  const bodyHash = sha256(request.body);
  const headers: Readonly<Record<string, string>> = {
    host: request.host,
    'x-amz-content-sha256': bodyHash,
    'x-amz-date': time,
    ...(credentials.sessionToken === undefined ? {} : { 'x-amz-security-token': credentials.sessionToken }),
  };
  const names = Object.keys(headers).sort();
  const canonical = [
    request.method,
    encodePath(request.path),
    encodeQuery(request.query),
    ...names.map((name) => `${name}:${headers[name] ?? ''}`),
    '',
    names.join(';'),
    bodyHash,
  ].join('\n');
  const key = [time.slice(0, 8), region, 's3', 'aws4_request'].reduce<string | Buffer>(
    (above, part) => hmac(above, part),
    `AWS4${credentials.secretAccessKey}`,
  );
  const signature = hmac(key, ['AWS4-HMAC-SHA256', time, scope, sha256(canonical)].join('\n')).toString('hex');
  return {
    ...headers,
    authorization: `AWS4-HMAC-SHA256 Credential=${credentials.accessKeyId}/${scope}, SignedHeaders=${names.join(';')}, Signature=${signature}`,
  };
}
