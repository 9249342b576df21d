/**
 * The four kinds of probe handlers. Each resolves to an outcome with its text, and none throws. The texts appear in
 * `Unhealthy` events.
 */
import { createDialer } from '../../../api/machinery/dialer.ts';
import { dialMessage, hostPort, type HttpGet, httpGet } from '../../runtime/kuberuntime/http-get.ts';

export interface ProbeOutcome {
  readonly result: 'success' | 'failure' | 'unknown' | 'warning';
  readonly output: string;
}

const dialer = createDialer();

/** The longest output that an event shows. */
const MAX_OUTPUT_CHARACTERS = 1024;

export interface HttpTarget extends Omit<HttpGet, 'purpose'> {
  readonly timeoutMs: number;
}

/** Success is 200 to 399; a redirect to another host counts as well, with a warning. */
export async function probeHttp(target: HttpTarget): Promise<ProbeOutcome> {
  try {
    const { timeoutMs, ...request } = target;
    const { status, body, leadsAway } = await httpGet({ ...request, purpose: 'probe' }, AbortSignal.timeout(timeoutMs));
    if (leadsAway || (status >= 300 && status < 400))
      return { result: 'warning', output: `Probe terminated redirects, Response body: ${clip(body)}` };
    if (status >= 200 && status < 300) return { result: 'success', output: clip(body) };
    return { result: 'failure', output: `HTTP probe failed with statuscode: ${status}` };
  } catch (error) {
    return { result: 'failure', output: (error as Error).message };
  }
}

export function probeTcp(host: string, port: number, timeoutMs: number): Promise<ProbeOutcome> {
  return new Promise((resolve) => {
    const refused = probeRefusal(host, port);
    if (refused !== undefined) return resolve(refused);
    const socket = dialer.connect({ purpose: 'probe', host, port });
    const finish = (outcome: ProbeOutcome): void => {
      socket.destroy();
      resolve(outcome);
    };
    socket.setTimeout(timeoutMs, () =>
      finish({ result: 'failure', output: `dial tcp ${hostPort(host, port)}: i/o timeout` }),
    );
    socket.once('connect', () => finish({ result: 'success', output: '' }));
    socket.once('error', (error) => finish({ result: 'failure', output: dialMessage(error, host, port) }));
  });
}

/** Fails if probes must not reach the host, as for a host that does not respond. */
function probeRefusal(host: string, port: number): ProbeOutcome | undefined {
  try {
    dialer.check({ purpose: 'probe', host, port });
    return undefined;
  } catch (error) {
    return { result: 'failure', output: dialMessage(error, host, port) };
  }
}

/** Calls the standard gRPC health service. The gRPC package is loaded on first use. */
export async function probeGrpc(host: string, port: number, service: string, timeoutMs: number): Promise<ProbeOutcome> {
  const refused = probeRefusal(host, port);
  if (refused !== undefined) return refused;
  const { default: grpc } = await import('@grpc/grpc-js');
  const address = hostPort(host, port);
  const identity = (value: Buffer): Buffer => value;
  const Client = grpc.makeGenericClientConstructor(
    {
      check: {
        path: '/grpc.health.v1.Health/Check',
        requestStream: false,
        responseStream: false,
        requestSerialize: identity,
        requestDeserialize: identity,
        responseSerialize: identity,
        responseDeserialize: identity,
      },
    },
    'Health',
  );
  const client = new Client(address, grpc.credentials.createInsecure());
  const name = Buffer.from(service);
  const request = name.length === 0 ? Buffer.alloc(0) : Buffer.concat([Buffer.from([0x0a]), varint(name.length), name]);
  const check = client['check'] as (
    this: typeof client,
    request: Buffer,
    options: { deadline: number },
    done: (error: { code: number; details: string } | null, answer?: Buffer) => void,
  ) => unknown;
  const deadline = Math.ceil(performance.timeOrigin + performance.now() + timeoutMs);
  try {
    // Waits for a server that does not listen yet, up to the probe's timeout.
    const connected = await new Promise<boolean>((resolve) =>
      client.waitForReady(deadline, (error) => resolve(error === undefined)),
    );
    if (!connected) {
      const within = `${timeoutMs / 1000}s`;
      return {
        result: 'failure',
        output: `timeout: failed to connect service "${address}" within ${within}: context deadline exceeded`,
      };
    }
    return await new Promise<ProbeOutcome>((resolve) => {
      check.call(client, request, { deadline }, (error, answer) => {
        if (error === null) {
          const serving = answer?.[0] === 0x08 ? (answer[1] ?? 0) : 0;
          if (serving === 1) resolve({ result: 'success', output: 'service healthy' });
          else
            resolve({
              result: 'failure',
              output: `service unhealthy (responded with "${['UNKNOWN', 'SERVING', 'NOT_SERVING', 'SERVICE_UNKNOWN'][serving] ?? serving}")`,
            });
          return;
        }
        if (error.code === grpc.status.UNIMPLEMENTED) {
          resolve({
            result: 'failure',
            output: `error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ${error.details}`,
          });
        } else if (error.code === grpc.status.DEADLINE_EXCEEDED) {
          resolve({
            result: 'failure',
            output: `timeout: health rpc did not complete within ${timeoutMs / 1000}s`,
          });
        } else {
          resolve({
            result: 'failure',
            output: `error: health rpc probe failed: rpc error: code = ${grpcCode(grpc.status[error.code])} desc = ${error.details}`,
          });
        }
      });
    });
  } finally {
    client.close();
  }
}

/** Converts `UNAVAILABLE` to `Unavailable`, and `NOT_FOUND` to `NotFound`. */
function grpcCode(name: string | undefined): string {
  return (name ?? 'UNKNOWN')
    .toLowerCase()
    .replace(/(^|_)([a-z])/g, (_whole, _bar, letter: string) => letter.toUpperCase());
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...bytes, rest]);
    bytes.push((rest % 128) | 128);
  }
}

/** The exit code 0 is a success, every other a failure. The result is unknown if the command cannot be executed. */
export async function probeExec(
  command: readonly string[],
  run: () => Promise<{ readonly exitCode: number; readonly output: string }>,
  timeoutMs: number,
  isTimeout: (error: unknown) => boolean,
): Promise<ProbeOutcome> {
  try {
    const { exitCode, output } = await run();
    return { result: exitCode === 0 ? 'success' : 'failure', output: clip(output) };
  } catch (error) {
    if (isTimeout(error)) {
      const output = `command timed out: ${JSON.stringify(command.join(' '))} timed out after ${timeoutMs / 1000}s`;
      return { result: 'failure', output };
    }
    return { result: 'unknown', output: error instanceof Error ? error.message : String(error) };
  }
}

function clip(text: string): string {
  return text.length > MAX_OUTPUT_CHARACTERS ? text.slice(0, MAX_OUTPUT_CHARACTERS) : text;
}
