/** Validates the lifecycle hooks and probes of a container. */
import { forbidden, invalid, required, unsupportedValue, type FieldError } from '../meta/field-error.ts';
import { httpHeaderNameErrors } from '../meta/names.ts';
import type { Lifecycle, LifecycleHandler, Probe } from './pod-types.ts';
import { invalidFor, inRange, isBlank, nonNegative, portReference } from './validation-rules.ts';

type HttpGet = NonNullable<LifecycleHandler['httpGet']>;
type Handler = Pick<Probe, 'exec' | 'httpGet' | 'tcpSocket' | 'grpc'> & Pick<LifecycleHandler, 'sleep'>;

const SCHEMES = ['HTTP', 'HTTPS'];

function httpGetErrors(action: HttpGet, path: string): FieldError[] {
  const errors: FieldError[] = [];
  if (isBlank(action.path)) errors.push(required(`${path}.path`));
  errors.push(...portReference(`${path}.port`, action.port));
  if (!SCHEMES.includes(action.scheme ?? ''))
    errors.push(unsupportedValue(`${path}.scheme`, action.scheme ?? '', SCHEMES));
  for (const { name = '' } of action.httpHeaders ?? [])
    errors.push(...invalidFor(`${path}.httpHeaders`, name, httpHeaderNameErrors(name)));
  return errors;
}

/** Validates a handler, which must have exactly one action. Each further action is an error of its own. */
function handlerErrors(handler: Handler, path: string, graceSeconds: number | undefined): FieldError[] {
  const errors: FieldError[] = [];
  let count = 0;
  const checkAction = (name: string, check: () => FieldError[]): void => {
    if (count > 0) errors.push(forbidden(`${path}.${name}`, 'may not specify more than 1 handler type'));
    else {
      count++;
      errors.push(...check());
    }
  };
  const { exec, httpGet, tcpSocket, grpc, sleep } = handler;
  if (exec !== undefined)
    checkAction('exec', () => ((exec.command ?? []).length === 0 ? [required(`${path}.exec.command`)] : []));
  if (httpGet !== undefined) checkAction('httpGet', () => httpGetErrors(httpGet, `${path}.httpGet`));
  if (tcpSocket !== undefined) checkAction('tcpSocket', () => portReference(`${path}.tcpSocket.port`, tcpSocket.port));
  if (grpc !== undefined) checkAction('grpc', () => inRange(`${path}.grpc.port`, grpc.port, 1, 65535));
  if (sleep !== undefined) checkAction('sleep', () => sleepErrors(sleep.seconds ?? 0, `${path}.sleep`, graceSeconds));
  if (count === 0) errors.push(required(path, 'must specify a handler type'));
  return errors;
}

function sleepErrors(seconds: number, path: string, graceSeconds: number | undefined): FieldError[] {
  if (graceSeconds !== undefined && (seconds < 0 || seconds > graceSeconds)) {
    const text = `must be non-negative and less than terminationGracePeriodSeconds (${graceSeconds})`;
    return [invalid(path, seconds, text)];
  }
  return [];
}

function probeErrors(probe: Probe | undefined, graceSeconds: number | undefined, path: string): FieldError[] {
  if (probe === undefined) return [];
  const errors = handlerErrors(probe, path, graceSeconds);
  errors.push(
    ...nonNegative(`${path}.initialDelaySeconds`, probe.initialDelaySeconds),
    ...nonNegative(`${path}.timeoutSeconds`, probe.timeoutSeconds),
    ...nonNegative(`${path}.periodSeconds`, probe.periodSeconds),
    ...nonNegative(`${path}.successThreshold`, probe.successThreshold),
    ...nonNegative(`${path}.failureThreshold`, probe.failureThreshold),
  );
  const { terminationGracePeriodSeconds: grace } = probe;
  if (grace !== undefined && grace <= 0) {
    errors.push(invalid(`${path}.terminationGracePeriodSeconds`, grace, 'must be greater than 0'));
  }
  return errors;
}

/** Validates a liveness or startup probe. */
export function livenessErrors(probe: Probe | undefined, graceSeconds: number | undefined, path: string): FieldError[] {
  const errors = probeErrors(probe, graceSeconds, path);
  if (probe !== undefined && probe.successThreshold !== 1) {
    errors.push(invalid(`${path}.successThreshold`, probe.successThreshold ?? 0, 'must be 1'));
  }
  return errors;
}

/** Validates a readiness probe. */
export function readinessErrors(
  probe: Probe | undefined,
  graceSeconds: number | undefined,
  path: string,
): FieldError[] {
  const errors = probeErrors(probe, graceSeconds, path);
  if (probe?.terminationGracePeriodSeconds !== undefined) {
    const text = 'must not be set for readinessProbes';
    errors.push(invalid(`${path}.terminationGracePeriodSeconds`, probe.terminationGracePeriodSeconds, text));
  }
  return errors;
}

const SIGNALS: ReadonlySet<string> = new Set(
  (
    'SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR ' +
    'SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH ' +
    'SIGXCPU SIGXFSZ SIGRTMIN SIGRTMAX'
  ).split(' '),
);
for (let i = 1; i <= 15; i++) (SIGNALS as Set<string>).add(`SIGRTMIN+${i}`);
for (let i = 1; i <= 14; i++) (SIGNALS as Set<string>).add(`SIGRTMAX-${i}`);
const WINDOWS_SIGNALS = ['SIGKILL', 'SIGTERM'];

/** Validates hooks and the stop signal. A stop signal needs the operating system of the pod. */
export function lifecycleErrors(
  lifecycle: Lifecycle | undefined,
  graceSeconds: number | undefined,
  path: string,
  os: string | undefined,
): FieldError[] {
  if (lifecycle === undefined) return [];
  const errors: FieldError[] = [];
  if (lifecycle.postStart !== undefined)
    errors.push(...handlerErrors(lifecycle.postStart, `${path}.postStart`, graceSeconds));
  if (lifecycle.preStop !== undefined)
    errors.push(...handlerErrors(lifecycle.preStop, `${path}.preStop`, graceSeconds));
  const signal = lifecycle.stopSignal;
  if (signal !== undefined) errors.push(...stopSignalErrors(signal, `${path}.stopSignal`, os));
  return errors;
}

function stopSignalErrors(signal: string, path: string, os: string | undefined): FieldError[] {
  if (os === undefined || os === '')
    return [forbidden(path, 'may not be set for containers with empty `spec.os.name`')];
  const supported = os === 'windows' ? WINDOWS_SIGNALS : [...SIGNALS].sort();
  return supported.includes(signal) ? [] : [unsupportedValue(path, signal, supported)];
}
