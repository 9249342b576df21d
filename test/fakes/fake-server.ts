/** Starts an API server with a fake catalog on its own port, and a client for it. */
import { connect, type ClientHttp2Session, type IncomingHttpHeaders } from 'node:http2';
import { request as httpsRequest, type RequestOptions } from 'node:https';
import { createCertificate, certificatePem } from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import type { Authenticator } from '../../controlplane/security/authentication/authentication.ts';
import type { UserInfo } from '../../controlplane/model/user-info.ts';
import type { Authorizer } from '../../controlplane/security/authorization/authorization.ts';
import type { Encodings } from '../../controlplane/model/encoding.ts';
import { PathHandlers } from '../../controlplane/server/path-handlers.ts';
import { createServer, type ApiServer, type ServerOptions } from '../../controlplane/server/server.ts';
import { createYamlThread } from '../../api/codec/yaml-thread.ts';
import { createTextDecoders } from '../../controlplane/server/text-decoders.ts';
import type { ResourceCatalog } from '../../controlplane/model/rest.ts';

/** Encodings whose tables have only the name of an object. */
export const fakeEncodings: Encodings = {
  hasProtobuf: () => true,
  hasColumns: () => true,
  tableColumns: () => Buffer.from('[{"name":"Name","type":"string"}]'),
  tableRow: (entry) => [Buffer.from(JSON.stringify({ cells: [entry.object.metadata.name] }))],
  inRowOrder: (_info, entries) => entries,
  metadata: (entry, version) =>
    Buffer.from(
      JSON.stringify({
        kind: 'PartialObjectMetadata',
        apiVersion: `meta.k8s.io/${version}`,
        metadata: entry.object.metadata,
      }),
    ),
  protobuf: (entry) => [Buffer.from('k8s\0'), entry.bytes],
  protobufList: (_info, entries) => [Buffer.from(`k8s\0${entries.length}`)],
  protobufMetadata: () => [Buffer.from('k8s\0m')],
  protobufMetadataList: () => [Buffer.from('k8s\0ml')],
  protobufOf: (object) => Buffer.from(`k8s\0${JSON.stringify(object)}`),
  protobufWatchEvent: (type, object) => [Buffer.from(type), ...object],
  decodeProtobuf: (bytes) => JSON.parse(bytes.subarray(4).toString()) as unknown,
  yaml: (value) => `yaml: ${JSON.stringify(value)}\n`,
};

/** The bearer token is the user's name. After a space, `a,b` are the groups. */
const tokenIsName: Authenticator = {
  authenticate({ headers }) {
    const header = headers.authorization;
    if (typeof header !== 'string') return { user: { name: 'system:anonymous', groups: ['system:unauthenticated'] } };
    const [name = '', groups = ''] = header.slice('Bearer '.length).split(' ');
    if (name === 'bad') return undefined;
    const user: UserInfo = { name, groups: groups === '' ? [] : groups.split(',') };
    return { user };
  },
};

/** Allows every request. */
export const allowAll: Authorizer = { authorize: () => ({ decision: 'allow', reason: '' }) };

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface FakeServer {
  readonly server: ApiServer;
  readonly port: number;
  readonly session: ClientHttp2Session;
  /** Sends a request over HTTP/2. */
  request(
    method: string,
    path: string,
    headers?: Record<string, string | string[]>,
    body?: string | Buffer,
  ): Promise<Answer>;
  /** Sends a request over HTTP/1.1. */
  request1(
    method: string,
    path: string,
    headers?: Record<string, string | string[]>,
    body?: string | Buffer,
  ): Promise<Answer>;
  json(method: string, path: string, body?: unknown): Promise<{ status: number; body: Record<string, unknown> }>;
  close(): Promise<void>;
}

let material: Promise<{ cert: string; key: string }> | undefined;

/** Resolves to a certificate for `localhost` that is valid for a day, made once in a process. */
export function selfSigned(): Promise<{ cert: string; key: string }> {
  material ??= (async () => {
    const keys = await generateKey('ecdsa');
    const raw = createCertificate(
      {
        subject: { commonName: 'localhost' },
        publicKey: keys.publicKey,
        notBeforeMs: Date.now() - 60_000,
        notAfterMs: Date.now() + 86_400_000,
      },
      { privateKey: keys.privateKey },
    );
    return { cert: certificatePem(raw), key: privateKeyPem(keys.privateKey) };
  })();
  return material;
}

/** Starts the server on a free port. The token of a request is the name of its user, and everything is allowed. */
export async function startFakeServer(
  catalog: ResourceCatalog,
  options: Partial<ServerOptions> = {},
): Promise<FakeServer> {
  const server = createServer({
    catalog,
    authenticator: tokenIsName,
    authorizer: allowAll,
    clock: systemClock,
    logger: silentLogger,
    tls: await selfSigned(),
    encodings: fakeEncodings,
    decoders: createTextDecoders(createYamlThread({ clock: systemClock })),
    paths: new PathHandlers(),
    connector: { connect: () => undefined },
    ...options,
  });
  const { port } = await server.listen(0, '127.0.0.1');
  const session = connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
  const request = (
    method: string,
    path: string,
    headers: Record<string, string | string[]> = {},
    body?: string | Buffer,
  ) =>
    new Promise<Answer>((resolve, reject) => {
      const stream = session.request(
        { ':method': method, ':path': path, ...headers },
        { endStream: body === undefined },
      );
      let answer: IncomingHttpHeaders = {};
      const chunks: Buffer[] = [];
      stream.on('response', (received) => (answer = received));
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () =>
        resolve({ status: Number(answer[':status']), headers: answer, text: Buffer.concat(chunks).toString() }),
      );
      stream.on('error', reject);
      if (body !== undefined) stream.end(body);
    });
  return {
    server,
    port,
    session,
    request,
    request1: (method, path, headers = {}, body) => over1({ port, method, path, headers }, body),
    async json(method, path, body) {
      const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
      const answer = await request(
        method,
        path,
        { 'content-type': type },
        body === undefined ? undefined : JSON.stringify(body),
      );
      return { status: answer.status, body: JSON.parse(answer.text) as Record<string, unknown> };
    },
    async close() {
      session.close();
      await server.close(0);
    },
  };
}

function over1(options: RequestOptions, body?: string | Buffer): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = httpsRequest(
      { host: '127.0.0.1', rejectUnauthorized: false, agent: false, ...options },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            text: Buffer.concat(chunks).toString(),
          }),
        );
      },
    );
    request.on('error', reject);
    request.end(body);
  });
}
