/**
 * Defines admission plugins and the attributes of a request that they get. A plugin refuses a request by throwing a
 * `StatusError`.
 */
import type { GroupVersionKind, GroupVersionResource, KubeObject } from '../../../api/meta/object.ts';
import type { UserInfo } from '../../model/user-info.ts';

/** The operation of a request as policies and webhooks name it. CONNECT covers exec, attach, port-forward and proxies. */
export type Operation = 'CREATE' | 'UPDATE' | 'DELETE' | 'CONNECT';

/** What a plugin may know of a request. */
export interface AdmissionAttributes {
  readonly operation: Operation;
  readonly resource: GroupVersionResource;
  /** `''` or `status`, `scale`, … */
  readonly subresource: string;
  readonly kind: GroupVersionKind;
  /** `''` for cluster-scoped objects. */
  readonly namespace: string;
  /** Empty on the deletion of a collection, and on a create if the object has a `generateName` and no name. */
  readonly name: string;
  /**
   * The object that will be stored, or the options of a CONNECT; `undefined` on DELETE. Mutating plugins change it in place, or
   * replace it by `setObject`.
   */
  readonly object: KubeObject | undefined;
  /** The stored object, on UPDATE and DELETE. Plugins never change it. */
  readonly oldObject: KubeObject | undefined;
  /** CreateOptions, UpdateOptions (also for patches) or DeleteOptions as JSON. Empty on CONNECT. */
  readonly options: Record<string, unknown>;
  /** Whether the operation UPDATE is that of a PATCH request. */
  readonly isPatch?: boolean | undefined;
  readonly dryRun: boolean;
  readonly user: UserInfo;
  /** The address from which the request comes, if it comes over a connection. */
  readonly remoteAddress?: string | undefined;
  /** Whether the chain runs again, for the plugins that must see the change of a later plugin. */
  isReinvocation?: boolean;
  setObject(object: KubeObject): void;
  /**
   * Registers `undo`, which is called if the object is not written. Validating plugins undo by it what they recorded of the
   * object.
   */
  whenNotWritten?(undo: () => void): void;
  /** Adds a `Warning: 299` header to the response. */
  warn(text: string): void;
  /**
   * Adds an audit annotation with a qualified `key`. At level `Request`, it contains parts of the object and is recorded only
   * where request bodies are.
   */
  annotate(key: string, value: string, level?: 'Request'): void;
}

/** A plugin has the steps that it needs; the chain calls them only for operations that it handles. */
export interface AdmissionPlugin {
  /** The name of the plugin in `--enable-admission-plugins`. */
  readonly name: string;
  handles(operation: Operation): boolean;
  /** Runs the mutating step of the plugin. */
  admit?(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void> | void;
  /** The validating step, which sees the final object. */
  validate?(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void> | void;
  /**
   * Refuses a write by state that may have changed while other plugins ran. The object is written in the same turn of the event
   * loop, so that what this finds still holds then.
   */
  beforeWrite?(attributes: AdmissionAttributes): void;
}

/** All enabled plugins. Each step throws the first refusal, a `StatusError`. */
export interface AdmissionChain {
  admit(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void>;
  validate(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void>;
  /** The caller writes the object without waiting for anything in between. */
  beforeWrite(attributes: AdmissionAttributes): void;
}
