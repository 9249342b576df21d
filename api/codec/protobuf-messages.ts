/**
 * Generates writers and readers of messages from the schema on first use. Nothing from a request becomes part of the source:
 * names and numbers come from the table.
 */
import { quoteText } from '../meta/quote.ts';
import type { Schema, StructType, TypeNode } from '../schema/schema.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import { setMember } from '../meta/own-member.ts';
import { WRAPPED_LIST, layout, messageNames, type InlinedNames, type Numbered } from './protobuf-layout.ts';
import * as scalars from './protobuf-scalars.ts';
import {
  BYTES,
  FIXED64,
  VARINT,
  tagOf,
  type MessageNames,
  type ProtobufReader,
  type ProtobufWriter,
} from './protobuf-wire.ts';

const SCHEMA_PROPS = 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps';

type Write = (writer: ProtobufWriter, value: JsonObject) => void;
type Read = (reader: ProtobufReader) => JsonObject;
/** Opens an embedded `k8s\0` envelope. Returns `undefined` if the bytes are not an envelope. */
type OpenEnvelope = (bytes: Buffer) => JsonValue | undefined;

class MessageType {
  readonly struct: StructType;
  readonly #types: MessageTypes;
  #write: Write | undefined;
  #read: Read | undefined;

  constructor(struct: StructType, types: MessageTypes) {
    this.struct = struct;
    this.#types = types;
  }

  /** Writes the fields of `value` in front of what was written before. */
  write(writer: ProtobufWriter, value: JsonObject): void {
    this.#write ??= this.#types.compileWrite(this.struct);
    this.#write(writer, value);
  }

  /** Reads up to the end of the open message. */
  read(reader: ProtobufReader): JsonObject {
    this.#read ??= this.#types.compileRead(this.struct);
    return this.#read(reader);
  }
}

/** Whether the struct has a message: a field has a number, or there are no fields. */
export function hasMessage(struct: StructType): boolean {
  if (struct.fields.size === 0) return true;
  for (const field of struct.fields.values()) if (field.protobufNumber !== undefined) return true;
  return false;
}

/** How messages are written. */
export interface MessageOptions {
  /** Writes the fields that Go's types cannot leave out with their zero values, as kube-apiserver does. */
  readonly writesZeros?: boolean;
}

/** Owns the generated functions by struct. */
export class MessageTypes {
  readonly #schema: Schema;
  readonly #openEnvelope: OpenEnvelope;
  readonly #writesZeros: boolean;
  readonly #types = new Map<StructType, MessageType>();

  constructor(schema: Schema, openEnvelope: OpenEnvelope, { writesZeros = false }: MessageOptions = {}) {
    this.#schema = schema;
    this.#openEnvelope = openEnvelope;
    this.#writesZeros = writesZeros;
  }

  /** Returns the type of a message. */
  of(struct: StructType): MessageType {
    let type = this.#types.get(struct);
    if (type === undefined) {
      type = new MessageType(struct, this);
      this.#types.set(struct, type);
    }
    return type;
  }

