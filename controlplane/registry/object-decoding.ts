/**
 * Decodes the body of a request to an object of a served version: kind and version, schema, field validation and defaults.
 *
 * Fields that the schema does not have are dropped. Field validation ignores them, adds warnings, or refuses the request.
 */
import { quoteText } from '../../api/meta/quote.ts';
import { parseJson } from '../../api/codec/json.ts';
import { duplicateErrors, duplicateWarnings } from '../../api/codec/duplicates.ts';
import { strictErrors, strictWarnings } from './strict-errors.ts';
import { DecodeError, type DecodeOptions, decodeStruct, unknownFieldErrors } from '../../api/schema/decode.ts';
import { internalPackage, jsonKind } from '../../api/schema/go-types.ts';
import { applyTableDefaults } from '../../api/schema/defaults.ts';
import { apiVersionOf, parseApiVersion, type JsonObject, type KubeObject } from '../../api/meta/object.ts';
import { invalid } from '../../api/meta/field-error.ts';
import { newBadRequest, newInvalid, type StatusError } from '../../api/meta/status-error.ts';
import type { Schema, StructType } from '../../api/schema/schema.ts';
import type { Body, FieldValidation, RequestContext } from '../model/rest.ts';
import type { Pausing } from '../../api/machinery/pausing.ts';
import { retiredKindGroup } from './retired-kinds.ts';

interface Conformed {
  readonly object: KubeObject;
  /** The paths of fields that the schema does not have. */
  readonly unknown: readonly string[];
}

/** Reads JSON as an object of a type. */
export interface SchemaReader {
  /** Returns a new value with the shape of the struct. Throws a `DecodeError` for a field of the wrong type. */
  conform(value: unknown, struct: StructType, options?: DecodeOptions): Pausing<Conformed>;
  applyDefaults(object: KubeObject, struct: StructType): void;
  /** Drops nulls that represent absence and have no default. Nulls of an apply patch are kept and validated. */
  dropNulls?(object: KubeObject): void;
}

/** Reads objects of the built-in types. */
export const builtInReader: SchemaReader = {
  // oxlint-disable-next-line require-yield -- readers of other types pause
  *conform(value, struct, options) {
    // Strategies see absent fields in one form only. Completion restores those that are serialized as null.
    const { value: object, unknown } = decodeStruct(struct, value, { ...options, omitsNulls: true });
    return { object: object as unknown as KubeObject, unknown };
  },
  applyDefaults: (object, struct) => applyTableDefaults(struct, object as unknown as JsonObject),
};

/** The kind that a body must have. */
export interface ExpectedKind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly struct: StructType;
  /** Other versions of the kind that are accepted and read as this version. */
  readonly alsoVersions?: readonly string[];
  /** Sets defaults that the schema cannot express. */
  readonly applyDefaults: ((object: KubeObject) => void) | undefined;
  readonly reader: SchemaReader;
  /** Whether the body writes the status alone. A custom resource may then name another kind, as in kube-apiserver. */
  readonly isStatus?: boolean;
}

/** Decodes bodies. Its methods pause, so that a large body does not hold the event loop. */
export interface Decoder {
  /** Decodes the body of a POST or PUT. Throws a 400. */
  decodeBody(
    context: RequestContext,
    body: Body,
    expected: ExpectedKind,
    validation: FieldValidation,
  ): Pausing<KubeObject>;
  /** Decodes the result of a patch. Throws a 422, or a 500 for a custom resource whose version is missing. */
  decodePatched(
    context: RequestContext,
    patched: PatchedObject,
    expected: ExpectedKind,
    validation: FieldValidation,
  ): Pausing<KubeObject>;
}

/** What a patch made of an object, before it is decoded. */
export interface PatchedObject extends DecodeOptions {
  readonly value: unknown;
  readonly duplicates: readonly string[];
  /** Unknown fields in the patch itself. They are reported instead of those of the result. */
  readonly unknown?: readonly string[];
  /** Returns further errors of strict decoding in the patch itself. They are reported first. */
  faults?(): readonly string[];
  /** Returns the text with which kube-apiserver's errors show the result of the patch. */
  shown(): string;
}

const SCHEME = 'in scheme "pkg/runtime/scheme.go:111"';

