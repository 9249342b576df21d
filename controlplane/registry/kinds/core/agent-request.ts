/** Sends requests of the control plane itself to the agents of nodes, with the client certificate that agents trust. */
import type { Dialer } from '../../../../api/machinery/dialer.ts';
import type { Origin } from '../../../model/rest.ts';

export interface AgentConnection {
  readonly dialer: Dialer;
  /** Read for each request, because certificates are rotated. */
  readonly credentials: () => { readonly cert: string; readonly key: string };
}

export interface AgentRequest {
  readonly node: string;
  readonly origin: Origin;
  readonly method: 'GET' | 'PUT' | 'DELETE';
  readonly path: string;
  readonly timeoutMs: number;
  readonly largestBytes: number;
}

/** Resolves to the JSON of a response with status 200. Rejects with the text of any other one. */
export function requestAgent({ dialer, credentials }: AgentConnection, request: AgentRequest): Promise<unknown> {
  const { node, origin, method, path, timeoutMs, largestBytes } = request;
  return new Promise((resolve, reject) => {
    const failed = (error: Error): void => {
      const isLate = error.name === 'AbortError' || error.name === 'TimeoutError';
      reject(isLate ? new Error(`the agent did not answer within ${timeoutMs / 1000} s`, { cause: error }) : error);
    };
    // Without a configured CA for the agents' serving certificates, any certificate is accepted, like for logs and exec.
    const asked = dialer.request(
      {
        ...origin,
        purpose: 'kubelet',
        name: `node/${node}`,
        method,
        path,
        agent: false,
        ...credentials(),
        rejectUnauthorized: false,
        // For the whole response: an agent that sends it byte by byte is never idle.
        signal: AbortSignal.timeout(timeoutMs),
      },
      (response) => {
        const chunks: Buffer[] = [];
        let size = 0;
        response.on('data', (chunk: Buffer) => {
          size += chunk.length;
          if (size > largestBytes) response.destroy(new Error(`the answer has more than ${largestBytes} bytes`));
          else chunks.push(chunk);
        });
        response.on('error', failed);
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString('utf8');
          if (response.statusCode !== 200) {
            reject(new Error(`the agent answered ${response.statusCode ?? 0}: ${text.slice(0, 200).trim()}`));
            return;
          }
          try {
            resolve(JSON.parse(text));
          } catch (error) {
            reject(error as Error);
          }
        });
      },
    );
    asked.on('error', failed);
    asked.end();
  });
}
