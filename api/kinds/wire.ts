/**
 * Defines the static types of kinds in the wire format.
 *
 * The client package types times as `Date`, prefixes reserved words with `_`, and declares required fields. The API server and
 * the agent hold JSON that may be invalid: times are strings, and every field may be absent.
 */
import type { IntOrString } from '@kubernetes/client-node';
import type { KubeObject } from '../meta/object.ts';

/** The wire format of a model of the client package. */
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
