/** Builds the wire codec of message tables (`messages.ts`) with protobufjs, which is loaded with the first connection. */
import type { IType, Type } from 'protobufjs';
import type { MessageTables } from './messages.ts';

export interface MessageCodec {
  encode(value: object): Buffer;
  decode(bytes: Uint8Array): object;
}

/** Builds a codec for each message in the table of a package. */
export async function buildCodecs(
  packageName: string,
  tables: MessageTables,
): Promise<(message: string) => MessageCodec> {
  const { default: protobuf } = await import('protobufjs/light.js');
  const nested = Object.fromEntries(Object.entries(tables).map(([name, fields]) => [name, descriptor(fields)]));
  const root = protobuf.Root.fromJSON({ nested: { [packageName]: { nested } } });
  const codecs = new Map<string, MessageCodec>();
  return (message) => {
    let codec = codecs.get(message);
    if (codec === undefined) {
      codec = codecOf(root.lookupType(`${packageName}.${message}`));
      codecs.set(message, codec);
    }
    return codec;
  };
}

function descriptor(fields: Readonly<Record<string, string>>): IType {
  return {
    fields: Object.fromEntries(
      Object.entries(fields).map(([name, text]) => {
        const [id = '0', kind = ''] = text.split(' ');
        if (kind === 'map') return [name, { keyType: 'string', type: 'string', id: Number(id) }];
        if (!kind.endsWith('[]')) return [name, { type: kind, id: Number(id) }];
        const type = kind.slice(0, -2);
        return [name, { rule: 'repeated', type, id: Number(id), options: { packed: /^u?int/.test(type) } }];
      }),
    ) as IType['fields'],
  };
}

function codecOf(type: Type): MessageCodec {
  return {
    encode(value) {
      const bytes = type.encode(type.fromObject(value as Record<string, unknown>)).finish();
      return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    },
    decode: (bytes) => type.toObject(type.decode(bytes), { longs: Number, bytes: Buffer, defaults: true }),
  };
}
