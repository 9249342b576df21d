/**
 * Deletes objects of the generic store in two phases. An object with finalizers or a grace period, or of a kind with
 * `markTerminating`, is marked as terminating, and removed later. Other objects are removed at once. A grace period can only be
 * shortened.
 */
import { formatTime } from '../../api/machinery/clock.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound, newConflict, tolerate } from '../../api/meta/status-error.ts';
import { isStorageError } from '../storage/storage.ts';
import { encodeObject } from '../storage/object-bytes.ts';
import type { CacheEntry } from '../storage/cache-entry.ts';
import { cloneJson, jsonEqual } from '../../api/meta/json-equality.ts';
import type { Deleted, DeleteOptions, Entry, ListResult, RequestContext } from '../model/rest.ts';
import { currentEntry } from './store-read.ts';
import {
  admissionAttributes,
  inTransaction,
  interpretStorageError,
  kindSubjectOf,
  unstoredEntry,
  strategyContext,
  subjectOf,
  type Endpoint,
  type Store,
} from './store.ts';
import { FOREGROUND_FINALIZER, ORPHAN_FINALIZER } from '../../api/meta/well-known-labels.ts';

/** The number of parallel deletions of a collection. The storage commits them together, in the order of the calls. */
const COLLECTION_WORKERS = 16;
/**
 * The number of parallel deletions of a collection on etcd, which does not commit parallel writes in the order of the calls. It
 * is the default of kube-apiserver's `--delete-collection-workers`.
 */
const SHARED_COLLECTION_WORKERS = 1;

/** The object that is deleted, through which endpoint, and how. */
interface DeleteTarget {
  readonly endpoint: Endpoint;
  readonly namespace: string;
  readonly name: string;
  readonly options: DeleteOptions;
  /** The options for admission. */
  readonly optionsObject: Record<string, unknown>;
  /** Whether the object is deleted as part of a collection. Admission then gets no name, because the request has none. */
  readonly isOfCollection?: boolean;
  /** The caller has already run admission (an eviction). */
  readonly isAdmitted?: boolean;
}

/** A deletion of one request: the store of the resource, the request, and what it deletes. */
interface Deletion {
  readonly store: Store;
  readonly context: RequestContext;
  readonly target: DeleteTarget;
}

/**
 * Deletes an object, or begins its graceful deletion. Rejects with 404 if the object does not exist, with 400 for a name that
 * no object can have, with 409 if a precondition fails, and with the errors of admission and of the storage.
 */
export async function deleteEntry(store: Store, context: RequestContext, target: DeleteTarget): Promise<Deleted> {
  const deletion: Deletion = { store, context, target };
  let entry = currentEntry(store, target.namespace, target.name);
  let marked = false;
  for (;;) {
    context.signal.throwIfAborted();
    try {
      const step = await deleteStep(deletion, entry, marked);
      if ('again' in step) {
        entry = step.again;
        marked = true;
      } else return step;
    } catch (error) {
      if (isStorageError(error, 'not-found') && marked) return gone(store, entry);
      if (!isStorageError(error, 'conflict')) throw interpretStorageError(error, store, target.name);
      entry =
        error.current === undefined
          ? currentEntry(store, target.namespace, target.name)
          : store.cache.entryOf(error.current);
    }
  }
}

/** Runs the mutating and then the validating plugins on the stored object, unless the caller has already run admission. */
async function admitDelete({ store, context, target }: Deletion, old: KubeObject): Promise<void> {
  if (target.isAdmitted === true) return;
  const attributes = admissionAttributes(context, {
    operation: 'DELETE',
    endpoint: target.endpoint,
    namespace: target.namespace,
    name: target.isOfCollection === true ? '' : target.name,
    object: undefined,
    oldObject: old,
    options: target.optionsObject,
    dryRun: target.options.dryRun,
  });
  await store.admission.admit(attributes, context.signal);
  await store.admission.validate(attributes, context.signal);
}

type Step = Deleted | { readonly again: CacheEntry };

/**
 * Takes the next step of a deletion. `marked` is true once this deletion has marked the object as terminating, so that it only
 * remains to remove it.
 */
