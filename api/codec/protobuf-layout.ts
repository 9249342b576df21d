/** Computes the layout of messages from the schema: fields by number, and the Go names that errors of decoders contain. */
import { goNameOfField } from '../schema/go-names.ts';
import type { Field, StructType } from '../schema/schema.ts';
import type { MessageNames } from './protobuf-wire.ts';

/** A field, or a message inside the message whose fields JSON shows as fields of the message itself. */
export interface Numbered {
  readonly number: number;
  readonly field: Field | undefined;
  /** The fields of an inlined message. */
  readonly inner: readonly Numbered[];
}

/**
 * Returns the fields as the messages have them. Inlined fields are in a message of their own. `depth` is the number of such
 * messages around the fields.
 */
export function layout(fields: readonly Field[], depth: number): Numbered[] {
  const found: Numbered[] = [];
  const inlined = new Map<number, Field[]>();
  for (const field of fields) {
    if (field.protobufNumber === undefined) continue;
    const around = field.protobufInline?.[depth];
    if (around === undefined) found.push({ number: field.protobufNumber, field, inner: [] });
    else inlined.set(around, [...(inlined.get(around) ?? []), field]);
  }
  for (const [number, inner] of inlined) found.push({ number, field: undefined, inner: layout(inner, depth + 1) });
  return found.sort((a, b) => a.number - b.number);
}

/** The names of a message, and of the messages inside it whose fields JSON shows as fields of the message itself. */
export interface InlinedNames extends MessageNames {
  inlined(number: number): InlinedNames;
}

/** The message of a list inside a list or map. */
export const WRAPPED_LIST: MessageNames = { message: 'ExtraValue', fields: new Map([[1, 'Items']]) };

/** The types that Go embeds in other types, by the type around them. */
const EMBEDDED: ReadonlyMap<string, string> = new Map([
  ['NamedRuleWithOperations', 'RuleWithOperations'],
  ['RuleWithOperations', 'Rule'],
  ['EphemeralContainer', 'EphemeralContainerCommon'],
  ['PersistentVolumeSpec', 'PersistentVolumeSource'],
  ['Volume', 'VolumeSource'],
  ['Probe', 'ProbeHandler'],
  ['IngressRule', 'IngressRuleValue'],
  ...['ConfigMapEnvSource', 'ConfigMapKeySelector', 'ConfigMapProjection', 'ConfigMapVolumeSource'].map(toReference),
  ...['SecretEnvSource', 'SecretKeySelector', 'SecretProjection'].map(toReference),
  ...['DeviceAllocationConfiguration', 'DeviceClaimConfiguration', 'DeviceClassConfiguration'].map(
    (name) => [name, 'DeviceConfiguration'] as const,
  ),
]);

function toReference(name: string): readonly [string, string] {
  return [name, 'LocalObjectReference'];
}

/** Returns the names of the message of a struct. */
export function messageNames(struct: StructType): InlinedNames {
  return namesOf(struct, shortName(struct), [...struct.fields.values()], 0);
}

function shortName({ name }: StructType): string {
  return name.slice(name.lastIndexOf('.') + 1);
}

function namesOf(struct: StructType, message: string, all: readonly Field[], depth: number): InlinedNames {
  const embedded = EMBEDDED.get(message) ?? '';
  const fields = new Map<number, string>();
  for (const field of all) {
    const around = field.protobufInline?.[depth];
    if (around !== undefined) fields.set(around, embedded);
    else if (field.protobufNumber !== undefined) fields.set(field.protobufNumber, fieldName(struct, field));
  }
  return {
    message,
    fields,
    inlined: (number) =>
      namesOf(
        struct,
        embedded,
        all.filter(({ protobufInline }) => protobufInline?.[depth] === number),
        depth + 1,
      ),
  };
}

/** Returns the Go name of a field. Go embeds the metadata of objects and lists, so that the name of its type is its name. */
function fieldName(struct: StructType, { name, type }: Field): string {
  return name === 'metadata' && type.kind === 'struct' ? shortName(type.struct) : goNameOfField(struct, name);
}
