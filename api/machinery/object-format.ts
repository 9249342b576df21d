/**
 * The form in which a client and the API server exchange objects: JSON, or the protobuf of built-in types, which is what a node
 * agent speaks by default. What has no protobuf form (patches, custom resources, some servers' answers) stays JSON: answers
 * say by their content type what they are.
 */
import type { ProtobufCodec } from '../codec/protobuf.ts';

export const JSON_TYPE = 'application/json';
const PROTOBUF_TYPE = 'application/vnd.kubernetes.protobuf';

export interface ObjectFormat {
  readonly accept: string;
  /** `undefined`: this object has no such form. */
  encode(object: object): { readonly contentType: string; readonly body: Buffer } | undefined;
  /** `undefined`: an answer of this content type is JSON. */
  decoderFor(contentType: string): Pick<ProtobufCodec, 'decode' | 'decodeWatchEvent'> | undefined;
}

export const jsonFormat: ObjectFormat = {
  accept: JSON_TYPE,
  encode: () => undefined,
  decoderFor: () => undefined,
};

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