/** Creates the decoder of built-in kinds; `customDecoder` wraps it for custom resources. */
export function createDecoder(schema: Schema): Decoder {
  function* conform(value: unknown, expected: ExpectedKind, options: DecodeOptions): Pausing<Conformed> {
    const { object, unknown } = yield* expected.reader.conform(value, expected.struct, options);
    object.apiVersion = apiVersionOf(expected);
    object.kind = expected.kind;
    object.metadata ??= {};
    return { object, unknown };
  }

  function* withDefaults(object: KubeObject, expected: ExpectedKind): Pausing<KubeObject> {
    yield;
    expected.reader.applyDefaults(object, expected.struct);
    yield;
    expected.reader.dropNulls?.(object);
    expected.applyDefaults?.(object);
    return object;
  }

  function* internalForm(value: JsonObject, expected: ExpectedKind): Pausing<Conformed> {
    const { object } = yield* conform({}, expected, {});
    return { object, unknown: Object.keys(value).filter((name) => name !== 'kind' && name !== 'apiVersion') };
  }

  return {
    *decodeBody(context, body, expected, validation) {
      if (!mayNameOtherKind(expected)) checkKind(schema, body.value, expected);
      let conformed: Conformed;
      try {
        conformed = yield* conform(body.value, expected, { decimals: body.decimals });
      } catch (error) {
        throw unreadable(expected, messageOf(error));
      }
      yield;
      // Unknown fields of custom resources are found after their text was read, and are not in the order of the text.
      const inOrder = expected.reader === builtInReader ? body.value : undefined;
      const faults = strictErrors(inOrder, body.duplicates, conformed.unknown);
      if (faults.length > 0 && validation === 'Strict') {
        throw unreadable(expected, `strict decoding error: ${faults.join(', ')}`);
      }
      if (validation === 'Warn')
        for (const text of strictWarnings(inOrder, body.duplicates, conformed.unknown)) context.warn(text);
      return yield* audited(context, withDefaults(conformed.object, expected));
    },

    *decodePatched(context, patched, expected, validation) {
      const refuse = (why: string): StatusError =>
        newInvalid({ group: '', resource: '' }, '', [invalid('patch', patched.shown(), why)]);
      const fault = patchedKindFault(schema, patched, expected);
      if (fault !== undefined) throw refuse(fault);
      let conformed: Conformed;
      try {
        conformed = yield* conform(patched.value, expected, patched);
        if (patched.isConversion !== true && isUnversioned(patched.value))
          conformed = yield* internalForm(patched.value, expected);
      } catch (error) {
        throw refuse(yield* messageInTextOrder(conform, error, patched, expected));
      }
      // A patched object is not a text, so its unknown fields are sorted by name.
      const unknown = [...(patched.unknown ?? conformed.unknown)].sort();
      const ofPatch = validation === 'Ignore' ? [] : (patched.faults?.() ?? []);
      const faults = [...ofPatch, ...duplicateErrors(patched.duplicates), ...unknownFieldErrors(unknown)];
      if (faults.length > 0 && validation === 'Strict') throw refuse(`strict decoding error: ${faults.join(', ')}`);
      if (validation === 'Warn') {
        for (const text of ofPatch) context.warn(text);
        warnOf(context, patched.duplicates, unknown);
      }
      return yield* withDefaults(conformed.object, expected);
    },
  };
}

/** Passes the decoded object with its defaults to the audit log, before admission changes it. */
function* audited(context: RequestContext, decoded: Pausing<KubeObject>): Pausing<KubeObject> {
  const object = yield* decoded;
  context.audited?.bodyIs(object);
  return object;
}

/** Returns the message of a failed decoding. Throws an `error` that is no `DecodeError`. */
function* messageInTextOrder(
  conform: (value: unknown, expected: ExpectedKind, options: DecodeOptions) => Pausing<Conformed>,
  error: unknown,
  patched: PatchedObject,
  expected: ExpectedKind,
): Pausing<string> {
  const message = messageOf(error);
  if (patched.isConversion === true) return message;
  // kube-apiserver decodes the text of a patched object, so its error is the first one in the order of the text.
  try {
    yield* conform(parseJson(patched.shown()).value, expected, patched);
  } catch (other) {
    return messageOf(other);
  }
  return message;
}

function messageOf(error: unknown): string {
  if (error instanceof DecodeError) return error.message;
  throw error;
}

function warnOf(context: RequestContext, duplicates: readonly string[], unknown: readonly string[]): void {
  for (const text of [...duplicateWarnings(duplicates), ...unknownFieldErrors(unknown)]) context.warn(text);
}

function unreadable(
  expected: ExpectedKind,
  why: string,
  found = expected.kind,
  version = expected.version,
): StatusError {
  return newBadRequest(`${found} in version "${version}" cannot be handled as a ${expected.kind}: ${why}`);
}

