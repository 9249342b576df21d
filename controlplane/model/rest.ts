/**
 * Defines the interface between `server/` (HTTP, negotiation, streams) and `registry/` (objects): the verbs of a resource.
 *
 * A result is an `Entry`: the object and its JSON bytes, encoded once and shared.
 */
import type { Selector } from '../../api/meta/selector.ts';
import type { FieldSelector } from '../../api/meta/field-selector.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { StatusError } from '../../api/meta/status-error.ts';
import type { ResourceInfo, SubresourceInfo } from '../../api/schema/schema.ts';
import type { UserInfo } from './user-info.ts';

/** An object with `apiVersion` and `kind`, in the served version. It must not be modified. */
export interface Entry {
  readonly object: KubeObject;
  /** JSON of `object`, without a trailing newline. */
  readonly bytes: Buffer;
  /** Where `Encodings` keeps the other encodings of the object. */
  encodings?: object | undefined;
}

/** The parts of a request that the registry may use. */
export interface RequestContext {
  readonly user: UserInfo;
  readonly signal: AbortSignal;
  /** The parameter `fieldManager`, or else the part of the User-Agent before the first `/`. */
  readonly fieldManager: string;
  readonly userAgent: string;
  /** The other end of the connection; `undefined` for requests of this process. */
  readonly remoteAddress?: string | undefined;
  /** The body is so large that the write is split into several turns of the event loop (`large-object.ts`). */
  readonly isLarge?: boolean;
  /** Records the body in the audit log. Set if the request is audited. */
  readonly audited?: { bodyIs(value: unknown): void } | undefined;
  /** Adds a `Warning: 299` header once per text. */
  warn(text: string): void;
  /** Adds an audit annotation. `Request`: only at levels that record bodies. */
  annotate(key: string, value: string, level?: 'Request'): void;
  /** Whether the same user may do another action. */
  may(
    verb: string,
    target: { group: string; resource: string; subresource?: string; namespace: string; name: string },
  ): Promise<boolean>;
}

/** How unknown and duplicate fields are treated (`?fieldValidation=`). */
export type FieldValidation = 'Ignore' | 'Warn' | 'Strict';

/** The options of a get. */
export interface GetOptions {
  /** The oldest acceptable revision of the state. An empty text means the newest state, and `'0'` any state. */
  readonly resourceVersion: string;
}

/** The options of a list, parsed but not checked against each other. */
export interface ListOptions {
  readonly labelSelector: Selector;
  readonly fieldSelector: FieldSelector;
  readonly resourceVersion: string;
  readonly resourceVersionMatch: '' | 'NotOlderThan' | 'Exact';
  /** 0 means no limit. */
  readonly limit: number;
  readonly continue: string;
}

/** One page of a list. `remainingItemCount` is undefined if it is not known or the page is the last. */
export interface ListResult {
  readonly entries: readonly Entry[];
  readonly resourceVersion: string;
  readonly continue: string;
  readonly remainingItemCount: number | undefined;
}

/** The options of a watch, parsed but not checked against each other. */
export interface WatchOptions {
  readonly labelSelector: Selector;
  readonly fieldSelector: FieldSelector;
  /**
   * With an empty text or `'0'`, the watch begins with the existing objects (synthetic ADDED events). With a revision, it
   * begins with the events after that revision. `sendInitialEvents` decides instead, if it is set.
   */
  readonly resourceVersion: string;
  readonly resourceVersionMatch: '' | 'NotOlderThan' | 'Exact';
  readonly allowWatchBookmarks: boolean;
  readonly sendInitialEvents: boolean | undefined;
  /** The name if a single object is watched by its path. */
  readonly name: string;
}

/** An event before its encoding. After an ERROR the watch ends. */
export type WatchEvent =
  | { readonly type: 'ADDED' | 'MODIFIED' | 'DELETED'; readonly entry: Entry }
  | { readonly type: 'BOOKMARK'; readonly resourceVersion: string; readonly initialEventsEnd: boolean }
  | { readonly type: 'ERROR'; readonly error: Error };

