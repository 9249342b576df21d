/**
 * Deletes objects whose owners are deleted, completes foreground deletions once the dependents are deleted, and removes the
 * owner reference from dependents of owners that are deleted with `orphan`.
 */
import type { KubeObject, OwnerReference } from '../../../api/meta/object.ts';
import { isNotFound } from '../../../api/meta/status-error.ts';
import type { Registration } from '../../../api/client/informer.ts';
import type { Resource } from '../../../api/client/client.ts';
import { aborted, ReconcileLoop, type ControllerEnvironment, type RunController } from '../controller.ts';
import { isContent, servedResources, type ServedResource } from '../served-resources.ts';
import {
  decide,
  groupOf,
  canOwn,
  matchesReference,
  OwnerGraph,
  type GraphNode,
  type GraphWork,
  type Verdict,
} from './graph.ts';
import { FOREGROUND_FINALIZER, ORPHAN_FINALIZER } from '../../../api/meta/well-known-labels.ts';

/** Checks `concurrentGarbageCollectorSyncs` objects at a time. */
export const runGarbageCollector: RunController = (environment, signal) =>
  new GarbageCollector(environment).run(signal);

/** The number of absent owners that are remembered, so that thousands of dependents of one cost a single request. */
const MAX_ABSENT = 500;
const MAX_FILLING_MS = 30_000;

/** The error for an object without a namespace whose owner is in one. No retry changes that. */
class NamespacedOwner extends Error {
  constructor({ kind, name }: OwnerReference) {
    super(`an object in no namespace cannot be owned by the namespaced ${kind} "${name}"`);
  }
}

