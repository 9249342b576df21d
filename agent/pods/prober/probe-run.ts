/** Runs a probe once: resolves its port, host and command, and retries a probe that could not be executed. */
import { errorMessage } from '../../../api/meta/error-message.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import type { Container, Pod } from '../../base/model/pod.ts';
import { expand, expandAll } from '../../runtime/kuberuntime/environment.ts';
import { formatPod } from '../../runtime/kuberuntime/pod-containers.ts';
import type { ContainerId } from '../../runtime/runtime-identity.ts';
import { probeExec, probeGrpc, probeHttp, probeTcp, type ProbeOutcome } from './probes.ts';

/** The maximum number of runs of a probe that cannot be executed, as in the kubelet. */
const MAX_ATTEMPTS = 3;

/** A probe as the container specifies it, with defaults. */
export type Probe = NonNullable<Container['livenessProbe']>;

/** What probes need of the runtime. */
export interface ProbeExecution {
  /** Runs a command in a container. Its output has standard output and standard error. */
  readonly exec: (
    id: ContainerId,
    command: readonly string[],
    timeoutMs: number,
  ) => Promise<{ readonly exitCode: number; readonly output: string }>;
  /** Whether the error of `exec` means that the command exceeded its timeout. */
  readonly isTimeout: (error: unknown) => boolean;
}

interface RunOptions extends ProbeExecution {
  readonly probe: Probe;
  readonly pod: Pod;
  readonly container: Container;
}

/**
 * Runs the probe. Runs it again at once if it could not be executed, because the failure may be temporary: three times in all
 * at most, and not after the worker has stopped. Never rejects.
 */
export async function runProbe(
  options: RunOptions,
  containerId: string,
  podIp: string,
  isStopped: () => boolean,
): Promise<ProbeOutcome> {
  let outcome = await runSafely(options, containerId, podIp);
  for (let attempt = 1; attempt < MAX_ATTEMPTS && outcome.result === 'errored' && !isStopped(); attempt++)
    outcome = await runSafely(options, containerId, podIp);
  return outcome;
}

/** Runs a probe. It is errored if it cannot be executed, for example because its port is out of range. Never rejects. */
async function runSafely(options: RunOptions, containerId: string, podIp: string): Promise<ProbeOutcome> {
  try {
    return await run(options, containerId, podIp);
  } catch (error) {
    return { result: 'errored', state: 'unknown', output: errorMessage(error) };
  }
}

async function run(
  { probe, pod, container, exec, isTimeout }: RunOptions,
  containerId: string,
  podIp: string,
): Promise<ProbeOutcome> {
  const timeoutMs = (probe.timeoutSeconds ?? 1) * 1000;
  if (probe.exec !== undefined) {
    const command = expandCommand(probe.exec.command ?? [], container);
    const id = containerId.replace(/^[^:]+:\/\//, '') as ContainerId;
    return probeExec(command, () => exec(id, command, timeoutMs), timeoutMs, isTimeout);
  }
  if (probe.httpGet !== undefined) {
    const port = resolvePort(probe.httpGet.port as string | number, container);
    if (port === undefined) return noSuchPort(probe.httpGet.port as string | number);
    return probeHttp({
      scheme: probe.httpGet.scheme === 'HTTPS' ? 'https' : 'http',
      host: probe.httpGet.host || podIp,
      port,
      path:
        probe.httpGet.path === undefined || probe.httpGet.path === ''
          ? '/'
          : probe.httpGet.path.replace(/^(?!\/)/, '/'),
      headers: (probe.httpGet.httpHeaders ?? []).map(({ name, value }) => ({ name, value })),
      timeoutMs,
      pod: formatPod(pod),
    });
  }
  if (probe.tcpSocket !== undefined) {
    const port = resolvePort(probe.tcpSocket.port as string | number, container);
    if (port === undefined) return noSuchPort(probe.tcpSocket.port as string | number);
    return probeTcp(probe.tcpSocket.host || podIp, port, timeoutMs);
  }
  if (probe.grpc !== undefined) return probeGrpc(podIp, probe.grpc.port, probe.grpc.service ?? '', timeoutMs);
  return { result: 'errored', state: 'unknown', output: `missing probe handler for ${container.name}` };
}

function noSuchPort(port: string | number): ProbeOutcome {
  return {
    result: 'errored',
    state: 'unknown',
    output: `strconv.Atoi: parsing ${quoteText(String(port))}: invalid syntax`,
  };
}

/** Expands `$(NAME)` with the values in the container's specification. A variable with another source is empty. */
function expandCommand(command: readonly string[], container: Container): string[] {
  const values = new Map<string, string>();
  const lookup = (name: string): string | undefined => values.get(name);
  for (const { name, value } of container.env ?? []) values.set(name, expand(value ?? '', lookup));
  return expandAll(command, lookup);
}

/** Resolves a port number or the name of a container's port. Returns `undefined` for an unknown name that is not a number. */
function resolvePort(port: string | number, container: Container): number | undefined {
  if (typeof port === 'number') return port;
  const named = container.ports?.find((candidate) => candidate.name === port)?.containerPort;
  if (named !== undefined) return named;
  return /^\d+$/.test(port) ? Number(port) : undefined;
}
