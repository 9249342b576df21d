/**
 * Defines the binary form of the documents: the messages of gnostic's `openapi.v2` and `openapi.v3`, which kubectl and other
 * clients prefer. The tables map JSON members to field numbers. A document with an unknown member is an error.
 */
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonValue } from '../../../api/meta/object.ts';

/** `any` is a message with YAML text. `strings` is a message with a repeated string. */
export type Kind = 'string' | 'bool' | 'double' | 'int' | 'any' | 'strings' | Message;

/** How a JSON member is encoded. */
export interface FieldSpec {
  readonly number: number;
  readonly kind: () => Kind;
  /** `map` is a message whose field `inner` repeats pairs of name and value. */
  readonly shape: 'one' | 'many' | 'map';
  readonly inner: number;
}

/** How a JSON object is encoded. */
export interface Message {
  readonly fields?: Readonly<Record<string, FieldSpec>>;
  /** The field number of the pairs of `x-…` members. */
  readonly extensions?: number;
  /** Selects the field for the value of a message with alternatives. */
  readonly pick?: (value: JsonValue) => readonly [number, Kind];
  /** Set if all members are pairs. */
  readonly pairs?: Kind;
}

const one = (number: number, kind: () => Kind): FieldSpec => ({ number, kind, shape: 'one', inner: 1 });
const many = (number: number, kind: () => Kind): FieldSpec => ({ number, kind, shape: 'many', inner: 1 });
const map = (number: number, kind: () => Kind, inner = 1): FieldSpec => ({ number, kind, shape: 'map', inner });
const string = (number: number): FieldSpec => one(number, () => 'string');
const strings = (number: number): FieldSpec => many(number, () => 'string');
const bool = (number: number): FieldSpec => one(number, () => 'bool');
const double = (number: number): FieldSpec => one(number, () => 'double');
const int = (number: number): FieldSpec => one(number, () => 'int');

/** Whether the value is an object with that member. */
function has(value: JsonValue, member: string): boolean {
  return isJsonObject(value) && value[member] !== undefined;
}

const apiKey: Message = { fields: { type: string(1), name: string(2), in: string(3), description: string(4) } };

// The messages of OpenAPI 2.

const externalDocs: Message = { fields: { description: string(1), url: string(2) }, extensions: 3 };

/** The message `openapi.v2.Schema`. */
export const v2Schema: Message = {
  fields: {
    $ref: string(1),
    format: string(2),
    title: string(3),
    description: string(4),
    default: one(5, () => 'any'),
    multipleOf: double(6),
    maximum: double(7),
    exclusiveMaximum: bool(8),
    minimum: double(9),
    exclusiveMinimum: bool(10),
    maxLength: int(11),
    minLength: int(12),
    pattern: string(13),
    maxItems: int(14),
    minItems: int(15),
    uniqueItems: bool(16),
    maxProperties: int(17),
    minProperties: int(18),
    required: strings(19),
    enum: many(20, () => 'any'),
    additionalProperties: one(21, () => ({
      pick: (value) => (typeof value === 'boolean' ? [2, 'bool'] : [1, v2Schema]),
    })),
    type: one(22, () => 'strings'),
    items: one(23, () => ({ pick: () => [1, v2Schema] })),
    allOf: many(24, () => v2Schema),
    properties: map(25, () => v2Schema),
    discriminator: string(26),
    readOnly: bool(27),
    externalDocs: one(29, () => externalDocs),
    example: one(30, () => 'any'),
  },
  extensions: 31,
};

const v2Items: Message = { fields: { type: string(1), format: string(2) } };

const v2Query: Message = {
  fields: {
    required: bool(1),
    in: string(2),
    description: string(3),
    name: string(4),
    type: string(6),
    format: string(7),
    items: one(8, () => v2Items),
    uniqueItems: bool(20),
  },
  extensions: 23,
};

const v2Path: Message = {
  fields: {
    required: bool(1),
    in: string(2),
    description: string(3),
    name: string(4),
    type: string(5),
    format: string(6),
    uniqueItems: bool(19),
  },
  extensions: 22,
};

const v2Body: Message = {
  fields: { description: string(1), name: string(2), in: string(3), required: bool(4), schema: one(5, () => v2Schema) },
  extensions: 6,
};

const v2Parameter: Message = {
  pick: (value) => {
    const place = isJsonObject(value) ? value['in'] : undefined;
    if (place === 'body') return [1, v2Body];
    return [2, { pick: () => (place === 'path' ? [4, v2Path] : [3, v2Query]) }];
  },
};

const reference: Message = { fields: { $ref: string(1), description: string(2) } };
const v2ParameterItem: Message = { pick: (value) => (has(value, '$ref') ? [2, reference] : [1, v2Parameter]) };
const v2Response: Message = {
  fields: { description: string(1), schema: one(2, () => ({ pick: () => [1, v2Schema] })) },
  extensions: 5,
};

const v2Operation: Message = {
  fields: {
    tags: strings(1),
    summary: string(2),
    description: string(3),
    externalDocs: one(4, () => externalDocs),
    operationId: string(5),
    produces: strings(6),
    consumes: strings(7),
    parameters: many(8, () => v2ParameterItem),
    responses: map(9, () => ({ pick: () => [1, v2Response] })),
    schemes: strings(10),
    deprecated: bool(11),
  },
  extensions: 13,
};

