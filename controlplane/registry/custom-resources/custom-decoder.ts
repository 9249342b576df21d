/**
 * Decodes the bodies of custom resources. Their kind and version are checked here, because the error messages differ from those
 * of built-in kinds.
 */
import { stringifyJson } from '../../../api/codec/json.ts';
import { canonicalJson } from '../../../api/codec/structured-merge/path-element.ts';
import { invalid } from '../../../api/meta/field-error.ts';
import { apiVersionOf, parseApiVersion, type JsonObject, type JsonValue } from '../../../api/meta/object.ts';
import { newBadRequest, newInternalError, newInvalid, type StatusError } from '../../../api/meta/status-error.ts';
import { DecodeError } from '../../../api/schema/decode.ts';
import { type Decoder, type ExpectedKind, requireKindTexts } from '../object-decoding.ts';

/** Wraps the decoder of the schema. */
export function customDecoder(inner: Decoder): Decoder {
  return {
    *decodeBody(context, body, expected, validation) {
      checkKind(body.value, expected);
      return yield* inner.decodeBody(context, body, expected, validation);
    },
    *decodePatched(context, patched, expected, validation) {
      if (expected.group === 'autoscaling') return yield* inner.decodePatched(context, patched, expected, validation);
      // Custom resources are maps in kube-apiserver, which are written in the order of their keys.
      const shown = (): string => canonicalJson(patched.value as JsonValue);
      checkPatchedKind(patched.value, expected, shown);
      return yield* inner.decodePatched(context, { ...patched, shown }, expected, validation);
    },
  };
}

/**
 * Checks kind and version of a body. Throws a 400 if the kind is missing or the version is another one, and a 422 for another
 * kind, which only a body of a status may have. The wrapped decoder checks a Scale, and a body that is no object.
 */
function checkKind(value: unknown, expected: ExpectedKind): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return;
  if (expected.group === 'autoscaling') return;
  const { kind, apiVersion } = value as Record<string, unknown>;
  const wanted = apiVersionOf(expected);
  const version = typeof apiVersion === 'string' ? apiVersion : '';
  const found = typeof kind === 'string' ? kind : '';
  if (found === '') {
    throw newBadRequest(
      `${expected.kind} in version "${expected.version}" cannot be handled as a ${expected.kind}: Object 'Kind' is missing in '${stringifyJson(value)}'`,
    );
  }
  if (version !== wanted) {
    // A version without a group is shown without the slash.
    const shown = version.startsWith('/') ? version.slice(1) : version;
    throw newBadRequest(`the API version in the data (${shown}) does not match the expected API version (${wanted})`);
  }
  if (found !== expected.kind && expected.isStatus !== true) throw otherKind(value as JsonObject, expected);
}

/**
 * Checks kind and version of a patched object. Throws a 422 if the kind is missing or one of them is invalid or another one,
 * and a 500 if the version is missing. A patched status may have another kind or version.
 */
function checkPatchedKind(value: unknown, expected: ExpectedKind, shown: () => string): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return;
  const object = value as JsonObject;
  const { kind, apiVersion } = object;
  const refusal = (why: string): StatusError =>
    newInvalid({ group: '', resource: '' }, '', [invalid('patch', shown(), why)]);
  try {
    requireKindTexts(value);
  } catch (error) {
    throw error instanceof DecodeError ? refusal(error.message) : error;
  }
  if (typeof kind !== 'string' || kind === '') throw refusal(`Object 'Kind' is missing in '${shown()}'`);
  if (typeof apiVersion !== 'string' || apiVersion === '')
    throw newInternalError("Object 'apiVersion' is missing in 'object has no apiVersion field'");
  if (parseApiVersion(apiVersion) === undefined) throw refusal(`unexpected GroupVersion string: ${apiVersion}`);
  if (expected.isStatus === true) return;
  if (kind !== expected.kind || apiVersion !== apiVersionOf(expected)) throw otherKind(object, expected);
}

function otherKind({ kind, apiVersion, metadata }: JsonObject, expected: ExpectedKind): StatusError {
  const wanted = apiVersionOf(expected);
  const found = typeof kind === 'string' ? kind : '';
  const version = typeof apiVersion === 'string' ? apiVersion : '';
  const errors = [
    ...(found === expected.kind ? [] : [invalid('kind', found, `must be ${expected.kind}`)]),
    ...(version === wanted ? [] : [invalid('apiVersion', version, `must be ${wanted}`)]),
  ];
  const { name } = (typeof metadata === 'object' && metadata !== null ? metadata : {}) as Record<string, unknown>;
  const { group } = parseApiVersion(version) ?? expected;
  return newInvalid({ group, resource: found }, typeof name === 'string' ? name : '', errors);
}
