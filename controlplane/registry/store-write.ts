/**
 * Implements creates and changes of the generic store. A change that meets a conflict is computed again from the newer object;
 * a resourceVersion of the client then causes a 409.
 */
import { generateName, pathSegmentErrors } from '../../api/meta/names.ts';
import { invalid, type FieldError } from '../../api/meta/field-error.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { newConflict, newErrorWithoutReason, newInvalid } from '../../api/meta/status-error.ts';
import { validateMetadata } from '../../api/meta/validation.ts';
import { cloneJson, jsonEqual } from '../../api/meta/json-equality.ts';
import { isStorageError, type WriteOptions as StorageWriteOptions } from '../storage/storage.ts';
import type { StoredValue } from '../storage/resource-versions.ts';
import type { WatchCache } from '../storage/watch-cache.ts';
import { encodeBounded, LARGE_BYTES, nextTurn } from './large-object.ts';
import type { Entry, RequestContext, Written } from '../model/rest.ts';
import { fillSystemFields, matchNamespace, revisionOf } from './object-identity.ts';
import {
  inTransaction,
  interpretStorageError,
  kindSubjectOf,
  unstoredEntry,
  MODIFIED,
  strategyContext,
  subjectOf,
  type Store,
} from './store.ts';
import type { Reservation, Strategy, StrategyContext } from './strategy.ts';
import { finishDeletion } from './store-delete.ts';
import { missing, nameFault } from './store-read.ts';
import { changedMetadataErrors, checksFinalizerNames, nameRuleOf } from './changed-metadata.ts';
import { admitChange, admitCreate, writeAdmitted, type Write, type WriteTarget } from './write-admission.ts';
import { alreadyExists, uidConflict, uidWithoutObject } from './write-conflicts.ts';

/** The maximum number of attempts to generate a free name, or to take a free address. */
const ATTEMPTS = 8;

/**
 * Creates an object, and resolves to its entry. `object` is the decoded object of the request, with managed fields, which the
 * store may modify. Rejects with a 409 if the object exists, and with a 422 if it is invalid.
 */
export async function createEntry(
  store: Store,
  context: RequestContext,
  target: WriteTarget,
  object: KubeObject,
): Promise<Entry> {
  const write: Write = { store, context, target };
  const admitted = await admitCreate(write, object);
  const mayRepeat = store.strategy.inTransaction !== undefined;
  for (let attempt = 1; ; attempt++) {
    const candidate = mayRepeat && attempt < ATTEMPTS ? cloneJson(admitted) : admitted;
    try {
      return await createAdmitted(write, candidate);
    } catch (error) {
      // Another server has taken an address or a port meanwhile.
      if (isStorageError(error, 'occupied') && attempt < ATTEMPTS) continue;
      const { name = '' } = candidate.metadata;
      if (!isStorageError(error, 'exists')) throw interpretStorageError(error, store, name);
      throw alreadyExists(store, target.namespace, candidate);
    } finally {
      creating.get(store.cache)?.delete(`${target.namespace}/${candidate.metadata.name ?? ''}`);
    }
  }
}

/** The generated names, with their namespaces, of objects that are being created and that the cache does not show yet. */
const creating = new WeakMap<WatchCache, Set<string>>();

/** Generates a name that no object has. The last attempt returns a name that may be taken, which the create then refuses. */
function freeName({ cache }: Store, namespace: string, base: string): string {
  let names = creating.get(cache);
  if (names === undefined) creating.set(cache, (names = new Set()));
  for (let attempt = 1; ; attempt++) {
    const name = generateName(base);
    const key = `${namespace}/${name}`;
    const isFree = cache.get(namespace, name) === undefined && !names.has(key);
    if (isFree) names.add(key);
    if (isFree || attempt >= ATTEMPTS) return name;
  }
}

