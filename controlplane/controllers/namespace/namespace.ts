/**
 * Deletes the content of terminating namespaces, pods first, then everything else that the API serves there, including custom
 * resources.
 */
import type { KubeObject } from '../../../api/meta/object.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isConflict, isNotFound, isStatusError, tolerate } from '../../../api/meta/status-error.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Namespace, Pod } from '../../../api/kinds/kinds.ts';
import type { Resource } from '../../../api/client/client.ts';
import { namespaces, pods } from '../../../api/client/resources.ts';
import { ReconcileLoop, type ControllerEnvironment, type RunController } from '../controller.ts';
import { servedResources } from '../served-resources.ts';
import { computeConditions } from './namespace-conditions.ts';
import { isResource } from '../../../api/meta/group-resource.ts';

/** Empties `concurrentNamespaceSyncs` namespaces at a time. */
export const runNamespaces: RunController = (environment, signal) => new NamespaceController(environment).run(signal);

const FINALIZER = 'kubernetes';

/** Ends a reconciliation while content of the namespace is still being deleted. The namespace is reconciled again. */
class ContentRemains extends Error {
  readonly waitSeconds: number;

  constructor(waitSeconds: number) {
    super('content remains');
    this.waitSeconds = waitSeconds;
  }
}

class NamespaceController {
  readonly #environment: ControllerEnvironment;
  readonly #loop: ReconcileLoop;
  readonly #namespaces: Informer<Namespace>;

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
    this.#namespaces = environment.informers.for(namespaces);
    this.#loop = new ReconcileLoop(environment, {
      workers: environment.options.concurrentNamespaceSyncs,
      maxDelayMs: 60_000,
      reconcile: (key) => this.#reconcile(key),
    });
  }

  run(signal: AbortSignal): Promise<void> {
    const terminating = (namespace: Namespace): void => {
      if (namespace.metadata.deletionTimestamp !== undefined) this.#loop.enqueue(namespace);
    };
    this.#namespaces.addHandler({ add: terminating, update: (_, namespace) => terminating(namespace) });
    return this.#loop.run(signal, this.#namespaces);
  }

  async #reconcile(name: string): Promise<void> {
    const cached = this.#namespaces.get('', name);
    if (cached === undefined) return;
    const { client } = this.#environment;
    let namespace: Namespace;
    try {
      namespace = await client.get(namespaces, '', name);
    } catch (error) {
      if (isNotFound(error)) return;
      throw error;
    }
    if (namespace.metadata.deletionTimestamp === undefined || namespace.metadata.uid !== cached.metadata.uid) return;
    if (!(namespace.spec?.finalizers ?? []).includes(FINALIZER)) return;
    if (namespace.status?.phase !== 'Terminating') {
      namespace = await client.update(
        namespaces,
        { ...namespace, status: { ...namespace.status, phase: 'Terminating' } },
        { subresource: 'status' },
      );
    }
    try {
      await this.#empty(namespace);
    } catch (error) {
      if (!(error instanceof ContentRemains)) throw error;
      this.#loop.queue.addAfter(name, error.waitSeconds * 1000);
    }
  }

  async #empty(namespace: Namespace): Promise<void> {
    const { client, clock } = this.#environment;
    const name = namespace.metadata.name ?? '';
    const emptying = {
      remaining: new Map<string, number>(),
      finalizers: new Map<string, number>(),
      failures: [] as string[],
    };
    const content = servedResources(this.#environment.catalog).filter(
      ({ namespaced, verbs }) => namespaced && verbs.includes('list') && verbs.includes('delete'),
    );
    const isPods = (resource: Resource): boolean => isResource(resource, pods);
    let waitSeconds = 0;
    for (const resource of content.filter(isPods))
      waitSeconds = Math.max(waitSeconds, await this.#deleteAll(resource, name, emptying));
    // Running pods may still need other objects of the namespace.
    if (emptying.remaining.size === 0) {
      for (const resource of content) {
        if (!isPods(resource)) waitSeconds = Math.max(waitSeconds, await this.#deleteAll(resource, name, emptying));
      }
    }
    // While pods remain, kube-controller-manager does not report what is left.
    const onlyPods = [...emptying.remaining.keys()].join() === 'pods.';
    const reported = onlyPods ? { ...emptying, remaining: new Map(), finalizers: new Map() } : emptying;
    const conditions = computeConditions(namespace.status?.conditions ?? [], reported, formatTime(clock.now()));
    let latest = namespace;
    if (!semanticEqual(conditions, namespace.status?.conditions)) {
      latest = await client.update(
        namespaces,
        { ...namespace, status: { ...namespace.status, conditions } },
        { subresource: 'status' },
      );
    }
    if (emptying.failures.length > 0)
      throw new Error(`namespace ${name} cannot be emptied: ${emptying.failures.join('; ')}`);
    if (emptying.remaining.size > 0) throw new ContentRemains(Math.floor(waitSeconds / 2) + 1);
    const finalizers = (latest.spec?.finalizers ?? []).filter((finalizer) => finalizer !== FINALIZER);
    try {
      const finalized = await client.update(
        namespaces,
        { ...latest, spec: { ...latest.spec, finalizers } },
        { subresource: 'finalize' },
      );
      // Some servers keep a namespace without finalizers, so its deletion is requested once more.
      const { uid } = latest.metadata;
      if ((finalized.spec?.finalizers ?? []).length === 0) {
        await client.delete(namespaces, '', name, uid === undefined ? {} : { preconditions: { uid } });
      }
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error;
    }
  }

  /** Deletes the objects of a resource in the namespace; resolves to the number of seconds that the remaining ones may take. */
  async #deleteAll(
    resource: Resource & { readonly verbs: readonly string[] },
    namespace: string,
    emptying: { remaining: Map<string, number>; finalizers: Map<string, number>; failures: string[] },
  ): Promise<number> {
    const { client } = this.#environment;
    try {
      const before = await client.untyped.list(resource, { namespace });
      if (before.items.length === 0) return 0;
      if (resource.verbs.includes('deletecollection')) {
        await client.untyped.deleteCollection(resource, { namespace, propagationPolicy: 'Background' });
      } else {
        for (const { metadata } of before.items) await this.#deleteOne(resource, namespace, metadata.name ?? '');
      }
      const { items } = await client.untyped.list(resource, { namespace });
      return recordRemaining(resource, items, emptying);
    } catch (error) {
      // A custom resource whose definition was just deleted has no content.
      if (isNotFound(error) || isStatusError(error, 'MethodNotAllowed')) return 0;
      emptying.failures.push((error as Error).message);
      return 0;
    }
  }

  async #deleteOne(resource: Resource, namespace: string, name: string): Promise<void> {
    await tolerate(
      this.#environment.client.delete(resource, namespace, name, { propagationPolicy: 'Background' }),
      isNotFound,
    );
  }
}

/** Adds the objects that remain to `emptying`. Returns the number of seconds that they may take. */
function recordRemaining(
  resource: Resource,
  items: readonly KubeObject[],
  emptying: { readonly remaining: Map<string, number>; readonly finalizers: Map<string, number> },
): number {
  if (items.length === 0) return 0;
  emptying.remaining.set(`${resource.resource}.${resource.group}`, items.length);
  let seconds = 1;
  for (const item of items) {
    for (const finalizer of item.metadata.finalizers ?? []) {
      emptying.finalizers.set(finalizer, (emptying.finalizers.get(finalizer) ?? 0) + 1);
    }
    if (isResource(resource, pods)) {
      seconds = Math.max(seconds, (item as Pod).spec?.terminationGracePeriodSeconds ?? 0);
    }
  }
  return seconds;
}