async function deleteStep(deletion: Deletion, entry: CacheEntry, marked: boolean): Promise<Step> {
  const { store, context, target } = deletion;
  const { options } = target;
  const { strategy } = store;
  // The precondition names the version before the mark.
  checkPreconditions(store, entry.object, options, { withVersion: !marked });
  if (marked) return await removeNow(deletion, entry);
  strategy.checkDelete?.(entry.object, strategyContext(store, context, { ...target, dryRun: options.dryRun }));
  if (strategy.markTerminating !== undefined) {
    const step = await markFirst(deletion, entry);
    if (step !== undefined) return step;
  }
  const plan = planDeletion(store, entry.object, options);
  if (plan.kind === 'pending') return { state: 'marked', entry };
  if (plan.kind === 'now') return await removeNow(deletion, entry);
  await admitDelete(deletion, entry.object);
  const written = await write(store, entry, plan.object, options.dryRun);
  if (plan.stays) return { state: 'marked', entry: written.entry };
  return written.stored === undefined ? gone(store, written.entry) : { again: written.stored };
}

async function write(
  store: Store,
  entry: CacheEntry,
  object: KubeObject,
  dryRun: boolean,
): Promise<{ readonly entry: Entry; readonly stored: CacheEntry | undefined }> {
  if (dryRun) return { entry: unstoredEntry(object), stored: undefined };
  if (jsonEqual(object, entry.object)) return { entry, stored: entry };
  const stored = store.cache.entryOf(await store.storage.update(entry.key, encodeObject(object), entry.revision));
  return { entry: stored, stored };
}

/** Marks an object as terminating. Resolves to `undefined` if the object is marked already and nothing keeps it. */
async function markFirst(deletion: Deletion, entry: CacheEntry): Promise<Deleted | undefined> {
  const { store } = deletion;
  const { options } = deletion.target;
  const { strategy } = store;
  if (entry.object.metadata.deletionTimestamp === undefined) {
    await admitDelete(deletion, entry.object);
    const object = cloneJson(entry.object);
    object.metadata.deletionTimestamp = formatTime(store.clock.now());
    strategy.markTerminating?.(object);
    // Definitions of custom resources ignore the propagation policy when they are marked.
    const finalizers =
      strategy.remainingFinalizers === undefined ? undefined : collectorFinalizers(store, object, options);
    if (finalizers !== undefined) setFinalizers(object, finalizers);
    return { state: 'marked', entry: (await write(store, entry, object, options.dryRun)).entry };
  }
  return (strategy.remainingFinalizers?.(entry.object) ?? 0) > 0 ? { state: 'marked', entry } : undefined;
}

async function removeNow(deletion: Deletion, entry: CacheEntry): Promise<Deleted> {
  const { store } = deletion;
  await admitDelete(deletion, entry.object);
  if (deletion.target.options.dryRun) return gone(store, entry);
  const revision = await inTransaction(store, { object: undefined, old: entry.object }, (transactionWrites) =>
    store.storage.delete(entry.key, entry.revision, transactionWrites),
  );
  return gone(store, store.cache.deletedEntry(entry, revision));
}

function gone(store: Store, entry: Entry): Deleted {
  return { state: 'gone', entry: store.strategy.returnsDeleted === true ? entry : undefined, object: entry.object };
}

/** Removes an object that nothing keeps after an update. Resolves to its last form. A dry run removes nothing. */
export async function finishDeletion(
  store: Store,
  last: {
    readonly namespace: string;
    readonly name: string;
    readonly object: KubeObject;
    readonly revision: number;
    readonly options: { readonly dryRun: boolean };
  },
): Promise<Entry> {
  last.object.metadata.resourceVersion = String(last.revision);
  if (last.options.dryRun) return unstoredEntry(last.object);
  const key = store.cache.keyOf(last.namespace, last.name);
  const revision = await inTransaction(store, { object: undefined, old: last.object }, (transactionWrites) =>
    store.storage.delete(key, last.revision, transactionWrites),
  );
  last.object.metadata.resourceVersion = String(revision);
  return unstoredEntry(last.object);
}

