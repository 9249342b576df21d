/**
 * Derives the types of protobuf messages from tables: `Message: { field: '<number> <type>' }`, where `[]` is a repeated field,
 * `map` maps strings to strings, enumerations are int32, and `decimal` is a uint64 as text, for numbers that a number of
 * JavaScript cannot hold. The wire codec (`codec.ts`) is built from the same tables.
 */

export type MessageTables = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** The methods by their names, each with the service and its package, the request and the response. */
export type MethodTable = Readonly<Record<string, readonly [service: string, request: string, answer: string]>>;

type Scalar<T> = T extends 'string' | 'decimal'
  ? string
  : T extends 'bool'
    ? boolean
    : T extends 'bytes'
      ? Buffer
      : T extends 'map'
        ? Readonly<Record<string, string>>
        : T extends 'int32' | 'int64' | 'uint32' | 'uint64'
          ? number
          : never;

type SentField<M, F> = F extends `${number} ${infer T}[]`
  ? readonly SentItem<M, T>[]
  : F extends `${number} ${infer T}`
    ? SentItem<M, T>
    : never;
type SentItem<M, T> = T extends keyof M ? OutgoingOf<M, T> : Scalar<T>;
/** A message to send. An omitted field has the default of its type. */
export type OutgoingOf<M, N extends keyof M> = { readonly [F in keyof M[N]]?: SentField<M, M[N][F]> };

type ReceivedField<M, F> = F extends `${number} ${infer T}[]`
  ? readonly ReceivedItem<M, T>[]
  : F extends `${number} ${infer T}`
    ? T extends keyof M
      ? IncomingOf<M, T> | null
      : Scalar<T>
    : never;
type ReceivedItem<M, T> = T extends keyof M ? IncomingOf<M, T> : Scalar<T>;
/** A received message. Scalars, lists and maps are always present, and an absent message is null. */
export type IncomingOf<M, N extends keyof M> = { readonly [F in keyof M[N]]: ReceivedField<M, M[N][F]> };
