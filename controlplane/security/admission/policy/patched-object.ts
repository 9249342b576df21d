/**
 * Checks what the JSON patch of a mutating policy or webhook made of an object of a built-in kind. kube-apiserver decodes the
 * result of a policy strictly, whatever the failure policy is. Patches of webhooks may add unknown fields, which are dropped.
 */
import { apiVersionOf, type GroupVersionKind, type KubeObject, parseApiVersion } from '../../../../api/meta/object.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import { newErrorWithoutReason, newInternalError } from '../../../../api/meta/status-error.ts';
import { CelError } from '../../../../api/cel/values.ts';
import { DecodeError, decodeStruct, unknownFieldErrors } from '../../../../api/schema/decode.ts';
import { internalPackage, jsonKind } from '../../../../api/schema/go-types.ts';
import type { Schema, StructType } from '../../../../api/schema/schema.ts';

/** The name that errors of kube-apiserver give the set of all kinds. */
const SCHEME = 'in scheme "pkg/runtime/scheme.go:111"';

/**
 * Throws a 500 for an unknown field, a value of another type, and another or an unknown kind. Throws `CelError`, a failure of
 * the policy, for another version of the kind. Objects of kinds that are not in the schema are not checked.
 */
export function checkPatchedObject(schema: Schema, object: KubeObject, wanted: GroupVersionKind): void {
  if (schema.kind(wanted.group, wanted.version, wanted.kind) === undefined) return;
  const { found, struct } = registeredKind(schema, object, wanted);
  const unknown = unknownOf(() => decodeStruct(struct, object).unknown).toSorted();
  if (unknown.length > 0) throw newInternalError(`strict decoding error: ${unknownFieldErrors(unknown).join(', ')}`);
  const otherKind = unknownConversion(found, wanted);
  if (otherKind !== undefined) throw newInternalError(`failed to convert object: ${otherKind}`);
  if (found.version !== wanted.version) {
    const from = `(${found.version}.${found.kind})`;
    throw new CelError(`converting ${from} to (${wanted.version}.${wanted.kind}): unknown conversion`);
  }
}

/**
 * Throws a 500 if the JSON patch of a webhook made an object of another kind. An object of another version of the kind has
 * the version of the request.
 */
export function checkPatchedKind(schema: Schema, object: KubeObject, wanted: GroupVersionKind): void {
  const fault = unknownConversion(registeredKind(schema, object, wanted).found, wanted);
  if (fault !== undefined) throw newErrorWithoutReason(fault);
}

/** Returns the kind that the object names and its type. Throws a 500 if there is no such kind. */
function registeredKind(
  schema: Schema,
  object: KubeObject,
  wanted: GroupVersionKind,
): { readonly found: GroupVersionKind; readonly struct: StructType } {
  const found = claimedKind(object, wanted);
  const struct = schema.kind(found.group, found.version, found.kind);
  if (struct !== undefined) return { found, struct };
  const version = quoteText(apiVersionOf(found));
  throw newInternalError(`no kind ${quoteText(found.kind)} is registered for version ${version} ${SCHEME}`);
}

/** Returns why an object of the kind `found` cannot become one of the kind `wanted`; `undefined` for the same kind. */
function unknownConversion(found: GroupVersionKind, wanted: GroupVersionKind): string | undefined {
  if (found.kind === wanted.kind && found.group === wanted.group) return undefined;
  const to = `(${internalPackage(wanted.group)}.${wanted.kind})`;
  return `converting (${found.version}.${found.kind}) to ${to}: unknown conversion`;
}

/** Returns the kind that the object names. What it leaves out is that of the request. */
function claimedKind(object: KubeObject, wanted: GroupVersionKind): GroupVersionKind {
  const kind = memberOf(object, 'kind');
  const apiVersion = memberOf(object, 'apiVersion');
  const version = apiVersion === '' ? wanted : parseApiVersion(apiVersion);
  if (version === undefined) throw newInternalError(`unexpected GroupVersion string: ${apiVersion}`);
  return { group: version.group, version: version.version, kind: kind === '' ? wanted.kind : kind };
}

function memberOf(object: KubeObject, name: 'kind' | 'apiVersion'): string {
  const value: unknown = object[name] ?? '';
  if (typeof value === 'string') return value;
  const why = `json: cannot unmarshal ${jsonKind(value)} into Go struct field .${name} of type string`;
  throw newInternalError(`couldn't get version/kind; json parse error: ${why}`);
}

function unknownOf(decode: () => readonly string[]): readonly string[] {
  try {
    return decode();
  } catch (error) {
    throw error instanceof DecodeError ? newInternalError(error.message, error) : error;
  }
}