function checkPreconditions(
  store: Store,
  object: KubeObject,
  options: DeleteOptions,
  { withVersion }: { readonly withVersion: boolean },
): void {
  const { preconditions } = options;
  if (preconditions === undefined) return;
  const { metadata } = object;
  if (store.strategy.markTerminating !== undefined) return checkBeforeMark(store, object, preconditions, withVersion);
  const subject = kindSubjectOf(store.info);
  if (preconditions.uid !== undefined && preconditions.uid !== metadata.uid) {
    throw newConflict(
      subject,
      metadata.name ?? '',
      `the UID in the precondition (${preconditions.uid}) does not match the UID in record (${metadata.uid ?? ''}). The object might have been deleted and then recreated`,
    );
  }
  const { resourceVersion } = preconditions;
  if (withVersion && resourceVersion !== undefined && resourceVersion !== metadata.resourceVersion) {
    throw newConflict(
      subject,
      metadata.name ?? '',
      `the ResourceVersion in the precondition (${resourceVersion}) does not match the ResourceVersion in record (${metadata.resourceVersion ?? ''}). The object might have been modified`,
    );
  }
}

/**
 * Throws a 409 if a precondition is not met, with the message that kube-apiserver has for kinds that are marked as terminating
 * first. `withVersion` includes the resource version.
 */
function checkBeforeMark(
  store: Store,
  { metadata }: KubeObject,
  { uid, resourceVersion }: NonNullable<DeleteOptions['preconditions']>,
  withVersion: boolean,
): void {
  const refuse = (field: string, wanted: string, found = ''): never => {
    const why = `Precondition failed: ${field} in precondition: ${wanted}, ${field} in object meta: ${found}`;
    throw newConflict(subjectOf(store), metadata.name ?? '', why);
  };
  if (uid !== undefined && uid !== metadata.uid) refuse('UID', uid, metadata.uid);
  if (withVersion && resourceVersion !== undefined && resourceVersion !== metadata.resourceVersion)
    refuse('ResourceVersion', resourceVersion, metadata.resourceVersion);
}

type Plan =
  | { readonly kind: 'now' }
  /** The request does not shorten the running grace period. */
  | { readonly kind: 'pending' }
  /** Write `object`. If it `stays`, it exists until its finalizers and its grace period are done. */
  | { readonly kind: 'mark'; readonly object: KubeObject; readonly stays: boolean };

/** Returns what a DELETE does to an object. */
function planDeletion(store: Pick<Store, 'strategy' | 'clock'>, current: KubeObject, options: DeleteOptions): Plan {
  const nowMs = store.clock.now();
  const object = cloneJson(current);
  const grace = gracePeriod(store, object, options, nowMs);
  if (grace === 'pending') return { kind: 'pending' };
  const finalizers = collectorFinalizers(store, object, options);
  if (finalizers !== undefined) setFinalizers(object, finalizers);
  const held = (object.metadata.finalizers ?? []).length > 0;
  if (grace === 'none') {
    if (!held) return { kind: 'now' };
    markAsDeleting(object, nowMs);
    return { kind: 'mark', object, stays: true };
  }
  return { kind: 'mark', object, stays: held || grace > 0 };
}

/**
 * Sets the grace period on `object`, and returns its seconds. Returns `none` if the kind has no grace period or the period of
 * the object is over, and `pending` if the request does not shorten the running one. `object` is not modified then.
 */
function gracePeriod(
  store: Pick<Store, 'strategy'>,
  object: KubeObject,
  options: DeleteOptions,
  nowMs: number,
): number | 'none' | 'pending' {
  const graceful = store.strategy.gracefulDeletion;
  if (graceful === undefined) return 'none';
  const { metadata } = object;
  // As in kube-apiserver, a negative number is one second.
  const requested =
    options.gracePeriodSeconds === undefined
      ? undefined
      : options.gracePeriodSeconds < 0
        ? 1
        : options.gracePeriodSeconds;
  if (metadata.deletionTimestamp !== undefined) {
    const running = metadata.deletionGracePeriodSeconds ?? 0;
    if (running === 0) return 'none';
    if (requested === undefined || requested >= running) return 'pending';
    const startMs = Date.parse(metadata.deletionTimestamp) - durationMs(running);
    metadata.deletionTimestamp = formatTime(startMs + durationMs(requested));
    metadata.deletionGracePeriodSeconds = requested;
    return requested;
  }
  const seconds = graceful.gracePeriodSeconds(object, requested);
  metadata.deletionTimestamp = formatTime(nowMs + durationMs(seconds));
  metadata.deletionGracePeriodSeconds = seconds;
  incrementGeneration(object);
  return seconds;
}