/** The receiver of a watch, which is a response or an informer of this process. */
export interface WatchSink {
  /** Whether events may come in a later turn if many watches get them. */
  readonly isPatient?: boolean;
  /**
   * Receives a batch of events; watches with the same selection share the array and the entries. Returns `false` to pause the
   * watch until `resume()`.
   */
  onEvents(events: readonly WatchEvent[]): boolean;
  onEnd(): void;
}

/** The open watch, for its receiver. */
export interface WatchHandle {
  resume(): void;
  /** Sends a bookmark if the watch takes bookmarks and has not shown the newest revision yet. */
  bookmark?(): void;
  close(): void;
}

/** The options of create, update and patch. */
export interface WriteOptions {
  readonly dryRun: boolean;
  readonly fieldValidation: FieldValidation;
  /** `fieldManager` and `fieldValidation` as the client sent them, for admission. */
  readonly given?: { readonly fieldManager?: string; readonly fieldValidation?: string };
}

/** The options of a delete, from its body and its query. */
export interface DeleteOptions {
  readonly dryRun: boolean;
  readonly gracePeriodSeconds: number | undefined;
  readonly propagationPolicy: '' | 'Orphan' | 'Background' | 'Foreground';
  readonly orphanDependents: boolean | undefined;
  readonly preconditions: { readonly uid?: string; readonly resourceVersion?: string } | undefined;
  readonly ignoreStoreReadErrorWithClusterBreakingPotential?: boolean;
}

/** A decoded body: a JSON value with the findings of the decoder. The registry conforms it to the schema. */
export interface Body {
  /** The value of JSON, YAML or protobuf; not yet checked against the schema. */
  readonly value: unknown;
  /** Duplicate fields of the text (`spec.replicas`), for field validation. */
  readonly duplicates: readonly string[];
  /** JSON literals of whole numbers with a fraction or an exponent, by path. */
  readonly decimals?: ReadonlyMap<string, string>;
}

/**
 * A patch before it is applied. `duplicates` are the paths of fields that the body has twice. `fault` is the error for a body
 * that cannot be decoded: it is thrown when the patch is applied, because a missing object is reported first.
 */
export type Patch =
  | {
      readonly type: 'json' | 'merge' | 'strategic';
      readonly body: unknown;
      readonly duplicates: readonly string[];
      readonly decimals?: ReadonlyMap<string, string> | undefined;
      readonly fault?: StatusError;
    }
  | { readonly type: 'apply'; readonly body: unknown; readonly duplicates: readonly string[]; readonly force: boolean };

/** The result of a write; `created` makes the status 201. */
export interface Written {
  readonly entry: Entry;
  readonly created: boolean;
}

/** The outcome of a delete. */
export type Deleted =
  /** The object still exists (finalizers, grace period). The code is 200, or 202 for `orphanDependents: false`. */
  | { readonly state: 'marked'; readonly entry: Entry }
  /** The object is deleted. `entry` is set for kinds that return the object (pods, …); otherwise the response is a Status. */
  | { readonly state: 'gone'; readonly entry: Entry | undefined; readonly object: KubeObject };

/**
 * A served resource, or a subresource of one. Verbs that it lacks are absent; the server answers 405 for them.
 * `namespace` is `''` for cluster scope and for lists over all namespaces.
 */
