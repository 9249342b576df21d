/**
 * Runs admission for creates and updates: mutating plugins before the object is prepared, and validating plugins right before
 * it is written.
 */
import type { KubeObject } from '../../api/meta/object.ts';
import type { Entry, RequestContext, WriteOptions } from '../model/rest.ts';
import { dropRepeatedOwners } from './object-identity.ts';
import { admissionAttributes, type Endpoint, type Store } from './store.ts';

/** The object that is written, and through which endpoint. */
export interface WriteTarget {
  readonly endpoint: Endpoint;
  readonly namespace: string;
  readonly name: string;
  readonly options: WriteOptions;
  /** The options for admission, such as `CreateOptions`. */
  readonly optionsObject: Record<string, unknown>;
  /** Whether the request is a PATCH. */
  readonly isPatch?: boolean;
  /** The caller has already run admission on the object of its own body (bindings, evictions). */
  readonly skipAdmission?: boolean;
  /** If absent, admission sees the stored object itself. */
  readonly admissionView?: AdmissionView;
}

/** A write of one request: the store of the resource, the request, and what it writes. */
export interface Write {
  readonly store: Store;
  readonly context: RequestContext;
  readonly target: WriteTarget;
}

/** Shows admission an object that is written through a subresource of another kind, such as a Scale. */
export interface AdmissionView {
  show(object: KubeObject): KubeObject;
  /** Writes the changes of admission to the shown object back into `object`. */
  take(shown: KubeObject, object: KubeObject): void;
}

/** Runs the mutating plugins on a new object, and returns the result. */
export async function admitCreate({ store, context, target }: Write, object: KubeObject): Promise<KubeObject> {
  const attributes = admissionAttributes(context, {
    operation: 'CREATE',
    endpoint: target.endpoint,
    namespace: target.namespace,
    name: object.metadata.name ?? '',
    object,
    oldObject: undefined,
    options: target.optionsObject,
    dryRun: target.options.dryRun,
  });
  await store.admission.admit(attributes, context.signal);
  const admitted = attributes.object ?? object;
  dropRepeatedOwners(admitted, context, { afterAdmission: true });
  return admitted;
}

/** Runs the mutating plugins on a changed object, and returns the result. Returns `object` itself if admission is skipped. */
export async function admitChange(
  { store, context, target }: Write,
  object: KubeObject,
  old: KubeObject,
): Promise<KubeObject> {
  if (target.skipAdmission === true) return object;
  const view = target.admissionView;
  const attributes = admissionAttributes(context, {
    operation: 'UPDATE',
    isPatch: target.isPatch,
    endpoint: target.endpoint,
    namespace: target.namespace,
    name: target.name,
    object: view?.show(object) ?? object,
    oldObject: view?.show(old) ?? old,
    options: target.optionsObject,
    dryRun: target.options.dryRun,
  });
  await store.admission.admit(attributes, context.signal);
  if (view !== undefined && attributes.object !== undefined) view.take(attributes.object, object);
  const admitted = view === undefined ? (attributes.object ?? object) : object;
  dropRepeatedOwners(admitted, context, { afterAdmission: true });
  return admitted;
}

/**
 * Runs the validating plugins, the plugins' `beforeWrite` and then `put`. If one of them fails, it reverts what plugins have
 * recorded about the object. Runs only `put` if admission is skipped.
 */
export async function writeAdmitted(
  { store, context, target }: Write,
  { object, old }: { readonly object: KubeObject; readonly old: KubeObject | undefined },
  put: () => Promise<Entry>,
): Promise<Entry> {
  if (target.skipAdmission === true) return put();
  const undos: (() => void)[] = [];
  const view = target.admissionView;
  const attributes = admissionAttributes(context, {
    operation: old === undefined ? 'CREATE' : 'UPDATE',
    isPatch: target.isPatch,
    endpoint: target.endpoint,
    namespace: target.namespace,
    name: object.metadata.name ?? '',
    object: view?.show(object) ?? object,
    oldObject: old === undefined ? undefined : (view?.show(old) ?? old),
    options: target.optionsObject,
    dryRun: target.options.dryRun,
    whenNotWritten: (undo) => undos.push(undo),
  });
  try {
    await store.admission.validate(attributes, context.signal);
    store.admission.beforeWrite(attributes);
    return await put();
  } catch (error) {
    for (const undo of undos) undo();
    throw error;
  }
}
