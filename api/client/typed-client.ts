/** Wraps a `Client` with the static types of `ResourceOf`. */
import type { KubeList, KubeObject } from '../meta/object.ts';
import type {
  Client,
  ClientDeleteOptions,
  ClientListOptions,
  ClientCreateOptions,
  ClientWriteOptions,
  ClientPatch,
  Resource,
} from './client.ts';
import type { ResourceOf } from './resources.ts';

/**
 * The operations of `Client` except `watch` and `deleteCollection`, with typed results. Types are not checked at run time.
 */
export interface TypedClient {
  readonly untyped: Client;
  get<T = KubeObject>(
    resource: ResourceOf<T>,
    namespace: string,
    name: string,
    options?: { readonly subresource?: string; readonly signal?: AbortSignal },
  ): Promise<T>;
  list<T = KubeObject>(resource: ResourceOf<T>, options?: ClientListOptions): Promise<KubeList<T>>;
  create<T extends KubeObject>(
    resource: ResourceOf<T>,
    namespace: string,
    object: T,
    options?: ClientCreateOptions,
  ): Promise<T>;
  update<T extends KubeObject>(resource: ResourceOf<T>, object: T, options?: ClientWriteOptions): Promise<T>;
  patch<T = KubeObject>(resource: ResourceOf<T>, namespace: string, name: string, patch: ClientPatch): Promise<T>;
  delete(resource: Resource, namespace: string, name: string, options?: ClientDeleteOptions): Promise<unknown>;
}

/** Wraps a client, which may still be used itself. */
export function typedClient(client: Client): TypedClient {
  return {
    untyped: client,
    get: async <T>(...args: Parameters<Client['get']>) => (await client.get(...args)) as T,
    list: async <T>(...args: Parameters<Client['list']>) => (await client.list(...args)) as KubeList<T>,
    create: async <T>(...args: Parameters<Client['create']>) => (await client.create(...args)) as T,
    update: async <T>(...args: Parameters<Client['update']>) => (await client.update(...args)) as T,
    patch: async <T>(...args: Parameters<Client['patch']>) => (await client.patch(...args)) as T,
    delete: (...args) => client.delete(...args),
  };
}
