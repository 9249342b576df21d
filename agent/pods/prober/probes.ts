/**
 * The four kinds of probe handlers. Each resolves to an outcome with its text, which appears in `Unhealthy` events. A probe
 * that cannot be started, for example because its port is out of range, may reject.
 */
import { buildCodecs } from '../../../api/grpc/codec.ts';
import { openChannel } from '../../../api/grpc/grpc-channel.ts';
import { GrpcError } from '../../../api/grpc/grpc-error.ts';
import { createDialer } from '../../../api/http/dialer.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { BrokenBodyError, dialMessage, hostPort, type HttpGet, httpGet } from '../../runtime/kuberuntime/http-get.ts';

/**
 * The outcome of one execution. `warning` counts as success. A probe that could not be executed to its end (`errored`) changes
 * no result; `state` is what its event shows.
 */
export type ProbeOutcome =
  | { readonly result: 'success' | 'failure' | 'warning'; readonly output: string }
  | { readonly result: 'errored'; readonly state: 'failure' | 'unknown'; readonly output: string };

const dialer = createDialer();

/** The longest output that an event shows. */
const MAX_OUTPUT_CHARACTERS = 1024;

interface HttpTarget extends Omit<HttpGet, 'purpose'> {
  readonly timeoutMs: number;
}

/** Sends a GET request, and judges the response as the kubelet does. Never rejects. */
export async function probeHttp(target: HttpTarget): Promise<ProbeOutcome> {
  try {
    const { timeoutMs, ...request } = target;
    const { status, body, leadsAway } = await httpGet({ ...request, purpose: 'probe' }, AbortSignal.timeout(timeoutMs));
    if (leadsAway || (status >= 300 && status < 400))
      return { result: 'warning', output: `Probe terminated redirects, Response body: ${clip(body)}` };
    if (status >= 200 && status < 300) return { result: 'success', output: clip(body) };
    return { result: 'failure', output: `HTTP probe failed with statuscode: ${status}` };
  } catch (error) {
    const output = (error as Error).message;
    return error instanceof BrokenBodyError
      ? { result: 'errored', state: 'failure', output }
      : { result: 'failure', output };
  }
}

/** Succeeds when the connection is established, and closes it at once. An error or the timeout is a failure. */
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

/**
 * Returns a failure, as of a host that does not respond, if probes must not reach the host. Returns `undefined` if they may.
 */
function probeRefusal(host: string, port: number): ProbeOutcome | undefined {
  try {
    dialer.check({ purpose: 'probe', host, port });
    return undefined;
  } catch (error) {
    return { result: 'failure', output: dialMessage(error, host, port) };
  }
}

const HEALTH_MESSAGES = {
  HealthCheckRequest: { service: '1 string' },
  HealthCheckResponse: { status: '1 int32' },
} as const;
const HEALTH_PATH = '/grpc.health.v1.Health/Check';
const SERVING_STATUSES = ['UNKNOWN', 'SERVING', 'NOT_SERVING', 'SERVICE_UNKNOWN'];
/** The maximum size of a health response, which has a few bytes. */
const MAX_HEALTH_MESSAGE_BYTES = 64 * 1024;

/** Calls the standard health service. The status `SERVING` is a success; every other status, error or timeout is a failure. */
export async function probeGrpc(host: string, port: number, service: string, timeoutMs: number): Promise<ProbeOutcome> {
  const refused = probeRefusal(host, port);
  if (refused !== undefined) return refused;
  const untilMs = performance.now() + timeoutMs;
  const address = hostPort(host, port);
  const channel = await openChannel({
    target: address,
    largestMessageBytes: MAX_HEALTH_MESSAGE_BYTES,
    userAgent: 'kube-probe/1.36',
  });
  try {
    // Waits for a server that does not listen yet, up to the probe's timeout.
    if (!(await channel.connected(timeoutMs))) {
      const within = `${timeoutMs / 1000}s`;
      return {
        result: 'failure',
        output: `timeout: failed to connect service "${address}" within ${within}: context deadline exceeded`,
      };
    }
    const codec = buildCodecs(HEALTH_MESSAGES);
    const leftMs = Math.max(untilMs - performance.now(), 1);
    const answer = await channel.call(HEALTH_PATH, codec('HealthCheckRequest').encode({ service }), {
      timeoutMs: leftMs,
    });
    const { status } = codec('HealthCheckResponse').decode(answer) as { readonly status: number };
    if (SERVING_STATUSES[status] === 'SERVING') return { result: 'success', output: 'service healthy' };
    return {
      result: 'failure',
      output: `service unhealthy (responded with "${SERVING_STATUSES[status] ?? status}")`,
    };
  } catch (error) {
    return { result: 'failure', output: healthProblem(error, timeoutMs) };
  } finally {
    channel.close();
  }
}

function healthProblem(error: unknown, timeoutMs: number): string {
  const { status, details } =
    error instanceof GrpcError ? error : new GrpcError('Internal', 'the response is not a valid HealthCheckResponse');
  switch (status) {
    case 'Unimplemented':
      return `error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ${clip(details)}`;
    case 'DeadlineExceeded':
      return `timeout: health rpc did not complete within ${timeoutMs / 1000}s`;
    default:
      return `error: health rpc probe failed: rpc error: code = ${status} desc = ${clip(details)}`;
  }
}

/** Probes by a command, which `run` executes and which succeeds with the exit code 0. Never rejects. */
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
      const output = `command timed out: ${quoteText(command.join(' '))} timed out after ${timeoutMs / 1000}s`;
      return { result: 'failure', output };
    }
    return { result: 'errored', state: 'unknown', output: errorMessage(error) };
  }
}

function clip(text: string): string {
  return text.length > MAX_OUTPUT_CHARACTERS ? text.slice(0, MAX_OUTPUT_CHARACTERS) : text;
}
