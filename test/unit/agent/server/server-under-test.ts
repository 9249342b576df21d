/** Starts the agent's server with a fake host, for tests of its routes and streams. */
import { request as httpsRequest } from 'node:https';
import type { PodHost } from '../../../../agent/server/pod-host.ts';
import { type AgentServer, type AgentServerOptions, startAgentServer } from '../../../../agent/server/server.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { certificatePem, createCertificate } from '../../../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../../../api/pki/signing.ts';

export interface Answer {
  readonly status: number;
  readonly type: string;
  readonly allow: string;
  /** The value of `X-Content-Type-Options`. */
  readonly sniffing: string;
  /** The start of the process in the header of a page of metrics; not a number elsewhere. */
  readonly startedSeconds: number;
  readonly text: string;
  readonly location: string | undefined;
}

export interface ServerUnderTest {
  readonly port: number;
  readonly routes: AgentServer['routes'];
  /** Sends a request such as `GET /path`. */
  ask(request: string, headers?: Readonly<Record<string, string>>, body?: string): Promise<Answer>;
  close(): Promise<void>;
}

/** The user as whom every request is authenticated, unless a test passes its own `access`. */
export const jane = { name: 'jane', uid: '', groups: [], extra: {} };

type GivenOptions = { readonly host: PodHost } & Partial<
  Pick<
    AgentServerOptions,
    | 'debugHandlers'
    | 'systemLogs'
    | 'splitLogStreams'
    | 'readOnlyPort'
    | 'healthPort'
    | 'idleTimeoutMs'
    | 'checkpoint'
    | 'verbosity'
    | 'zpages'
    | 'access'
    | 'clock'
    | 'logger'
    | 'headersBudgetBytes'
    | 'maxConnections'
    | 'observe'
  >
>;

/** Starts the server on a free port for `host`, with the given options. */
export async function startServerUnderTest(options: GivenOptions): Promise<ServerUnderTest> {
  const server = await startAgentServer(await serverOptionsUnderTest(options));
  return {
    port: server.port,
    routes: server.routes,
    ask: (request, headers = {}, body = '') => ask(server.port, request, headers, body),
    close: () => server.close(),
  };
}

/** Returns all options of the server, with a serving certificate of its own. */
export async function serverOptionsUnderTest(options: GivenOptions): Promise<AgentServerOptions> {
  const keys = await generateKey('ecdsa');
  const der = createCertificate(
    {
      subject: { commonName: 'n' },
      publicKey: keys.publicKey,
      notBeforeMs: Date.UTC(2020, 0, 1),
      notAfterMs: Date.UTC(2100, 0, 1),
      names: { dns: ['n'], ip: [] },
      keyUsages: ['digital signature'],
      extendedKeyUsages: ['server auth'],
    },
    { privateKey: keys.privateKey },
  );
  return {
    clock: systemClock,
    logger: silentLogger,
    statistics: {
      metrics: async () => 'metrics',
      cadvisor: async () => 'cadvisor',
      resource: async () => 'resource',
      probes: async () => 'probes',
      summary: async (only) => ({ only }),
    },
    config: () => ({ kubeletconfig: {} }),
    submitted: undefined,
    systemLogs: undefined,
    splitLogStreams: false,
    verbosity: undefined,
    zpages: {},
    checkpoint: undefined,
    debugHandlers: true,
    access: { authenticate: async () => jane, refusal: async () => '' },
    tls: {
      cert: certificatePem(der),
      key: privateKeyPem(keys.privateKey),
      clientCa: undefined,
      minVersion: 'TLSv1.2',
      ciphers: undefined,
      groups: undefined,
    },
    enabled: true,
    address: '127.0.0.1',
    port: 0,
    readOnlyPort: 0,
    healthAddress: '127.0.0.1',
    healthPort: 0,
    idleTimeoutMs: 0,
    ...options,
  };
}

function ask(port: number, line: string, headers: Readonly<Record<string, string>>, body: string): Promise<Answer> {
  const [method = 'GET', path = '/'] = line.split(' ');
  return new Promise((resolve, reject) => {
    const sent = httpsRequest(
      { host: '127.0.0.1', port, method, path, headers, agent: false, rejectUnauthorized: false },
      (response) => {
        let text = '';
        response.on('data', (chunk: Buffer) => (text += chunk.toString()));
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            type: response.headers['content-type'] ?? '',
            allow: response.headers.allow ?? '',
            location: response.headers.location,
            startedSeconds: Number(response.headers['process-start-time-unix']),
            sniffing: String(response.headers['x-content-type-options'] ?? ''),
            text,
          }),
        );
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });
}