/** Runs all steps from system fields to storage. Does not convert storage errors. */
async function createAdmitted(write: Write, object: KubeObject): Promise<Entry> {
  const { store, context, target } = write;
  const { strategy, info } = store;
  const { metadata } = object;
  const forStrategy = strategyContextOf(write);
  fillSystemFields(object, forStrategy.nowMs);
  if ((metadata.name ?? '') === '' && (metadata.generateName ?? '') !== '') {
    const prefix = metadata.generateName ?? '';
    metadata.name = strategy.generateName === 'name' ? prefix : freeName(store, target.namespace, prefix);
    // Defaults may have made the labels of a template those of the object. kube-apiserver copies an object without a name.
    if (metadata.labels !== undefined) metadata.labels = { ...metadata.labels };
  }
  const reservation = await strategy.reserve?.(object, undefined, forStrategy);
  try {
    prepareCreate(store, object, forStrategy);
    if (context.isLarge === true) await nextTurn();
    const ofMetadata = metadataErrors(store, object, target.endpoint.info.group);
    const validated = strategy.validateCreate?.(object, { ...forStrategy, metadataErrors: ofMetadata }) ?? [];
    const errors = allErrors(strategy, ofMetadata, validated instanceof Promise ? await validated : validated);
    if (errors.length > 0) throw newInvalid(kindSubjectOf(info), metadata.name ?? '', errors);
    if (context.isLarge === true) await nextTurn();
    for (const text of strategy.warningsOnCreate?.(object, forStrategy) ?? []) context.warn(text);
    if (context.isLarge === true) await nextTurn();
    strategy.canonicalise?.(object);
    if (context.isLarge === true) await nextTurn();
    const entry = await writeAdmitted(write, { object, old: undefined }, () => {
      // kube-apiserver's storage refuses a new object with a resourceVersion. A dry run does not reach the storage.
      if ((metadata.resourceVersion ?? '') !== '' && !target.options.dryRun) {
        throw newErrorWithoutReason('resourceVersion should not be set on objects to be created');
      }
      return putNew(store, target, object);
    });
    if (target.options.dryRun) reservation?.revert();
    else reservation?.commit();
    return entry;
  } catch (error) {
    reservation?.revert();
    throw error;
  }
}

const strategyContextOf = ({ store, context, target }: Write): StrategyContext =>
  strategyContext(store, context, {
    namespace: target.namespace,
    dryRun: target.options.dryRun,
    info: target.endpoint.info,
  });

function prepareCreate(store: Store, object: KubeObject, context: StrategyContext): void {
  matchNamespace(object, store.info, context.namespace);
  store.strategy.prepareForCreate?.(object, context);
  if (store.strategy.managesGeneration === true) object.metadata.generation = 1;
}

/**
 * Returns all errors of an object. Kinds that do not validate metadata themselves, or not in one of their groups (events),
 * report the errors of the metadata only if there are no others.
 */
function allErrors(strategy: Strategy, ofMetadata: FieldError[], validated: FieldError[]): FieldError[] {
  const checksItself = strategy.uncheckedGroup === undefined && strategy.metadataChecks?.length !== 0;
  if (checksItself) return [...ofMetadata, ...validated];
  return validated.length > 0 ? validated : ofMetadata;
}

function metadataErrors(store: Store, object: KubeObject, group: string): FieldError[] {
  return validateMetadata(object.metadata, {
    namespaced: store.info.namespaced,
    nameRule: nameRuleOf(store.strategy, object),
    anyPrefix: store.strategy.generateName === 'unchecked',
    builtIn: store.builtIn && checksFinalizerNames(store.strategy, group),
  });
}

async function putNew(store: Store, target: WriteTarget, written: KubeObject): Promise<Entry> {
  const object = await storageFormOf(store, written);
  const name = object.metadata.name ?? '';
  const faults = pathSegmentErrors(name).map((text) => invalid('metadata.name', name, text));
  if (faults.length > 0) throw newInvalid(kindSubjectOf(store.info), name, faults);
  const key = store.cache.keyOf(target.namespace, name);
  if (target.options.dryRun) {
    if (store.cache.get(target.namespace, name) !== undefined) throw alreadyExists(store, target.namespace, object);
    return unstoredEntry(object);
  }
  const stored = await inTransaction(store, { object, old: undefined }, (transactionWrites) =>
    store.storage.create(key, encodeBounded(object), { ...lifeOf(store, object), transactionWrites }),
  );
  return store.cache.entryOf(stored);
}

/**
 * Resolves to the object in the form that is stored: the object itself, or the converted one. The latter has no resource
 * version, because the revision of its key is the version.
 */
async function storageFormOf({ storageForm }: Store, object: KubeObject): Promise<KubeObject> {
  if (storageForm === undefined) return object;
  const { resourceVersion: _, ...metadata } = object.metadata;
  return await storageForm.toStorage({ ...object, metadata });
}

function lifeOf(store: Store, object: KubeObject): StorageWriteOptions {
  const lifeMs = store.strategy.timeToLiveMs?.(object);
  return lifeMs === undefined ? {} : { expiresAtMs: store.clock.now() + lifeMs };
}

