/**
 * Defines the client interface, which is implemented over HTTP(S) (`http-client.ts`), and in the process of the control plane
 * without it (`controlplane/server/direct-client.ts`).
 */
import type { KubeList, KubeObject } from '../meta/object.ts';

/** Names a resource. The constants are in `resources.ts`. */
export interface Resource {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly kind: string;
  readonly namespaced: boolean;
}

/** The kind of a patch; `apply` is server-side apply. */
export type PatchType = 'json' | 'merge' | 'strategic' | 'apply';

/** The query of a list, with the meaning of the API. `limit` objects are returned at most. */
export interface ClientListOptions {
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly resourceVersion?: string;
  readonly resourceVersionMatch?: string;
  readonly limit?: number;
  readonly continue?: string;
  readonly signal?: AbortSignal;
}

/** The query of a watch. */
export interface ClientWatchOptions extends Omit<ClientListOptions, 'limit' | 'continue'> {
  readonly sendInitialEvents?: boolean;
  readonly timeoutSeconds?: number;
}

/** The query of a write. */
export interface ClientWriteOptions {
  readonly subresource?: string;
  readonly dryRun?: boolean;
  readonly fieldManager?: string;
  readonly force?: boolean;
  readonly signal?: AbortSignal;
}

/** The query of a create. `name` is the object whose subresource is created. */
export interface ClientCreateOptions extends ClientWriteOptions {
  readonly name?: string;
}

/** A patch and the query of its request. `body` is a list of operations for the type `json`, and an object for the others. */
export interface ClientPatch extends ClientWriteOptions {
  readonly type: PatchType;
  readonly body: unknown;
}

/** The body of a delete. */
export interface ClientDeleteOptions {
  readonly gracePeriodSeconds?: number;
  readonly propagationPolicy?: 'Orphan' | 'Background' | 'Foreground';
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
  readonly dryRun?: boolean;
  readonly signal?: AbortSignal;
}

/** An event of a watch. The object of a bookmark has no name: it carries a resource version. */
export interface ClientWatchEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK';
  readonly object: KubeObject;
}

/** The operations on one API server. The namespace is '' for cluster-scoped objects. */
export interface Client {
  get(
    resource: Resource,
    namespace: string,
    name: string,
    options?: { readonly subresource?: string; readonly resourceVersion?: string; readonly signal?: AbortSignal },
  ): Promise<KubeObject>;
  list(resource: Resource, options?: ClientListOptions): Promise<KubeList>;
  create(resource: Resource, namespace: string, object: KubeObject, options?: ClientCreateOptions): Promise<KubeObject>;
  update(resource: Resource, object: KubeObject, options?: ClientWriteOptions): Promise<KubeObject>;
  patch(resource: Resource, namespace: string, name: string, patch: ClientPatch): Promise<KubeObject>;
  /** Returns the last state of the object or a Status, as the server answers. */
  delete(resource: Resource, namespace: string, name: string, options?: ClientDeleteOptions): Promise<unknown>;
  deleteCollection(resource: Resource, options: ClientListOptions & ClientDeleteOptions): Promise<void>;
  /** Ends without an error when the server or the signal ends it. Throws `Expired` if the history is no longer available. */
  watch(resource: Resource, options?: ClientWatchOptions): AsyncIterable<ClientWatchEvent>;
}
