/**
 * Defines the format in which a client and the API server exchange objects: JSON, or the protobuf of built-in types, which node
 * agents use by default. What has no protobuf form (patches, custom resources, some responses) stays JSON.
 */
import type { ProtobufCodec } from '../codec/protobuf.ts';
import { JSON_TYPE, PROTOBUF_TYPE } from '../http/media-types.ts';

/** How a client encodes requests, and what it accepts. */
export interface ObjectFormat {
  readonly accept: string;
  /** Encodes an object. Returns `undefined` if the object has no such form. */
  encode(object: object): { readonly contentType: string; readonly body: Buffer } | undefined;
  /** Returns the decoder for a content type. Returns `undefined` if a response of this content type is JSON. */
  decoderFor(contentType: string): Pick<ProtobufCodec, 'decode' | 'decodeWatchEvent'> | undefined;
}

/** Exchanges JSON only. */
export const jsonFormat: ObjectFormat = {
  accept: JSON_TYPE,
  encode: () => undefined,
  decoderFor: () => undefined,
};

/** Exchanges protobuf where it exists, else JSON. */
export function protobufFormat(codec: ProtobufCodec): ObjectFormat {
  return {
    accept: `${PROTOBUF_TYPE},${JSON_TYPE}`,
    encode(object) {
      const { apiVersion, kind } = object as { readonly apiVersion?: unknown; readonly kind?: unknown };
      if (typeof apiVersion !== 'string' || typeof kind !== 'string') return undefined;
      const [group, version] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
      if (!codec.has(group ?? '', version ?? '', kind)) return undefined;
      return { contentType: PROTOBUF_TYPE, body: codec.encodeEnveloped(object) };
    },
    decoderFor: (contentType) => (contentType.startsWith(PROTOBUF_TYPE) ? codec : undefined),
  };
}
