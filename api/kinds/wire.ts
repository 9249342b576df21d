/**
 * The static types of kinds as they stand on the wire.
 *
 * The client package's models type times as `Date`, prefix reserved words with `_`, and promise required fields. What the
 * API server and the agent hold is JSON that may still be invalid: times are strings and every field may be missing.
 * `Wire<V1PodSpec>` says that; validation and defaulting read objects through it.
 */
import type { IntOrString } from '@kubernetes/client-node';
import type { KubeObject } from '../meta/object.ts';

export type Wire<T> = T extends Date
  ? string
  : T extends IntOrString
    ? T
    : T extends readonly (infer Item)[]
      ? Wire<Item>[]
      : T extends object
        ? { [Key in keyof T as Key extends `_${infer Plain}` ? Plain : Key]?: Wire<T[Key]> | undefined }
        : T;

/** An API object with typed top-level fields: `Kind<{ spec: V1PodSpec; status: V1PodStatus }>`. */
export type Kind<Fields> = KubeObject & Wire<Fields>;