/** How the desired object is computed, and when it is written. */
export interface Change {
  /**
   * Returns the desired object, which the store may modify. `current` is `undefined` if the object does not exist. It may be
   * called again after a conflict.
   */
  compute(
    current: KubeObject | undefined,
    /** Set if the body or the current object is large. Then the steps yield to the event loop. */
    options: { readonly isLarge: boolean },
  ): Promise<KubeObject> | KubeObject;
  /** Whether a missing object is created. Otherwise it is a 404. */
  readonly creates: boolean;
  /** Called before a missing object is created. Rejects if the user may not create it. */
  authorizeCreate?(): Promise<void>;
  /** The UID in the body. A stored object with another UID is a conflict, and so is a missing object that would be created. */
  readonly uid?: string;
}

/**
 * Changes an object, or creates a missing one if `change.creates` is set. Rejects with a `StatusError`, or with the reason of
 * the signal. After a 504, the storage may have written.
 */
export async function changeEntry(
  store: Store,
  context: RequestContext,
  target: WriteTarget,
  change: Change,
): Promise<Written> {
  const write: Write = { store, context, target };
  let current: (Entry & { readonly revision: number }) | undefined = store.cache.get(target.namespace, target.name);
  for (let attempt = 1; ; attempt++) {
    context.signal.throwIfAborted();
    try {
      if (current === undefined) return await createInstead(write, change);
      return { entry: await changeOnce(write, change, current), created: false };
    } catch (error) {
      if (isStorageError(error, 'conflict') || isStorageError(error, 'exists')) {
        current = newest(store, target, error.current);
      } else if (isStorageError(error, 'not-found')) current = undefined;
      else if (isStorageError(error, 'occupied') && attempt < ATTEMPTS) current = newest(store, target, undefined);
      else throw interpretStorageError(error, store, target.name);
    }
  }
}

function newest(store: Store, target: WriteTarget, current: StoredValue | undefined) {
  return current === undefined ? store.cache.get(target.namespace, target.name) : store.cache.entryOf(current);
}

async function createInstead({ store, context, target }: Write, change: Change): Promise<Written> {
  if (change.uid !== undefined && change.creates) throw uidConflict(store, target, { wanted: change.uid, found: '' });
  if (!change.creates) throw missing(store, target.name);
  const fault = nameFault(target.name);
  if (fault !== undefined) throw fault;
  const object = await change.compute(undefined, { isLarge: context.isLarge === true });
  const uid = object.metadata.uid ?? '';
  if (uid !== '') throw uidWithoutObject(store, target.name, uid);
  await change.authorizeCreate?.();
  delete object.metadata.resourceVersion;
  // Admission gets CreateOptions for an update or a patch that creates, as kube-apiserver passes them.
  const optionsObject = { ...target.optionsObject, kind: 'CreateOptions' };
  const creation: Write = { store, context, target: { ...target, optionsObject } };
  const admitted = await admitCreate(creation, object);
  try {
    return { entry: await createAdmitted(creation, admitted), created: true };
  } catch (error) {
    // Admission may give the object another name. An object that has this name already is not the one of the request.
    const isOther = admitted.metadata.name !== target.name;
    throw isOther && isStorageError(error, 'exists') ? alreadyExists(store, target.namespace, admitted) : error;
  }
}

async function changeOnce(
  write: Write,
  change: Change,
  current: Entry & { readonly revision: number },
): Promise<Entry> {
  const { store, context, target } = write;
  const isLarge = context.isLarge === true || current.bytes.length > LARGE_BYTES;
  const old = (await store.storageForm?.fromStorage(current.object)) ?? current.object;
  if (change.uid !== undefined && change.uid !== old.metadata.uid) {
    throw uidConflict(store, target, { wanted: change.uid, found: old.metadata.uid ?? '' });
  }
  if (isLarge) await nextTurn();
  const object = await admitChange(write, await change.compute(old, { isLarge }), old);
  checkVersion(write, object, current.revision);
  const forStrategy = strategyContextOf(write);
  const reserves = target.endpoint.subresource === '' ? store.strategy.reserve : undefined;
  const reservation = await reserves?.call(store.strategy, object, old, forStrategy);
  try {
    if (isLarge) await nextTurn();
    await prepareChange(write, object, old, forStrategy);
    if (isLarge) await nextTurn();
    const entry = await writeAdmitted(write, { object, old }, () => putChanged(write, object, current));
    settle(reservation, target);
    return entry;
  } catch (error) {
    reservation?.revert();
    throw error;
  }
}

