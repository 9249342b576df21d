/**
 * Serves S3 from memory on a loopback port. It verifies signatures (version 4) and the hashes of bodies, and has objects,
 * multipart uploads and paged lists. Tests can set faults.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The credentials and the region that the server accepts. */
export const FAKE_S3_KEYS = { id: 'AKIDFAKE', secret: 'the+secret/of=the-fake', region: 'eu-test-1' } as const;
/** The number of keys in a page of a list. */
const PAGE = 2;

/** Responds instead of the server. Returns true if it did. */
export type Fault = (request: IncomingMessage, response: ServerResponse, body: Buffer) => boolean;

/** An S3 server with one account. */
export class FakeS3 {
  readonly objects = new Map<string, Buffer>();
  readonly uploads = new Map<string, { readonly path: string; readonly parts: Map<number, Buffer> }>();
  readonly seen: string[] = [];
  fault: Fault = () => false;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('error', () => response.destroy());
      request.on('end', () => this.#answer(request, response, Buffer.concat(chunks)));
    });
  }

  static async start(): Promise<FakeS3> {
    const fake = new FakeS3();
    await new Promise<void>((resolve) => fake.#server.listen(0, '127.0.0.1', resolve));
    return fake;
  }

  /** The URL of the server. */
  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #answer(request: IncomingMessage, response: ServerResponse, body: Buffer): void {
    const { method = '' } = request;
    const url = new URL(request.url ?? '', this.endpoint);
    this.seen.push(`${method} ${url.pathname}${url.search}`);
    if (this.fault(request, response, body)) return;
    const refusal = refusalOf(request, url, body);
    if (refusal !== undefined)
      return send(response, 403, `<Error><Code>${refusal}</Code><Message>no &amp; no</Message></Error>`);
    const path = decodeURIComponent(url.pathname);
    const upload = url.searchParams.get('uploadId');
    if (upload !== null) return this.#part(response, { method, url, upload, body });
    if (url.searchParams.has('uploads')) {
      const id = `upload-${this.uploads.size}/+=`;
      this.uploads.set(id, { path, parts: new Map() });
      return send(response, 200, `<R><UploadId>${id}</UploadId></R>`);
    }
    if (url.searchParams.has('list-type')) return this.#list(response, path, url.searchParams);
    if (method === 'PUT') {
      this.objects.set(path, body);
      return send(response, 200, '');
    }
    if (method === 'DELETE') {
      this.objects.delete(path);
      return send(response, 204, '');
    }
    const object = this.objects.get(path);
    if (object === undefined)
      return send(response, 404, '<Error><Code>NoSuchKey</Code><Message>none</Message></Error>');
    response.writeHead(200, { 'content-length': object.length }).end(object);
  }

  #part(
    response: ServerResponse,
    { method, url, upload, body }: { method: string; url: URL; upload: string; body: Buffer },
  ): void {
    const found = this.uploads.get(upload);
    if (found === undefined) return send(response, 404, '<Error><Code>NoSuchUpload</Code></Error>');
    if (method === 'PUT') {
      const number = Number(url.searchParams.get('partNumber'));
      found.parts.set(number, body);
      response.writeHead(200, { etag: `"${number}"` }).end();
      return;
    }
    this.uploads.delete(upload);
    if (method === 'DELETE') return send(response, 204, '');
    const wanted = [...body.toString().matchAll(/<PartNumber>(\d+)<\/PartNumber><ETag>"(\d+)"<\/ETag>/g)];
    this.objects.set(
      found.path,
      Buffer.concat(wanted.map(([, number]) => found.parts.get(Number(number)) ?? Buffer.alloc(0))),
    );
    send(response, 200, '<CompleteMultipartUploadResult/>');
  }

  #list(response: ServerResponse, bucket: string, query: URLSearchParams): void {
    const prefix = query.get('prefix') ?? '';
    const keys = [...this.objects.keys()]
      .map((path) => path.slice(bucket.length))
      .filter((key) => key.startsWith(prefix));
    const start = Number(query.get('continuation-token') ?? 0);
    const page = keys.sort().slice(start, start + PAGE);
    const isMore = start + PAGE < keys.length;
    const next = isMore ? `<NextContinuationToken>${start + PAGE}</NextContinuationToken>` : '';
    const items = page.map((key) => `<Contents><Key>${key.replaceAll('&', '&amp;')}</Key></Contents>`).join('');
    send(response, 200, `<R><IsTruncated>${isMore}</IsTruncated>${next}${items}</R>`);
  }
}

function send(response: ServerResponse, status: number, xml: string): void {
  response.writeHead(status, { 'content-type': 'application/xml' }).end(xml);
}

/** Returns the error code if the signature of the received bytes is invalid, or `undefined` if it is valid. */
function refusalOf(request: IncomingMessage, url: URL, body: Buffer): string | undefined {
  const { authorization = '', 'x-amz-date': date, 'x-amz-content-sha256': hash } = request.headers;
  const { id, secret, region } = FAKE_S3_KEYS;
  const match =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/.exec(
      authorization,
    );
  if (match === null || typeof date !== 'string') return 'AccessDenied';
  const [, givenId = '', day = '', givenRegion = '', signed = '', given = ''] = match;
  if (givenId !== id) return 'InvalidAccessKeyId';
  if (givenRegion !== region || !date.startsWith(day)) return 'AuthorizationHeaderMalformed';
  if (hash !== createHash('sha256').update(body).digest('hex')) return 'XAmzContentSHA256Mismatch';
  if (!signed.split(';').includes('host')) return 'AccessDenied';
  const query = (request.url ?? '').split('?')[1] ?? '';
  const canonical = [
    request.method,
    url.pathname,
    query
      .split('&')
      .filter((part) => part !== '')
      .map((part) => (part.includes('=') ? part : `${part}=`))
      .sort()
      .join('&'),
    ...signed.split(';').map((name) => `${name}:${String(request.headers[name]).trim()}`),
    '',
    signed,
    hash,
  ].join('\n');
  const scope = `${day}/${region}/s3/aws4_request`;
  const text = `AWS4-HMAC-SHA256\n${date}\n${scope}\n${createHash('sha256').update(canonical).digest('hex')}`;
  let key: Buffer = Buffer.from(`AWS4${secret}`);
  for (const part of [day, region, 's3', 'aws4_request', text]) key = createHmac('sha256', key).update(part).digest();
  return timingSafeEqual(key, Buffer.from(given, 'hex')) ? undefined : 'SignatureDoesNotMatch';
}
