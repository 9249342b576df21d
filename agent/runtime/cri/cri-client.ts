/**
 * Owns the gRPC channels to a CRI runtime. It offers typed calls with a deadline, and turns a gRPC status into a
 * `RuntimeError` here and nowhere else. A channel reconnects by itself when the runtime restarts.
 */
import { type GrpcChannel, openChannel } from '../../../api/grpc/grpc-channel.ts';
import { GrpcError, type GrpcStatus } from '../../../api/grpc/grpc-error.ts';
import { capitalized } from '../../../api/meta/capitalized.ts';
import { RuntimeError, type RuntimeErrorCode } from '../runtime.ts';
import { buildCodecs } from '../../../api/grpc/codec.ts';
import { MESSAGES } from './messages.ts';
import { type Answer, CONTAINERD_MESSAGES, METHODS, type MethodName, type Request } from './schema.ts';

/** The maximum size of a response. */
const MAX_MESSAGE_BYTES = 17 * 1024 * 1024;

interface CallOptions {
  /** 0 means no deadline. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** The connection to one runtime. Calls throw `RuntimeError`s; a call without an answer in time has the code `timeout`. */
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

interface CriEndpoints {
  /** Accepts `unix:///run/containerd/containerd.sock`, a path, or `tcp://host:port`. */
  readonly runtime: string;
  readonly images: string;
  readonly timeoutMs: number;
}

const EVENTS_PATH = '/runtime.v1.RuntimeService/GetContainerEvents';
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

/** Opens the channels without waiting for the runtime: the first call fails if it does not run. */
export async function connectCri(endpoints: CriEndpoints): Promise<CriClient> {
  const codec = buildCodecs(MESSAGES);
  const open = (endpoint: string): Promise<GrpcChannel> =>
    openChannel({ target: target(endpoint), largestMessageBytes: MAX_MESSAGE_BYTES });
  const runtime = await open(endpoints.runtime);
  const images =
    endpoints.images === '' || endpoints.images === endpoints.runtime ? runtime : await open(endpoints.images);

  return {
    async call(method, request, options = {}) {
      const [service, requestName, answerName] = METHODS[method];
      const { signal, timeoutMs = endpoints.timeoutMs } = options;
      try {
        const answer = await (service === 'ImageService' ? images : runtime).call(
          `/runtime.v1.${service}/${capitalized(method)}`,
          codec(requestName).encode(request),
          { timeoutMs, signal },
        );
        return codec(answerName).decode(answer) as Answer<typeof method>;
      } catch (error) {
        throw signal?.aborted === true ? cancelled() : toRuntimeError(method, error);
      }
    },
    async containerEvents(signal, onEvent, onOpen) {
      const onBytes = (bytes: Buffer): void =>
        onEvent(codec('ContainerEventResponse').decode(bytes) as Answer<'getContainerEvents'>);
      await runtime
        .stream(EVENTS_PATH, codec('GetEventsRequest').encode({}), onBytes, { signal, onOpen })
        .catch((error: unknown) => {
          throw toRuntimeError('getContainerEvents', error);
        });
    },
    containerdExits: (signal, onExit) => followExits(runtime, signal, onExit),
    close() {
      runtime.close();
      if (images !== runtime) images.close();
    },
  };
}

/** Subscribes to containerd's own events of its Kubernetes namespace. */
async function followExits(runtime: GrpcChannel, signal: AbortSignal, onExit: (id: string) => void): Promise<void> {
  const codec = buildCodecs(CONTAINERD_MESSAGES);
  const request = codec('SubscribeRequest').encode({
    filters: [`namespace==${KUBERNETES_NAMESPACE},topic=="${EXIT_TOPIC}"`],
  });
  const onBytes = (bytes: Buffer): void => {
    const { topic, event } = codec('Envelope').decode(bytes) as Envelope;
    if (topic !== EXIT_TOPIC) return;
    const { containerId, id } = codec('TaskExit').decode(event?.value ?? Buffer.alloc(0)) as TaskExit;
    // An exec process in a container has its own id and is not the container's exit.
    if (id === containerId) onExit(containerId);
  };
  const metadata = { 'containerd-namespace': KUBERNETES_NAMESPACE };
  await runtime.stream(EVENT_SERVICE, request, onBytes, { signal, metadata }).catch((error: unknown) => {
    throw toRuntimeError('getContainerEvents', error);
  });
}

function target(endpoint: string): string {
  if (endpoint.startsWith('/')) return `unix:${endpoint}`;
  if (endpoint.startsWith('unix://')) return `unix:${endpoint.slice('unix://'.length)}`;
  return endpoint.replace(/^tcp:\/\//, '');
}

function cancelled(): RuntimeError {
  return new RuntimeError('unknown', 'the request was cancelled');
}

/** The error codes of gRPC statuses. Every other status is `unknown`. */
const CODES: { readonly [status in GrpcStatus]?: RuntimeErrorCode } = {
  InvalidArgument: 'invalid',
  DeadlineExceeded: 'timeout',
  NotFound: 'not-found',
  AlreadyExists: 'already-exists',
  PermissionDenied: 'unauthorized',
  FailedPrecondition: 'invalid',
  Unimplemented: 'unsupported',
  Unavailable: 'unavailable',
  Unauthenticated: 'unauthorized',
};

/** The methods whose errors users see without gRPC's prefix, as the kubelet shows them. */
const PLAIN: ReadonlySet<MethodName> = new Set(['createContainer', 'startContainer']);

function toRuntimeError(method: MethodName, error: unknown): RuntimeError {
  if (!(error instanceof GrpcError))
    return new RuntimeError('unknown', `the runtime's answer to ${capitalized(method)} cannot be read`, {
      cause: error,
    });
  const { status, details, message } = error;
  const plain = PLAIN.has(method) || (method === 'pullImage' && status === 'Unknown');
  const code = refine(method, CODES[status] ?? 'unknown', details);
  return new RuntimeError(code, plain ? details : message, { cause: error });
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

/** Ignores the error that the object to remove does not exist. */
export async function unlessGone(run: Promise<unknown>): Promise<void> {
  try {
    await run;
  } catch (error) {
    if (!(error instanceof RuntimeError) || error.code !== 'not-found') throw error;
  }
}
