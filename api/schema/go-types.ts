/** Names JSON values and Go types like the messages of Go's JSON decoder, for decoding errors. */
import type { Scalar, StructType, TypeNode } from './schema.ts';

/** Returns the kind of a JSON value, as Go's decoder names it. */
export function jsonKind(value: unknown): string {
  if (Array.isArray(value)) return 'array';
  switch (typeof value) {
    case 'boolean':
      return 'bool';
    case 'number':
    case 'bigint':
      return 'number';
    case 'string':
      return 'string';
    default:
      return 'object';
  }
}

const GO_SCALARS: Readonly<Record<Scalar, string>> = {
  string: 'string',
  boolean: 'bool',
  int32: 'int32',
  int64: 'int64',
  double: 'float64',
  bytes: '[]uint8',
  time: 'v1.Time',
  microTime: 'v1.MicroTime',
  duration: 'v1.Duration',
  quantity: 'resource.Quantity',
  intOrString: 'intstr.IntOrString',
  any: 'interface {}',
  rawExtension: 'runtime.RawExtension',
  fieldsV1: 'v1.FieldsV1',
};

/** Returns the Go type of a field, such as `[]v1.Container`. */
export function goType(type: TypeNode): string {
  return (type.kind === 'struct' ? undefined : type.goName) ?? plainGoType(type);
}

/** Returns the Go type of a field without the names of types that are derived from others: `string` for `types.UID`. */
export function plainGoType(type: TypeNode): string {
  switch (type.kind) {
    case 'scalar':
      return GO_SCALARS[type.scalar];
    case 'struct':
      return goName(type.struct);
    case 'list':
      return `[]${goType(type.items)}`;
    case 'map':
      return `map[string]${goType(type.values)}`;
  }
}

/** Returns the Go name, for example `v1.Container`. */
export function goName(struct: StructType): string {
  return struct.name.split('.').slice(-2).join('.');
}

/** Returns the Go package of a group's internal types in kube-apiserver. Events of both groups are of the same type. */
export function internalPackage(group: string): string {
  return group === '' || group === 'events.k8s.io' ? 'core' : (group.split('.')[0] ?? group);
}