/** Returns a number of seconds in milliseconds. It wraps beyond 292 years, as a duration of Go does in kube-apiserver. */
function durationMs(seconds: number): number {
  return Number(BigInt.asIntN(64, BigInt(Math.trunc(seconds)) * 1_000_000_000n) / 1_000_000n);
}

/** Counts the deletion as a change of the spec. Does nothing to an object without a generation. */
function incrementGeneration(object: KubeObject): void {
  const { generation } = object.metadata;
  if (generation !== undefined && generation > 0) object.metadata.generation = generation + 1;
}

function markAsDeleting(object: KubeObject, nowMs: number): void {
  const { metadata } = object;
  if (metadata.deletionTimestamp === undefined) incrementGeneration(object);
  if (metadata.deletionTimestamp === undefined || Date.parse(metadata.deletionTimestamp) > nowMs) {
    metadata.deletionTimestamp = formatTime(nowMs);
  }
  metadata.deletionGracePeriodSeconds = 0;
}

/**
 * Returns the finalizers with those of the garbage collector that the policy requires. Returns `undefined` if they do not
 * change, or if the kind supports no policy.
 */
function collectorFinalizers(
  store: Pick<Store, 'strategy'>,
  object: KubeObject,
  options: DeleteOptions,
): string[] | undefined {
  const policy = store.strategy.defaultPropagation ?? 'Background';
  if (policy === 'Unsupported') return undefined;
  const before = object.metadata.finalizers ?? [];
  const after = before.filter((one) => one !== ORPHAN_FINALIZER && one !== FOREGROUND_FINALIZER);
  const finalizer = collectorFinalizer(policy, before, options);
  if (finalizer !== undefined) after.push(finalizer);
  const present = new Set(before);
  const isSame = after.length === before.length && after.every((one) => present.has(one));
  return isSame ? undefined : after;
}

function collectorFinalizer(
  policy: 'Orphan' | 'Background',
  finalizers: readonly string[],
  options: DeleteOptions,
): string | undefined {
  if (options.orphanDependents !== undefined) return options.orphanDependents ? ORPHAN_FINALIZER : undefined;
  switch (options.propagationPolicy) {
    case 'Orphan':
      return ORPHAN_FINALIZER;
    case 'Foreground':
      return FOREGROUND_FINALIZER;
    case 'Background':
      return undefined;
    default:
      break;
  }
  const present = finalizers.find((one) => one === ORPHAN_FINALIZER || one === FOREGROUND_FINALIZER);
  return present ?? (policy === 'Orphan' ? ORPHAN_FINALIZER : undefined);
}

function setFinalizers(object: KubeObject, finalizers: string[]): void {
  if (finalizers.length === 0) delete object.metadata.finalizers;
  else object.metadata.finalizers = finalizers;
}

/**
 * Deletes the listed objects, several at a time, and ignores those that are gone already. Rejects with the first other failure,
 * while the other workers go on with the rest.
 */
export async function deleteCollection(
  store: Store,
  context: RequestContext,
  target: Omit<DeleteTarget, 'name'>,
  listed: ListResult,
): Promise<void> {
  const pending = [...listed.entries];
  const worker = async (): Promise<void> => {
    for (let entry = pending.shift(); entry !== undefined; entry = pending.shift()) {
      const { namespace = '', name = '' } = entry.object.metadata;
      await tolerate(deleteEntry(store, context, { ...target, namespace, name, isOfCollection: true }), isNotFound);
    }
  };
  const workers = store.storage.catchUp === undefined ? COLLECTION_WORKERS : SHARED_COLLECTION_WORKERS;
  await Promise.all(Array.from({ length: Math.min(workers, pending.length) }, worker));
}