  compileWrite(struct: StructType): Write {
    const source = new Source(this.#writesZeros);
    source.writeFields(layout([...struct.fields.values()], 0));
    return source.build<Write>(['w', 'o'], this.#environment(source));
  }

  compileRead(struct: StructType): Read {
    const source = new Source();
    source.line('const o = {};');
    source.readFields(layout([...struct.fields.values()], 0), messageNames(struct));
    source.line('return o;');
    return source.build<Read>(['r'], this.#environment(source));
  }

  #environment(source: Source): unknown[] {
    const props = this.#schema.struct(SCHEMA_PROPS);
    const schemaProps = props === undefined ? undefined : this.of(props);
    return [
      scalars,
      setMember,
      this.#openEnvelope,
      schemaProps,
      source.structs.map((struct) => this.of(struct)),
      sortedKeys,
      source.names,
    ];
  }
}

function sortedKeys(value: object): string[] {
  return Object.keys(value).sort();
}

const UNIONS = { schemaOrArray: 'schemas', schemaOrStringArray: 'strings', schemaOrBool: 'none' } as const;

/** Builds the source of one function. Names of variables are numbered, so that nested loops do not collide. */
class Source {
  /** The structs to which the source refers as `T[index]`. */
  readonly structs: StructType[] = [];
  /** The names to which the source refers as `N[index]`. */
  readonly names: MessageNames[] = [];
  readonly #writesZeros: boolean;
  #text = '';
  #names = 0;

  constructor(writesZeros = false) {
    this.#writesZeros = writesZeros;
  }

  line(text: string): void {
    this.#text += `${text}\n`;
  }

  build<F>(parameters: readonly string[], environment: readonly unknown[]): F {
    // oxlint-disable-next-line no-implied-eval -- the source is built from the schema alone
    const factory = new Function(
      'S',
      'setMember',
      'envelope',
      'schema',
      'T',
      'keys',
      'N',
      `return function (${parameters.join(', ')}) {\n${this.#text}};`,
    );
    return factory(...environment) as F;
  }

  #name(): string {
    this.#names += 1;
    return `v${this.#names}`;
  }

  #struct(struct: StructType): string {
    let at = this.structs.indexOf(struct);
    if (at === -1) at = this.structs.push(struct) - 1;
    return `T[${at}]`;
  }

  /** Writes the field with the highest number first, because the writer goes backwards. */
  writeFields(fields: readonly Numbered[]): void {
    for (const { number, field, inner } of fields.toReversed()) {
      if (field === undefined) {
        const before = this.#name();
        this.line(`const ${before} = w.length;`);
        this.writeFields(inner);
        const isWritten = this.#writesZeros ? '' : `if (w.length !== ${before}) `;
        this.line(`${isWritten}w.header(${tagOf(number, BYTES)}, ${before});`);
        continue;
      }
      const value = this.#name();
      this.line(`const ${value} = o[${quoteText(field.name)}];`);
      this.line(`if (${value} !== undefined && ${value} !== null) {`);
      this.#writeField(number, field.type, value);
      this.line('}');
      if (this.#writesZeros && field.presence !== 'keep') this.#writeZero(number, field.type);
    }
  }

  /** Writes the zero value of a type whose Go form cannot be nil, after an `if` that found no value. */
  #writeZero(number: number, type: TypeNode): void {
    const isNil = type.kind === 'scalar' ? NIL_SCALARS.has(type.scalar) : type.kind !== 'struct';
    if (isNil) return;
    this.line('else {');
    if (type.kind === 'scalar' && EMPTY_MESSAGES.has(type.scalar))
      this.line(`w.header(${tagOf(number, BYTES)}, w.length);`);
    else this.#writeOne(number, type, zeroOf(type));
    this.line('}');
  }

