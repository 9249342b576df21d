/**
 * Owns the gRPC connections to a CRI runtime. It offers typed calls with a deadline, and turns a gRPC status into a
 * `RuntimeError` here and nowhere else. gRPC is loaded on first use and reconnects by itself when the runtime restarts.
 */
import type { Client, ServiceError } from '@grpc/grpc-js';
import { RuntimeError, type RuntimeErrorCode } from '../runtime.ts';
import { buildCodecs } from '../../protocols/grpc/codec.ts';
import { MESSAGES } from './messages.ts';
import { type Answer, CONTAINERD_MESSAGES, METHODS, type MethodName, type Request } from './schema.ts';

/** The largest message that an `ExecSync` response may need. */
const LARGEST_MESSAGE_BYTES = 17 * 1024 * 1024;

export interface CallOptions {
  /** 0 means no deadline. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

export interface CriClient {
  call<M extends MethodName>(method: M, request: Request<M>, options?: CallOptions): Promise<Answer<M>>;
  /** Resolves when the stream ends, and throws if the stream fails. Does not throw after an abort. */
  containerEvents(
    signal: AbortSignal,
    onEvent: (event: Answer<'getContainerEvents'>) => void,
    onOpen: () => void,
  ): Promise<void>;
  /**
   * Reports the ids of containers and sandboxes whose process exited, from containerd's own events in its Kubernetes
   * namespace.
   */
  containerdExits(signal: AbortSignal, onExit: (id: string) => void): Promise<void>;
  close(): void;
}

export interface CriEndpoints {
  /** Accepts `unix:///run/containerd/containerd.sock`, a path, or `tcp://host:port`. */
  readonly runtime: string;
  readonly images: string;
  readonly timeoutMs: number;
}

const EVENT_SERVICE = '/containerd.services.events.v1.Events/Subscribe';
const KUBERNETES_NAMESPACE = 'k8s.io';
const EXIT_TOPIC = '/tasks/exit';

interface Envelope {
  readonly topic: string;
  readonly event: { readonly value: Buffer } | null;
}

interface TaskExit {
  readonly containerId: string;
  readonly id: string;
}

export async function connectCri(endpoints: CriEndpoints): Promise<CriClient> {
  const { default: grpc } = await import('@grpc/grpc-js');
  const codec = await buildCodecs('runtime', MESSAGES);
  const eventCodec = await buildCodecs('events', CONTAINERD_MESSAGES);
  const open = (endpoint: string): Client =>
    new grpc.Client(target(endpoint), grpc.credentials.createInsecure(), {
      'grpc.default_authority': 'localhost',
      'grpc.max_receive_message_length': LARGEST_MESSAGE_BYTES,
      'grpc.max_send_message_length': LARGEST_MESSAGE_BYTES,
      'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 3_000,
      // Each client has its own connection, so that closing one client does not close the connection of another.
      'grpc.use_local_subchannel_pool': 1,
    });
  const runtime = open(endpoints.runtime);
  const images = endpoints.images === '' || endpoints.images === endpoints.runtime ? runtime : open(endpoints.images);

  const call = <M extends MethodName>(
    method: M,
    request: Request<M>,
    options: CallOptions = {},
  ): Promise<Answer<M>> => {
    const [service, requestName, answerName] = METHODS[method];
    const timeoutMs = options.timeoutMs ?? endpoints.timeoutMs;
    return new Promise((resolve, reject) => {
      if (options.signal?.aborted === true) return reject(cancelled());
      const running = (service === 'ImageService' ? images : runtime).makeUnaryRequest(
        `/runtime.v1.${service}/${rpcName(method)}`,
        (value: object) => codec(requestName).encode(value),
        (bytes: Buffer) => codec(answerName).decode(bytes),
        request,
        new grpc.Metadata(),
        timeoutMs > 0 ? { deadline: timeoutMs + grpcNow() } : {},
        (error: ServiceError | null, answer?: object) => {
          options.signal?.removeEventListener('abort', onAbort);
          if (error === null) resolve(answer as Answer<M>);
          else reject(options.signal?.aborted === true ? cancelled() : toRuntimeError(method, error));
        },
      );
      const onAbort = (): void => running.cancel();
      options.signal?.addEventListener('abort', onAbort, { once: true });
    });
  };

  const stream = (
    path: string,
    encoded: Buffer,
    namespace: string | undefined,
    signal: AbortSignal,
    onBytes: (bytes: Buffer) => void,
    onOpen: () => void,
  ): Promise<void> =>
    new Promise((resolve, reject) => {
      const metadata = new grpc.Metadata();
      if (namespace !== undefined) metadata.set('containerd-namespace', namespace);
      const running = runtime.makeServerStreamRequest(
        path,
        (value: Buffer) => value,
        (bytes: Buffer) => bytes,
        encoded,
        metadata,
      );
      const onAbort = (): void => running.cancel();
      signal.addEventListener('abort', onAbort, { once: true });
      running.on('metadata', onOpen);
      running.on('data', onBytes);
      running.on('error', (error: ServiceError) => {
        signal.removeEventListener('abort', onAbort);
        if (signal.aborted) resolve();
        else reject(toRuntimeError('getContainerEvents', error));
      });
      running.on('end', () => resolve());
      if (signal.aborted) running.cancel();
    });

  return {
    call,
    containerEvents: (signal, onEvent, onOpen) =>
      stream(
        '/runtime.v1.RuntimeService/GetContainerEvents',
        codec('GetEventsRequest').encode({}),
        undefined,
        signal,
        (bytes) => onEvent(codec('ContainerEventResponse').decode(bytes) as Answer<'getContainerEvents'>),
        onOpen,
      ),
    containerdExits: (signal, onExit) =>
      stream(
        EVENT_SERVICE,
        eventCodec('SubscribeRequest').encode({
          filters: [`namespace==${KUBERNETES_NAMESPACE},topic=="${EXIT_TOPIC}"`],
        }),
        KUBERNETES_NAMESPACE,
        signal,
        (bytes) => {
          const { topic, event } = eventCodec('Envelope').decode(bytes) as Envelope;
          if (topic !== EXIT_TOPIC) return;
          const { containerId, id } = eventCodec('TaskExit').decode(event?.value ?? Buffer.alloc(0)) as TaskExit;
          // An exec process in a container has its own id and is not the container's exit.
          if (id === containerId) onExit(containerId);
        },
        () => undefined,
      ),
    close() {
      runtime.close();
      if (images !== runtime) images.close();
    },
  };
}