function settle(reservation: Reservation | undefined, target: WriteTarget): void {
  if (target.options.dryRun) reservation?.revert();
  else reservation?.commit();
}

/**
 * Checks the resourceVersion of an update, and sets it if it is absent. Throws a 409 for another version, and a 422 if it is
 * absent and the kind requires it.
 */
function checkVersion({ store, target }: Write, object: KubeObject, revision: number): void {
  const named = revisionOf(object);
  if (named === 0) {
    if (store.strategy.requiresResourceVersion === true) {
      const error = invalid('metadata.resourceVersion', 0, 'must be specified for an update');
      throw newInvalid(subjectOf(store), target.name, [error]);
    }
    object.metadata.resourceVersion = String(revision);
  } else if (named !== revision) throw newConflict(subjectOf(store), target.name, MODIFIED);
}

async function prepareChange(
  { store, context, target }: Write,
  object: KubeObject,
  old: KubeObject,
  forStrategy: StrategyContext,
): Promise<void> {
  const { strategy } = target.endpoint;
  matchNamespace(object, store.info, target.namespace);
  copyGeneration(object, old);
  strategy.prepareForUpdate?.(object, old, forStrategy);
  if (strategy.changesGeneration?.(object, old) === true) {
    object.metadata.generation = Number(old.metadata.generation ?? 0) + 1;
  }
  keepIdentity(object, old);
  const metadataErrors = changedMetadataErrors(store, target.endpoint, object, old);
  const validated = strategy.validateUpdate?.(object, old, { ...forStrategy, metadataErrors }) ?? [];
  const errors = [...metadataErrors, ...(validated instanceof Promise ? await validated : validated)];
  if (errors.length > 0) throw newInvalid(kindSubjectOf(store.info), target.name, errors);
  if (context.isLarge === true) await nextTurn();
  for (const text of strategy.warningsOnUpdate?.(object, old, forStrategy) ?? []) context.warn(text);
  store.strategy.canonicalise?.(object);
}

function copyGeneration(object: KubeObject, old: KubeObject): void {
  if (old.metadata.generation === undefined) delete object.metadata.generation;
  else object.metadata.generation = old.metadata.generation;
}

/**
 * Copies the fields that an update cannot change from the old object: its identity, and whether it is terminating. A UID and a
 * grace period of the request stay, so that validation refuses changed ones.
 */
function keepIdentity(object: KubeObject, old: KubeObject): void {
  const { metadata } = object;
  const before = old.metadata;
  if ((metadata.uid ?? '') === '' && before.uid !== undefined) metadata.uid = before.uid;
  if (before.creationTimestamp !== undefined && before.creationTimestamp !== null) {
    metadata.creationTimestamp = before.creationTimestamp;
  }
  if (before.deletionTimestamp !== undefined) metadata.deletionTimestamp = before.deletionTimestamp;
  if (before.deletionGracePeriodSeconds !== undefined && metadata.deletionGracePeriodSeconds === undefined) {
    metadata.deletionGracePeriodSeconds = before.deletionGracePeriodSeconds;
  }
  delete metadata.selfLink;
}

async function putChanged(
  { store, target }: Write,
  written: KubeObject,
  current: Entry & { readonly revision: number },
): Promise<Entry> {
  const old = current.object;
  if (deletedByUpdate(store, written, old)) {
    return await finishDeletion(store, { ...target, object: written, revision: current.revision });
  }
  const object = await storageFormOf(store, written);
  object.metadata.resourceVersion = String(current.revision);
  if (jsonEqual(object, old)) return current;
  if (target.options.dryRun) return unstoredEntry(object);
  const key = store.cache.keyOf(target.namespace, target.name);
  const stored = await inTransaction(store, { object, old }, (transactionWrites) =>
    store.storage.update(key, encodeBounded(object), current.revision, { ...lifeOf(store, object), transactionWrites }),
  );
  return store.cache.entryOf(stored);
}

/** Whether the object is terminating, and neither finalizers nor a grace period keep it after the update. */
function deletedByUpdate(store: Store, object: KubeObject, old: KubeObject): boolean {
  if ((object.metadata.finalizers ?? []).length > 0) return false;
  if ((store.strategy.remainingFinalizers?.(object) ?? 0) > 0) return false;
  return old.metadata.deletionTimestamp !== undefined && (old.metadata.deletionGracePeriodSeconds ?? 0) === 0;
}