class GarbageCollector {
  readonly #environment: ControllerEnvironment;
  readonly #graph = new OwnerGraph();
  readonly #checks: ReconcileLoop;
  readonly #orphans: ReconcileLoop;
  readonly #followed = new Map<string, { readonly resource: ServedResource; readonly registration: Registration }>();
  readonly #absent = new Set<string>();
  #stopped = false;
  #isFollowScheduled = false;

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
    const workers = environment.options.concurrentGarbageCollectorSyncs;
    this.#checks = new ReconcileLoop(environment, {
      workers,
      maxDelayMs: 30_000,
      reconcile: (uid) => this.#check(uid),
    });
    this.#orphans = new ReconcileLoop(environment, {
      workers: 2,
      maxDelayMs: 30_000,
      reconcile: (uid) => this.#orphan(uid),
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#follow();
    const unfollow = this.#environment.catalog.onChange(() => this.#followSoon());
    const filled = this.#graphFilled(signal);
    const graph = { synced: () => filled };
    await Promise.all([this.#checks.run(signal, graph), this.#orphans.run(signal, graph), aborted(signal)]);
    this.#stopped = true;
    unfollow();
    for (const { registration } of this.#followed.values()) registration.remove();
  }

  /**
   * Waits until the graph is filled, but at most half a minute, as in kube-controller-manager: a resource that cannot be listed
   * must not block the collection forever.
   */
  async #graphFilled(signal: AbortSignal): Promise<void> {
    const { informers, clock, logger } = this.#environment;
    const filling = [...this.#followed.values()].map(({ resource }) => informers.for(resource));
    const timeout = new AbortController();
    const either = AbortSignal.any([signal, timeout.signal]);
    const timer = clock.after(MAX_FILLING_MS, () => timeout.abort(new Error('the graph took too long to fill')));
    try {
      await Promise.all(filling.map((informer) => informer.synced(either)));
    } catch (error) {
      if (signal.aborted) throw error;
      const missing = [...this.#followed.values()]
        .filter(({ resource }) => !informers.for(resource).hasSynced)
        .map(({ resource }) => nameOf(resource));
      logger.warn({ resources: missing }, 'Garbage collection proceeds without kinds that could not be listed');
    } finally {
      timer.cancel();
    }
  }

  /** Follows once for all changes of a turn of the event loop, because definitions are often created by the hundred. */
  #followSoon(): void {
    if (this.#isFollowScheduled) return;
    this.#isFollowScheduled = true;
    setImmediate(() => {
      this.#isFollowScheduled = false;
      if (!this.#stopped) this.#follow();
    });
  }

  #follow(): void {
    const served = new Map(
      servedResources(this.#environment.catalog)
        .filter(isContent)
        .map((resource) => [nameOf(resource), resource]),
    );
    for (const [name, { registration, resource }] of this.#followed) {
      if (served.has(name)) continue;
      registration.remove();
      this.#followed.delete(name);
      this.#environment.informers.stop(resource).catch((error: unknown) => {
        this.#environment.logger.error(
          { err: error, resource: name },
          'The informer of a resource that is no longer served did not stop',
        );
      });
    }
    for (const [name, resource] of served) {
      if (this.#followed.has(name) || isEvent(resource)) continue;
      const observe = (object: KubeObject): void => this.#schedule(this.#graph.observe(resource, object));
      const registration = this.#environment.informers.for(resource).addHandler({
        add: observe,
        update: (_, object) => observe(object),
        delete: (object) => this.#schedule(this.#graph.remove(object.metadata.uid ?? '')),
      });
      this.#followed.set(name, { resource, registration });
    }
  }

  #schedule({ check, orphan }: GraphWork): void {
    for (const node of check) this.#checks.queue.add(node.uid);
    for (const node of orphan) this.#orphans.queue.add(node.uid);
  }

  async #check(uid: string): Promise<void> {
    const node = this.#graph.get(uid);
    if (node?.resource === undefined || (node.deleting && !node.deletingDependents)) return;
    if (!node.deletingDependents && this.#graph.isHeld(node)) return;
    const live = await this.#read(node.resource, node.namespace, node.name);
    if (live === undefined || live.metadata.uid !== uid) {
      // The watch reports the deletion as well.
      this.#schedule(this.#graph.remove(uid));
      return;
    }
    if (node.deletingDependents && live.metadata.deletionTimestamp !== undefined)
      return this.#finishForeground(node, live);
    const owners = await this.#judgeAll(node, live);
    if (owners === undefined) return;
    const decision = decide({
      owners,
      finalizers: live.metadata.finalizers ?? [],
      hasDependents: node.dependents.size > 0,
      hasDependentsBeingDeletedInForeground: [...node.dependents].some((dependent) => dependent.deletingDependents),
    });
    if (decision.kind === 'drop-references') return this.#dropReferences(node, live, decision.uids);
    if (decision.kind !== 'delete' || live.metadata.deletionTimestamp !== undefined) return;
    if (decision.unblock) await this.#unblockOwners(node, live);
    try {
      const { resourceVersion } = live.metadata;
      // The object may have got another owner in the meantime.
      const preconditions = { uid, ...(resourceVersion === undefined || decision.unblock ? {} : { resourceVersion }) };
      await this.#environment.client.delete(node.resource, node.namespace, node.name, {
        preconditions,
        propagationPolicy: decision.policy,
      });
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }

  /**
   * Judges all owners of an object. Resolves to `undefined` if a reference is invalid, so that the object must not be deleted
   * before it changes.
   */
  async #judgeAll(
    node: GraphNode,
    live: KubeObject,
  ): Promise<{ readonly uid: string; readonly verdict: Verdict }[] | undefined> {
    const owners = [];
    try {
      for (const reference of live.metadata.ownerReferences ?? [])
        owners.push({ uid: reference.uid, verdict: await this.#judge(reference, node) });
      return owners;
    } catch (error) {
      if (!(error instanceof NamespacedOwner)) throw error;
      this.#environment.logger.warn(
        { err: error, object: `${node.kind} ${node.name}` },
        'An owner reference is invalid, so the garbage collector leaves the object',
      );
      return undefined;
    }
  }

  async #judge(reference: OwnerReference, dependent: GraphNode): Promise<Verdict> {
    const node = this.#graph.get(reference.uid);
    if (node !== undefined && !node.virtual) {
      if (node.namespace !== '' && node.namespace !== dependent.namespace) this.#reportNamespace(reference, dependent);
      if (node.namespace !== '' && dependent.namespace === '') throw new NamespacedOwner(reference);
      if (matchesReference(node, reference, dependent)) return node.deletingDependents ? 'waiting' : 'solid';
      // A reference with the wrong kind, name or namespace refers to no object.
      if (this.#servedOwner(reference).namespaced && dependent.namespace === '') throw new NamespacedOwner(reference);
      return 'dangling';
    }
    if (this.#absent.has(absentKey(reference, dependent))) return 'dangling';
    const resource = this.#servedOwner(reference);
    if (resource.namespaced && dependent.namespace === '') {
      this.#reportNamespace(reference, dependent);
      throw new NamespacedOwner(reference);
    }
    const owner = await this.#read(resource, resource.namespaced ? dependent.namespace : '', reference.name);
    if (owner?.metadata.uid !== reference.uid) {
      this.#rememberAbsent(absentKey(reference, dependent));
      return 'dangling';
    }
    const waiting =
      owner.metadata.deletionTimestamp !== undefined &&
      (owner.metadata.finalizers ?? []).includes(FOREGROUND_FINALIZER);
    return waiting ? 'waiting' : 'solid';
  }

  /** Returns the resource of an owner. Throws if its version is not served, because the owner may exist in another version. */
  #servedOwner({ apiVersion, kind, name }: OwnerReference): ServedResource {
    const group = groupOf(apiVersion);
    const version = apiVersion.slice(apiVersion.indexOf('/') + 1);
    const { catalog } = this.#environment;
    for (const { resource } of this.#followed.values()) {
      if (resource.group !== group || resource.kind !== kind) continue;
      if (resource.version === version || catalog.find(group, version, resource.resource, '') !== undefined)
        return resource;
    }
    throw new Error(`no resource is served for owner ${apiVersion} ${kind} "${name}"`);
  }

  /**
   * Records an event about an owner reference to another namespace. An owner is in the namespace of its dependent, or in none.
   */
  #reportNamespace({ apiVersion, kind, name, uid }: OwnerReference, dependent: GraphNode): void {
    const { namespace } = dependent;
    const involvedObject = {
      apiVersion: dependent.apiVersion,
      kind: dependent.kind,
      name: dependent.name,
      uid: dependent.uid,
      ...(namespace === '' ? {} : { namespace }),
    };
    const owner = `[${apiVersion}/${kind}, namespace: ${namespace}, name: ${name}, uid: ${uid}]`;
    const message = `ownerRef ${owner} does not exist in namespace "${namespace}"`;
    this.#environment.recorder.event(involvedObject, 'Warning', 'OwnerRefInvalidNamespace', message);
  }

  #rememberAbsent(key: string): void {
    this.#absent.add(key);
    if (this.#absent.size <= MAX_ABSENT) return;
    for (const oldest of this.#absent) {
      this.#absent.delete(oldest);
      return;
    }
  }

  async #finishForeground(node: GraphNode, live: KubeObject): Promise<void> {
    // An object in another namespace may name the UID as well, but does not block the deletion. In kube-controller-manager it
    // does, and if it has a finalizer, for ever.
    const blocking = [...node.dependents].filter((dependent) =>
      dependent.owners.some(
        (reference) =>
          reference.uid === node.uid &&
          reference.blockOwnerDeletion === true &&
          matchesReference(node, reference, dependent),
      ),
    );
    if (blocking.length === 0) return this.#removeFinalizer(node, live, FOREGROUND_FINALIZER);
    for (const dependent of node.dependents) {
      if (!dependent.deletingDependents) this.#checks.queue.add(dependent.uid);
    }
  }

  async #orphan(uid: string): Promise<void> {
    const node = this.#graph.get(uid);
    if (node?.resource === undefined) return;
    // An object in another namespace may name the UID as well. It is no dependent, and repeated writes of it would block this.
    for (const dependent of [...node.dependents].filter((one) => canOwn(node, one))) {
      if (dependent.resource === undefined) continue;
      const live = await this.#read(dependent.resource, dependent.namespace, dependent.name);
      if (live !== undefined && live.metadata.uid === dependent.uid)
        await this.#dropReferences(dependent, live, new Set([uid]));
    }
    const live = await this.#read(node.resource, node.namespace, node.name);
    if (live !== undefined && live.metadata.uid === uid) await this.#removeFinalizer(node, live, ORPHAN_FINALIZER);
  }

  async #dropReferences(node: GraphNode, live: KubeObject, uids: ReadonlySet<string>): Promise<void> {
    const remaining = (live.metadata.ownerReferences ?? []).filter((reference) => !uids.has(reference.uid));
    if (remaining.length === (live.metadata.ownerReferences ?? []).length) return;
    await this.#patchMetadata(node, live, { ownerReferences: remaining.length === 0 ? null : remaining });
  }

  async #unblockOwners(node: GraphNode, live: KubeObject): Promise<void> {
    const references = (live.metadata.ownerReferences ?? []).map((reference) => ({
      ...reference,
      blockOwnerDeletion: false,
    }));
    await this.#patchMetadata(node, live, { ownerReferences: references });
  }

  async #removeFinalizer(node: GraphNode, live: KubeObject, finalizer: string): Promise<void> {
    const finalizers = live.metadata.finalizers ?? [];
    if (!finalizers.includes(finalizer)) return;
    await this.#patchMetadata(node, live, { finalizers: finalizers.filter((other) => other !== finalizer) });
  }

  async #patchMetadata(
    { resource, namespace, name, uid }: GraphNode,
    live: KubeObject,
    metadata: object,
  ): Promise<void> {
    if (resource === undefined) return;
    const { resourceVersion } = live.metadata;
    try {
      await this.#environment.client.patch(resource, namespace, name, {
        type: 'merge',
        body: {
          metadata: { ...metadata, uid, resourceVersion },
        },
      });
    } catch (error) {
      if (isNotFound(error)) return;
      throw error;
    }
  }

  async #read(resource: Resource, namespace: string, name: string): Promise<KubeObject | undefined> {
    try {
      return await this.#environment.client.get(resource, namespace, name);
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }
}

function absentKey(reference: OwnerReference, dependent: GraphNode): string {
  return [reference.uid, reference.apiVersion, reference.kind, reference.name, dependent.namespace].join('|');
}

function nameOf(resource: Resource): string {
  return `${resource.group}/${resource.version}/${resource.resource}`;
}

/** Whether the resource is `events`. */
function isEvent({ group, resource }: Resource): boolean {
  return resource === 'events' && (group === '' || group === 'events.k8s.io');
}
