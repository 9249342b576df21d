/**
 * What an admission plugin is, and what it is asked about.
 *
 * The generic store calls the chain between defaulting and validation: first `admit` of every plugin in order (they may
 * change `object` in place), then `validate` of every plugin. A plugin refuses by throwing a `StatusError`.
 */
import type { GroupVersionKind, GroupVersionResource, KubeObject } from '../../api/meta/object.ts';
import type { UserInfo } from '../authentication/authentication.ts';

export type Operation = 'CREATE' | 'UPDATE' | 'DELETE' | 'CONNECT';

export interface AdmissionAttributes {
  readonly operation: Operation;
  readonly resource: GroupVersionResource;
  /** `''` or `status`, `scale`, … */
  readonly subresource: string;
  readonly kind: GroupVersionKind;
  /** `''` for objects of the cluster. */
  readonly namespace: string;
  /** May be empty on create by generateName. */
  readonly name: string;
  /** What will be stored; `undefined` on DELETE. Mutating plugins change it in place, or replace it by `setObject`. */
  readonly object: KubeObject | undefined;
  /** What is stored; UPDATE and DELETE. Never changed. */
  readonly oldObject: KubeObject | undefined;
  /** CreateOptions, UpdateOptions (PatchOptions for patches), DeleteOptions as JSON. */
  readonly options: Record<string, unknown>;
  readonly dryRun: boolean;
  readonly user: UserInfo;
  /** A later plugin changed the object, and the chain runs again for the plugins that want to see that. */
  isReinvocation?: boolean;
  setObject(object: KubeObject): void;
  /** Calls `undo` when the object is not written after all, for what a validating plugin has recorded of it. */
  whenNotWritten?(undo: () => void): void;
  /** A `Warning: 299` header of the answer. */
  warn(text: string): void;
  /** An audit annotation; `key` is qualified. `Request`: it tells of the object and is kept where bodies are. */
  annotate(key: string, value: string, level?: 'Request'): void;
}

export interface AdmissionPlugin {
  /** As in `--enable-admission-plugins`. */
  readonly name: string;
  handles(operation: Operation): boolean;
  /** Mutating. */
  admit?(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void> | void;
  /** Validating: sees the final object. */
  validate?(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void> | void;
}

export interface AdmissionChain {
  admit(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void>;
  validate(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void>;
}