/** Whether the body is the status of a custom resource, whose kind and version `customDecoder` has checked. */
const mayNameOtherKind = ({ isStatus, reader }: ExpectedKind): boolean => isStatus === true && reader !== builtInReader;

interface ClaimedKind {
  readonly kind: string;
  readonly apiVersion: string;
}

function claimedKind(value: unknown): ClaimedKind {
  const { kind, apiVersion } = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
  return { kind: typeof kind === 'string' ? kind : '', apiVersion: typeof apiVersion === 'string' ? apiVersion : '' };
}

/**
 * Throws a 400 if the kind or version in the body is neither that of the path nor one of `alsoVersions`. A missing one counts
 * as that of the path.
 */
function checkKind(schema: Schema, value: unknown, expected: ExpectedKind): void {
  const found = claimedKind(value);
  const kind = found.kind === '' ? expected.kind : found.kind;
  const apiVersion = found.apiVersion === '' ? apiVersionOf(expected) : found.apiVersion;
  if (kind === expected.kind && apiVersion === apiVersionOf(expected)) return;
  const gv = parseApiVersion(apiVersion);
  const version = gv?.version ?? apiVersion;
  if (kind === expected.kind && gv?.group === expected.group && expected.alsoVersions?.includes(version) === true)
    return;
  if (gv === undefined) throw unreadable(expected, `unexpected GroupVersion string: ${apiVersion}`, kind, version);
  const served = schema.kind(gv.group, gv.version, kind) !== undefined;
  const group = served ? gv.group : retiredKindGroup(apiVersion, kind);
  const internal = group === undefined ? undefined : internalPackage(group);
  if (kind === expected.kind && internal === internalPackage(expected.group)) {
    throw newBadRequest(
      `the API version in the data (${apiVersion}) does not match the expected API version (${apiVersionOf(expected)})`,
    );
  }
  if (group === undefined)
    throw unreadable(
      expected,
      `no kind ${quoteText(kind)} is registered for version ${quoteText(apiVersion)} ${SCHEME}`,
      kind,
      version,
    );
  throw unreadable(
    expected,
    `converting (${gv.version}.${kind}) to (${internalPackage(expected.group)}.${expected.kind}): unknown conversion`,
    kind,
    version,
  );
}

/**
 * Whether a patched object has no version. kube-apiserver then decodes it as its internal type, which knows no other member
 * than the kind, so that not even the name is left.
 */
const isUnversioned = (value: unknown): value is JsonObject => claimedKind(value).apiVersion === '';

/**
 * Returns why the kind of a patched object is refused, or `undefined`. The result of a strategic merge has the type of the
 * object, whatever kind it names.
 */
function patchedKindFault(schema: Schema, patched: PatchedObject, expected: ExpectedKind): string | undefined {
  if (patched.isConversion === true || mayNameOtherKind(expected)) return undefined;
  try {
    checkPatchedKind(schema, patched.value, expected);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Throws a `DecodeError` for a kind or version that is not a text. */
export function requireKindTexts(value: unknown): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return;
  for (const name of ['apiVersion', 'kind']) {
    const member = (value as Record<string, unknown>)[name];
    if (member === undefined || member === null || typeof member === 'string') continue;
    const fault = `json: cannot unmarshal ${jsonKind(member)} into Go struct field .${name} of type string`;
    throw new DecodeError(`couldn't get version/kind; json parse error: ${fault}`);
  }
}

function checkPatchedKind(schema: Schema, value: unknown, expected: ExpectedKind): void {
  requireKindTexts(value);
  const found = claimedKind(value);
  const kind = found.kind === '' ? expected.kind : found.kind;
  const apiVersion = found.apiVersion === '' ? apiVersionOf(expected) : found.apiVersion;
  if (kind === expected.kind && apiVersion === apiVersionOf(expected)) return;
  const gv = parseApiVersion(apiVersion);
  if (gv === undefined) throw new DecodeError(`unexpected GroupVersion string: ${apiVersion}`);
  if (schema.kind(gv.group, gv.version, kind) === undefined) {
    const registered = `no kind ${quoteText(kind)} is registered for version ${quoteText(apiVersion)}`;
    throw new DecodeError(`${registered} in scheme "pkg/api/legacyscheme/scheme.go:30"`);
  }
  throw new DecodeError(
    `converting (${gv.version}.${kind}) to (${internalPackage(expected.group)}.${expected.kind}): unknown conversion`,
  );
}