  #writeField(number: number, type: TypeNode, value: string): void {
    if (type.kind === 'list' && type.wrapped !== true) {
      const index = this.#name();
      this.line(`for (let ${index} = ${value}.length - 1; ${index} >= 0; ${index} -= 1) {`);
      this.#writeOne(number, type.items, `${value}[${index}]`);
      this.line('}');
    } else if (type.kind === 'map') {
      const keys = this.#name();
      const index = this.#name();
      const before = this.#name();
      this.line(`const ${keys} = keys(${value});`);
      this.line(`for (let ${index} = ${keys}.length - 1; ${index} >= 0; ${index} -= 1) {`);
      this.line(`const ${before} = w.length;`);
      this.#writeOne(2, type.values, `${value}[${keys}[${index}]]`);
      this.line(
        `w.string(${keys}[${index}]); w.varint(${tagOf(1, BYTES)}); w.header(${tagOf(number, BYTES)}, ${before});`,
      );
      this.line('}');
    } else this.#writeOne(number, type, value);
  }

  #writeOne(number: number, type: TypeNode, value: string): void {
    const tag = (wireType: number): string => `w.varint(${tagOf(number, wireType)});`;
    if (type.kind === 'struct') {
      const before = this.#name();
      this.line(
        `const ${before} = w.length; ${this.#struct(type.struct)}.write(w, ${value}); w.header(${tagOf(number, BYTES)}, ${before});`,
      );
    } else if (type.kind !== 'scalar') {
      // A wrapped list, or a list inside a list or map, is a message whose first field is repeated.
      const before = this.#name();
      this.line(`const ${before} = w.length;`);
      this.#writeField(1, type.kind === 'list' ? { kind: 'list', items: type.items } : type, value);
      this.line(`w.header(${tagOf(number, BYTES)}, ${before});`);
    } else if (type.message !== undefined) {
      this.line(`S.writeUnion(w, ${value}, schema, '${UNIONS[type.message]}'); ${tag(BYTES)}`);
    } else this.line(writeScalar(type.scalar, value, tag));
  }

  #namesOf(names: MessageNames): string {
    return `N[${this.names.push(names) - 1}]`;
  }

  readFields(fields: readonly Numbered[], names: InlinedNames): void {
    const tag = this.#name();
    this.line(`while (!r.done) {\nconst ${tag} = r.varint();\nswitch (${tag}) {`);
    for (const { number, field, inner } of fields) {
      if (field === undefined) {
        const around = this.#name();
        this.line(`case ${tagOf(number, BYTES)}: {\nconst ${around} = r.enter();`);
        this.readFields(inner, names.inlined(number));
        this.line(`r.leave(${around});\nbreak;\n}`);
        continue;
      }
      const member = `o[${quoteText(field.name)}]`;
      this.line(`case ${tagOf(number, wireTypeOf(field.type))}: {`);
      this.#readField(field.type, member);
      this.line('break;\n}');
      if (isPackable(field.type)) {
        // Encoders may pack repeated numbers into one field.
        const around = this.#name();
        this.line(`case ${tagOf(number, BYTES)}: {\nconst ${around} = r.enter();\nwhile (!r.done) {`);
        this.#readField(field.type, member);
        this.line(`}\nr.leave(${around});\nbreak;\n}`);
      }
    }
    this.line(`default: r.skipUnknown(${tag}, ${this.#namesOf(names)});\n}\n}`);
  }

  #readField(type: TypeNode, member: string): void {
    if (type.kind === 'list' && type.wrapped !== true) {
      this.line(`(${member} ??= []).push(${this.#readOne(type.items)});`);
    } else if (type.kind === 'map') {
      // The wire types of key and value do not matter to Go.
      const [end, key, value, tag] = [this.#name(), this.#name(), this.#name(), this.#name()];
      this.line(`const ${end} = r.enterEntry(); let ${key} = '', ${value} = ${zeroOf(type.values)};`);
      this.line(`while (r.isWithin(${end})) {\nconst ${tag} = r.varint();`);
      this.line(`if (${tag} >> 3 === 1) ${key} = r.string();`);
      this.line(`else if (${tag} >> 3 === 2) ${value} = ${this.#readOne(type.values)};`);
      this.line(`else r.skipInEntry(${tag}, ${end});\n}\nr.leaveEntry(${end});`);
      this.line(`setMember(${member} ??= {}, ${key}, ${value});`);
    } else if (type.kind === 'struct') {
      // A message may arrive in several parts. The members of later parts replace those of earlier ones.
      const around = this.#name();
      const part = this.#name();
      this.line(
        `const ${around} = r.enter(); const ${part} = ${this.#struct(type.struct)}.read(r); r.leave(${around});`,
      );
      this.line(`${member} = ${member} === undefined ? ${part} : Object.assign(${member}, ${part});`);
    } else this.line(`${member} = ${this.#readOne(type)};`);
  }

  /** Returns an expression that reads one value. */
  #readOne(type: TypeNode): string {
    if (type.kind === 'struct') {
      return `((around) => { const m = ${this.#struct(type.struct)}.read(r); r.leave(around); return m; })(r.enter())`;
    }
    if (type.kind === 'list') {
      return `((around) => { const l = []; while (!r.done) { const t = r.varint(); if (t === ${tagOf(1, wireTypeOf(type.items))}) l.push(${this.#readOne(type.items)}); else r.skipUnknown(t, ${this.#namesOf(WRAPPED_LIST)}); } r.leave(around); return l; })(r.enter())`;
    }
    if (type.kind === 'map') throw new Error('protobuf has no lists or maps of maps');
    if (type.message !== undefined) return `S.readUnion(r, schema, '${UNIONS[type.message]}')`;
    return READERS[type.scalar];
  }
}

