/**
 * Defines what reads (`store-read.ts`), writes (`store-write.ts`) and deletions (`store-delete.ts`) of the generic store share.
 * Objects are in the stored version, except where a `StorageForm` converts them.
 */
import { quoteText } from '../../api/meta/quote.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { GroupVersionKind, KubeObject } from '../../api/meta/object.ts';
import {
  newConflict,
  newInternalError,
  newNotFound,
  newStatusError,
  newTimeout,
  type StatusError,
  type Subject,
} from '../../api/meta/status-error.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type { AdmissionAttributes, AdmissionChain, Operation } from '../security/admission/admission.ts';
import { isStorageError, type Storage, type TransactionWrite } from '../storage/storage.ts';
import { encodeObject } from '../storage/object-bytes.ts';
import type { WatchCache } from '../storage/watch-cache.ts';
import type { Entry, RequestContext } from '../model/rest.ts';
import type { Strategy, StrategyContext, UpdateStrategy } from './strategy.ts';

/** The dependencies of reads. */
export interface StoredResource {
  /** The resource in its stored version. */
  readonly info: ResourceInfo;
  readonly strategy: Strategy;
  /** Whether the kind is built in. False for custom resources and for their definitions, whose metadata has fewer rules. */
  readonly builtIn: boolean;
  readonly cache: WatchCache;
  readonly storage: Storage;
  readonly clock: Clock;
  /** The group of the path, if the resource is also served in another group than that of `info` (events). */
  readonly servedGroup?: string;
}

/** The dependencies of reads and writes. */
export interface Store extends StoredResource {
  readonly admission: AdmissionChain;
  /** If present, writes see objects in the version of the request. If absent, they see the stored version. */
  readonly storageForm?: StorageForm | undefined;
}

/** Converts objects by requests to another server, right after they are read and right before they are stored. */
export interface StorageForm {
  fromStorage(stored: KubeObject): Promise<KubeObject>;
  toStorage(object: KubeObject): Promise<KubeObject>;
}

/** The path through which an object is written. */
export interface Endpoint {
  readonly info: ResourceInfo;
  /** Empty for the object itself. */
  readonly subresource: string;
  /** The kind of the body. */
  readonly kind: GroupVersionKind;
  readonly strategy: UpdateStrategy;
}

/** Returns the resource as errors name it: `configmaps`, `deployments.apps`. It has the group of the request's path. */
export function subjectOf({ info, servedGroup }: Pick<StoredResource, 'info' | 'servedGroup'>): Subject {
  return { group: servedGroup ?? info.group, resource: info.resource };
}

/** Returns the kind, by which validation errors name the object. */
export function kindSubjectOf(info: ResourceInfo): Subject {
  return { group: info.group, resource: info.kind };
}

/** Returns what a strategy learns about the request. */
export function strategyContext(
  store: StoredResource,
  context: RequestContext,
  request: {
    readonly namespace: string;
    readonly dryRun: boolean;
    /** The served version of the request. The default is the stored version. */
    readonly info?: ResourceInfo;
  },
): StrategyContext {
  const { namespace, dryRun, info = store.info } = request;
  return { request: context, info, namespace, dryRun, nowMs: store.clock.now() };
}

/** Returns the entry of an object that is not in the storage in this form. Its bytes contain the object's resource version. */
export function unstoredEntry(object: KubeObject): Entry {
  const { resourceVersion } = object.metadata;
  if (resourceVersion === undefined) return { object, bytes: encodeObject(object) };
  const bytes = encodeObject(object);
  const at = bytes.indexOf('"metadata":{') + '"metadata":{'.length;
  const comma = bytes[at] === 0x7d ? '' : ',';
  const member = Buffer.from(`"resourceVersion":${quoteText(resourceVersion)}${comma}`);
  return { object, bytes: Buffer.concat([bytes.subarray(0, at), member, bytes.subarray(at)]) };
}

/** Runs a write with the operations of its transaction on other objects. */
export function inTransaction<T>(
  { strategy, clock }: StoredResource,
  change: { readonly object: KubeObject | undefined; readonly old: KubeObject | undefined },
  write: (transactionWrites: readonly TransactionWrite[]) => Promise<T>,
): Promise<T> {
  if (strategy.inTransaction === undefined) return write([]);
  return strategy.inTransaction({ ...change, nowMs: clock.now() }, write);
}

/** Creates a 404 in kube-apiserver's words. */
export function notFoundIn(store: StoredResource, name: string): StatusError {
  return newNotFound(subjectOf(store), name);
}

/** Converts a storage error to the error for the client. Returns other errors unchanged. */
export function interpretStorageError(error: unknown, store: StoredResource, name: string): unknown {
  if (!isStorageError(error)) return error;
  switch (error.code) {
    case 'not-found':
      return notFoundIn(store, name);
    case 'conflict':
    case 'occupied':
      return newConflict(subjectOf(store), name, MODIFIED);
    case 'unknown-outcome':
      return newTimeout('request did not complete within requested timeout', 0);
    case 'unavailable':
    case 'closed':
      return interpretUnavailable(error);
    default:
      return newInternalError(error.message, error);
  }
}

/**
 * Waits for the storage. Resolves when the caches show every write that was acknowledged before the call. Rejects with a 503 if
 * the storage does not answer or is closed.
 */
export async function catchUp(storage: Storage): Promise<void> {
  try {
    await storage.catchUp?.();
  } catch (error) {
    throw interpretUnavailable(error);
  }
}

/** Converts the error of a storage that does not answer or is closed to a 503. Returns other errors unchanged. */
function interpretUnavailable(error: unknown): unknown {
  if (isStorageError(error, 'unavailable'))
    return newStatusError(503, 'ServiceUnavailable', error.message, {
      details: { retryAfterSeconds: 1 },
      cause: error,
    });
  if (isStorageError(error, 'closed'))
    return newStatusError(503, 'ServiceUnavailable', 'the server is shutting down', { cause: error });
  return error;
}

/** kube-apiserver's text of a conflict. */
export const MODIFIED = 'the object has been modified; please apply your changes to the latest version and try again';

interface AdmissionInput {
  readonly operation: Operation;
  readonly endpoint: Endpoint;
  readonly namespace: string;
  readonly name: string;
  readonly object: KubeObject | undefined;
  readonly oldObject: KubeObject | undefined;
  readonly options: Record<string, unknown>;
  readonly dryRun: boolean;
  readonly isPatch?: boolean | undefined;
  /** Keeps a function that is called if the object is not written. Absent where plugins cannot register one. */
  readonly whenNotWritten?: (undo: () => void) => void;
}

interface MutableAttributes extends AdmissionAttributes {
  object: KubeObject | undefined;
}

/** Returns the attributes of a write or a connection for admission; mutating plugins may replace their object. */
export function admissionAttributes(context: RequestContext, input: AdmissionInput): MutableAttributes {
  const { info } = input.endpoint;
  const attributes: MutableAttributes = {
    operation: input.operation,
    resource: { group: info.group, version: info.version, resource: info.resource },
    subresource: input.endpoint.subresource,
    kind: input.endpoint.kind,
    namespace: input.namespace,
    name: input.name,
    object: input.object,
    oldObject: input.oldObject,
    options: input.options,
    dryRun: input.dryRun,
    isPatch: input.isPatch,
    user: context.user,
    remoteAddress: context.remoteAddress,
    setObject(object) {
      attributes.object = object;
    },
    ...(input.whenNotWritten === undefined ? {} : { whenNotWritten: input.whenNotWritten }),
    warn: (text) => context.warn(text),
    annotate: (key, value, level) => context.annotate(key, value, level),
  };
  return attributes;
}
