/** Sends requests of the control plane itself to the agents of nodes, with the client certificate that agents trust. */
import type { Dialer } from '../../api/http/dialer.ts';
import { GatheredBytes } from '../../api/machinery/gathered-bytes.ts';
import type { AgentOrigin } from './rest.ts';

/** How the server authenticates to node agents, and which of their serving certificates it accepts. */
export interface AgentCredentials {
  /** The client certificate, as PEM. */
  readonly cert: string | Buffer;
  readonly key: string | Buffer;
  /** `--kubelet-certificate-authority`: the CAs of accepted serving certificates, which then must name the node's address. */
  readonly ca?: string | Buffer;
}

export interface AgentConnection {
  readonly dialer: Dialer;
  /** Read for each request, because certificates are rotated. */
  readonly credentials: () => AgentCredentials;
}

interface AgentTls {
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly ca?: string | Buffer;
  readonly rejectUnauthorized: boolean;
  readonly verifiesHost?: boolean;
  readonly servingKeys?: readonly string[];
}

/**
 * Returns the TLS settings of a connection to an agent. Unless `anyCertificate` is set, the serving certificate must be of one
 * of the CAs and have the address. Without CAs, its key must be one that the agent published in its Node object, which other
 * nodes cannot write; if the agent published none, as the kubelet, any certificate is accepted, as by kube-apiserver.
 */
export function agentTls(
  { cert, key, ca }: AgentCredentials,
  { servingKeys }: AgentOrigin,
  { anyCertificate = false }: { readonly anyCertificate?: boolean } = {},
): AgentTls {
  if (anyCertificate) return { cert, key, rejectUnauthorized: false };
  if (ca !== undefined) return { cert, key, ca, rejectUnauthorized: true, verifiesHost: true };
  return { cert, key, rejectUnauthorized: false, ...(servingKeys === undefined ? {} : { servingKeys }) };
}

interface AgentRequest {
  readonly node: string;
  readonly origin: AgentOrigin;
  readonly method: 'GET' | 'PUT' | 'DELETE';
  readonly path: string;
  readonly timeoutMs: number;
  readonly largestBytes: number;
}

/**
 * Resolves to the JSON of a response with status 200. Rejects with the text of any other response, with the error of the
 * connection, and if the response is larger than `largestBytes` or takes longer than `timeoutMs`.
 */
export function requestAgent({ dialer, credentials }: AgentConnection, request: AgentRequest): Promise<unknown> {
  const { node, origin, method, path, timeoutMs, largestBytes } = request;
  return new Promise((resolve, reject) => {
    const failed = (error: Error): void => {
      const isLate = error.name === 'AbortError' || error.name === 'TimeoutError';
      reject(isLate ? new Error(`the agent did not answer within ${timeoutMs / 1000} s`, { cause: error }) : error);
    };
    const { verifiesHost: _always, ...tls } = agentTls(credentials(), origin);
    const { secure, host, port } = origin;
    const outgoing = dialer.request(
      {
        ...{ secure, host, port },
        purpose: 'kubelet',
        name: `node/${node}`,
        method,
        path,
        agent: false,
        ...tls,
        // For the whole response: an agent that sends it byte by byte is never idle.
        signal: AbortSignal.timeout(timeoutMs),
      },
      (response) => {
        const gathered = new GatheredBytes();
        response.on('data', (chunk: Buffer) => {
          if (gathered.size + chunk.length > largestBytes)
            response.destroy(new Error(`the answer has more than ${largestBytes} bytes`));
          else gathered.push(chunk);
        });
        response.on('error', failed);
        response.on('end', () => {
          const text = gathered.take().toString('utf8');
          if (response.statusCode !== 200) {
            reject(new Error(`the agent answered ${response.statusCode ?? 0}: ${text.slice(0, 200).trim()}`));
            return;
          }
          try {
            resolve(JSON.parse(text));
          } catch (error) {
            reject(new Error('the agent did not answer with JSON', { cause: error }));
          }
        });
      },
    );
    outgoing.on('error', failed);
    outgoing.end();
  });
}