export interface Rest {
  readonly info: ResourceInfo;
  /** The resource whose columns a Table has; `info` if it is absent. */
  readonly tableInfo?: ResourceInfo;
  /** Set for subresources. */
  readonly subresource: SubresourceInfo | undefined;
  get?(context: RequestContext, namespace: string, name: string, options: GetOptions): Promise<Entry> | Entry;
  list?(context: RequestContext, namespace: string, options: ListOptions): Promise<ListResult> | ListResult;
  watch?(context: RequestContext, namespace: string, options: WatchOptions, sink: WatchSink): Promise<WatchHandle>;
  /**
   * `name` is set only for subresources that are created on an object (`pods/x/binding`). The `status` of the response may
   * differ from 201.
   */
  create?(
    context: RequestContext,
    namespace: string,
    name: string,
    body: Body,
    options: WriteOptions,
  ): Promise<Entry | CreatedAs>;
  update?(
    context: RequestContext,
    namespace: string,
    name: string,
    body: Body,
    options: WriteOptions,
  ): Promise<Written>;
  patch?(
    context: RequestContext,
    namespace: string,
    name: string,
    patch: Patch,
    options: WriteOptions,
  ): Promise<Written>;
  delete?(context: RequestContext, namespace: string, name: string, options: DeleteOptions): Promise<Deleted>;
  /** Resolves to the list of the selected objects, as they were before they were deleted. */
  deleteCollection?(
    context: RequestContext,
    namespace: string,
    list: ListOptions,
    options: DeleteOptions,
  ): Promise<ListResult>;
  /**
   * Returns the target of the stream (`exec`, `attach`, `portforward`, `proxy`, `log`). `empty` means that there is nothing to
   * stream yet, and the response is empty.
   */
  connect?(
    context: RequestContext,
    namespace: string,
    name: string,
    request: ConnectRequest,
  ): Promise<ConnectTarget | 'empty'>;
}

/** The response to a create of a subresource, with its HTTP status. */
export interface CreatedAs {
  readonly status: number;
  readonly entry: Entry;
}

/** A request that is forwarded to a node, a pod or a service. */
export interface ConnectRequest {
  readonly method: string;
  /** The percent-decoded path after the subresource `proxy`, with its leading slash. Admission sees it. */
  readonly path: string;
  /** The same path as the client sent it. It is forwarded to the target. */
  readonly rawPath: string;
  readonly query: URLSearchParams;
  /** The query without the question mark. */
  readonly rawQuery: string;
}

/** The server at the other end of a connection. */
export interface Origin {
  readonly secure: boolean;
  /** A name or an address. IPv6 addresses have no brackets. */
  readonly host: string;
  readonly port: number;
}

/** The server of a node agent. */
export interface AgentOrigin extends Origin {
  /** The hashes of the public keys of its serving certificate, as the agent published them. Absent if it published none. */
  readonly servingKeys?: readonly string[];
}

/** Where the request is forwarded. Admission and authorization are done. */
export interface ConnectTarget {
  readonly origin: AgentOrigin;
  /** The percent-encoded path and query of the request: `/exec/ns/pod/container?command=ls`. */
  readonly target: string;
  /** Determines the allowed addresses. Only a `kubelet` receives the API server's kubelet client certificate. */
  readonly purpose: 'kubelet' | 'proxy';
  /** The name of the target for the loopback exceptions: `node/n1`. */
  readonly name?: string;
  /** Whether only a plain GET is proxied (logs). */
  readonly plain: boolean;
  /** Whether any certificate of the target is accepted (`insecureSkipTLSVerifyBackend`). */
  readonly anyCertificate?: boolean;
}

/** Everything that is served. Rows are added and removed at run time (custom resources). */
export interface ResourceCatalog {
  /** Finds the row of a resource, or of its subresource unless that is `''`. */
  find(group: string, version: string, resource: string, subresource: string): Rest | undefined;
  /** Rows in the order of discovery. */
  resources(): readonly ResourceInfo[];
  /** Calls the listener after each change of the set, until the returned function is called. */
  onChange(listener: () => void): () => void;
  /**
   * Resolves when this resource, and all that are not stored elsewhere (`--etcd-servers-overrides`), show every write that was
   * acknowledged before the call. Absent if they always do, because no other server writes.
   */
  readonly catchUp?: ((group: string, resource: string) => Promise<void>) | undefined;
  /** Resolves when the resource is served as its newest definition says. Returns `undefined` if it is. */
  settled?(group: string, resource: string): Promise<void> | undefined;
}