/** The message `openapi.v2.PathItem`. */
export const v2PathItem: Message = {
  fields: {
    get: one(2, () => v2Operation),
    put: one(3, () => v2Operation),
    post: one(4, () => v2Operation),
    delete: one(5, () => v2Operation),
    options: one(6, () => v2Operation),
    head: one(7, () => v2Operation),
    patch: one(8, () => v2Operation),
    parameters: many(9, () => v2ParameterItem),
  },
  extensions: 10,
};

const info2: Message = { fields: { title: string(1), version: string(2), description: string(3) } };

/** `openapi.v2.Document`, without the members that kube-apiserver never sends. */
export const documentV2: Message = {
  fields: {
    swagger: string(1),
    info: one(2, () => info2),
    paths: map(8, () => v2PathItem, 2),
    definitions: map(9, () => v2Schema),
    parameters: map(10, () => v2Parameter),
    security: many(12, () => ({ pairs: 'strings' })),
    securityDefinitions: map(13, () => ({ pick: () => [2, apiKey] })),
  },
  extensions: 16,
};

// The messages of OpenAPI 3.

/** The message of a schema of OpenAPI 3, or of a reference to one. */
export const v3SchemaOrReference: Message = {
  pick: (value) => (has(value, '$ref') ? [2, v3Reference] : [1, v3Schema]),
};
const v3Reference: Message = { fields: { $ref: string(1), summary: string(2), description: string(3) } };

const v3Default: Message = {
  pick: (value) =>
    typeof value === 'number' ? [1, 'double'] : typeof value === 'boolean' ? [2, 'bool'] : [3, 'string'],
};

const v3Schema: Message = {
  fields: {
    nullable: bool(1),
    example: one(7, () => 'any'),
    title: string(9),
    multipleOf: double(10),
    maximum: double(11),
    exclusiveMaximum: bool(12),
    minimum: double(13),
    exclusiveMinimum: bool(14),
    maxLength: int(15),
    minLength: int(16),
    pattern: string(17),
    maxItems: int(18),
    minItems: int(19),
    uniqueItems: bool(20),
    maxProperties: int(21),
    minProperties: int(22),
    required: strings(23),
    enum: many(24, () => 'any'),
    type: string(25),
    allOf: many(26, () => v3SchemaOrReference),
    oneOf: many(27, () => v3SchemaOrReference),
    anyOf: many(28, () => v3SchemaOrReference),
    not: one(29, () => v3Schema),
    items: one(30, () => ({ pick: () => [1, v3SchemaOrReference] })),
    properties: map(31, () => v3SchemaOrReference),
    additionalProperties: one(32, () => ({
      pick: (value) => (typeof value === 'boolean' ? [2, 'bool'] : [1, v3SchemaOrReference]),
    })),
    default: one(33, () => v3Default),
    description: string(34),
    format: string(35),
  },
  extensions: 36,
};

const v3MediaType: Message = { fields: { schema: one(1, () => v3SchemaOrReference) } };
const v3Body: Message = { fields: { description: string(1), content: map(2, () => v3MediaType), required: bool(3) } };
const v3Response: Message = { fields: { description: string(1), content: map(3, () => v3MediaType) } };

const v3Parameter: Message = {
  fields: {
    name: string(1),
    in: string(2),
    description: string(3),
    required: bool(4),
    schema: one(10, () => v3SchemaOrReference),
  },
  extensions: 14,
};

const v3ParameterOrReference: Message = { pick: () => [1, v3Parameter] };

const v3Operation: Message = {
  fields: {
    tags: strings(1),
    description: string(3),
    operationId: string(5),
    parameters: many(6, () => v3ParameterOrReference),
    requestBody: one(7, () => ({ pick: () => [1, v3Body] })),
    responses: map(8, () => ({ pick: () => [1, v3Response] }), 2),
    deprecated: bool(10),
  },
  extensions: 13,
};

/** The message `openapi.v3.PathItem`. */
export const v3PathItem: Message = {
  fields: {
    get: one(4, () => v3Operation),
    put: one(5, () => v3Operation),
    post: one(6, () => v3Operation),
    delete: one(7, () => v3Operation),
    options: one(8, () => v3Operation),
    head: one(9, () => v3Operation),
    patch: one(10, () => v3Operation),
    parameters: many(13, () => v3ParameterOrReference),
  },
  extensions: 14,
};

const v3SecurityScheme: Message = {
  fields: { type: string(1), description: string(2), name: string(3), in: string(4) },
};

/** The message `openapi.v3.Components`. */
export const v3Components: Message = {
  fields: {
    schemas: map(1, () => v3SchemaOrReference),
    securitySchemes: map(7, () => ({ pick: () => [1, v3SecurityScheme] })),
  },
};

/** `openapi.v3.Document`, without the members that kube-apiserver never sends. */
export const documentV3: Message = {
  fields: {
    openapi: string(1),
    info: one(2, () => ({ fields: { title: string(1), description: string(2), version: string(6) } })),
    paths: map(4, () => v3PathItem),
    components: one(5, () => v3Components),
  },
  extensions: 9,
};