/** Returns the source text of the zero value of a type. */
function zeroOf(type: TypeNode): string {
  if (type.kind === 'list') return '[]';
  if (type.kind !== 'scalar') return '{}';
  if (type.scalar === 'boolean') return 'false';
  if (['int32', 'int64', 'double', 'intOrString'].includes(type.scalar)) return '0';
  if (type.scalar === 'quantity') return "'0'";
  return type.scalar === 'string' || type.scalar === 'bytes' ? "''" : 'null';
}

/** Scalars whose zero value is a message without fields. */
const EMPTY_MESSAGES: ReadonlySet<string> = new Set(['time', 'microTime', 'rawExtension']);

/** Scalars that are slices or references in Go. */
const NIL_SCALARS: ReadonlySet<string> = new Set(['bytes', 'any', 'fieldsV1']);

function wireTypeOf(type: TypeNode): number {
  if (type.kind === 'list' && type.wrapped !== true) return wireTypeOf(type.items);
  if (type.kind !== 'scalar') return BYTES;
  if (type.scalar === 'boolean' || type.scalar === 'int32' || type.scalar === 'int64') return VARINT;
  return type.scalar === 'double' ? FIXED64 : BYTES;
}

function isPackable(type: TypeNode): boolean {
  return type.kind === 'list' && type.wrapped !== true && wireTypeOf(type) !== BYTES;
}

function writeScalar(
  scalar: Extract<TypeNode, { kind: 'scalar' }>['scalar'],
  value: string,
  tag: (wireType: number) => string,
): string {
  switch (scalar) {
    case 'string':
    case 'duration':
      return `w.string(${value}); ${tag(BYTES)}`;
    case 'boolean':
      return `w.varint(${value} ? 1 : 0); ${tag(VARINT)}`;
    case 'int32':
    case 'int64':
      return `w.integer(${value}); ${tag(VARINT)}`;
    case 'double':
      return `w.double(Number(${value})); ${tag(FIXED64)}`;
    case 'bytes':
      return `S.writeBase64(w, ${value}); ${tag(BYTES)}`;
    case 'time':
    case 'microTime':
      return `S.writeTime(w, ${value}); ${tag(BYTES)}`;
    case 'quantity':
      return `S.writeQuantity(w, ${value}); ${tag(BYTES)}`;
    case 'intOrString':
      return `S.writeIntOrString(w, ${value}); ${tag(BYTES)}`;
    case 'any':
    case 'rawExtension':
    case 'fieldsV1':
      return `S.writeJson(w, ${value}); ${tag(BYTES)}`;
  }
}

const READERS: Readonly<Record<Extract<TypeNode, { kind: 'scalar' }>['scalar'], string>> = {
  string: 'r.string()',
  duration: 'r.string()',
  boolean: 'r.bool()',
  int32: 'r.int32()',
  int64: 'r.int64()',
  double: 'r.double()',
  bytes: 'S.readBase64(r)',
  time: 'S.readTime(r)',
  microTime: 'S.readMicroTime(r)',
  quantity: 'S.readQuantity(r)',
  intOrString: 'S.readIntOrString(r)',
  any: "S.readJson(r, 'any', envelope)",
  rawExtension: "S.readJson(r, 'rawExtension', envelope)",
  fieldsV1: "S.readJson(r, 'fieldsV1', envelope)",
};