/** gRPC expects a deadline as wall clock time. */
function grpcNow(): number {
  return performance.timeOrigin + performance.now();
}

function target(endpoint: string): string {
  if (endpoint.startsWith('/')) return `unix:${endpoint}`;
  if (endpoint.startsWith('unix://')) return `unix:${endpoint.slice('unix://'.length)}`;
  return endpoint.replace(/^tcp:\/\//, '');
}

function rpcName(method: MethodName): string {
  return method.charAt(0).toUpperCase() + method.slice(1);
}

function cancelled(): RuntimeError {
  return new RuntimeError('unknown', 'the request was cancelled');
}

/** Go's names of gRPC status codes, by number. */
const STATUS: readonly (readonly [string, RuntimeErrorCode])[] = [
  ['OK', 'unknown'],
  ['Canceled', 'unknown'],
  ['Unknown', 'unknown'],
  ['InvalidArgument', 'invalid'],
  ['DeadlineExceeded', 'timeout'],
  ['NotFound', 'not-found'],
  ['AlreadyExists', 'already-exists'],
  ['PermissionDenied', 'unauthorized'],
  ['ResourceExhausted', 'unknown'],
  ['FailedPrecondition', 'invalid'],
  ['Aborted', 'unknown'],
  ['OutOfRange', 'unknown'],
  ['Unimplemented', 'unsupported'],
  ['Internal', 'unknown'],
  ['Unavailable', 'unavailable'],
  ['DataLoss', 'unknown'],
  ['Unauthenticated', 'unauthorized'],
];

/** The methods whose errors users see without gRPC's prefix, as the kubelet shows them. */
const PLAIN: ReadonlySet<MethodName> = new Set(['createContainer', 'startContainer']);

function toRuntimeError(method: MethodName, error: ServiceError): RuntimeError {
  const [name, code] = STATUS[error.code] ?? ['Unknown', 'unknown'];
  const details = error.details;
  const plain = PLAIN.has(method) || (method === 'pullImage' && name === 'Unknown');
  return new RuntimeError(
    refine(method, code, details),
    plain ? details : `rpc error: code = ${name} desc = ${details}`,
    { cause: error },
  );
}

/** Refines the error code from the error text, where the gRPC status is not specific enough. */
function refine(method: MethodName, code: RuntimeErrorCode, details: string): RuntimeErrorCode {
  if (method === 'pullImage') {
    if (
      /pull access denied|insufficient_scope|authorization failed|authentication required|no basic auth|401 Unauthorized/i.test(
        details,
      )
    )
      return 'unauthorized';
    if (code === 'not-found' || details.endsWith(': not found')) return 'image-not-found';
  }
  if (method === 'createContainer' || method === 'startContainer') {
    if (code === 'unknown') return 'invalid';
  }
  return code;
}
