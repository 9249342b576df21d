/** Converts the types of the client package to the form that objects have on the wire. */

/**
 * Converts a type of the client package to its form on the wire: times are RFC 3339 strings, and an absent field may be
 * `undefined`.
 */
export type Wire<T> = T extends Date
  ? string
  : T extends (infer E)[]
    ? Wire<E>[]
    : T extends object
      ? { [K in keyof T]: Wire<T[K]> }
      : T;
