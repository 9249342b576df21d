/** Decoding of bodies of a custom resource: kind and version are checked in other words than those of built-in kinds. */
import { stringifyJson } from '../../api/codec/json.ts';
import { invalid } from '../../api/meta/field-error.ts';
import { apiVersionOf } from '../../api/meta/object.ts';
import { newBadRequest, newInvalid } from '../../api/meta/status-error.ts';
import type { Decoder, ExpectedKind } from '../registry/object-decoding.ts';

export function customDecoder(inner: Decoder): Decoder {
  return {
    decodeBody(context, body, expected, validation) {
      checkKind(body.value, expected);
      return inner.decodeBody(context, body, expected, validation);
    },
    decodePatched(context, patched, expected, validation) {
      checkKind(patched.value, expected);
      return inner.decodePatched(context, patched, expected, validation);
    },
  };
}

/** Nothing goes without saying: a body without kind or version is refused. */
function checkKind(value: unknown, expected: ExpectedKind): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return;
  if (expected.group === 'autoscaling') return;
  const { kind, apiVersion, metadata } = value as Record<string, unknown>;
  const wanted = apiVersionOf(expected);
  const version = typeof apiVersion === 'string' ? apiVersion : '';
  const found = typeof kind === 'string' ? kind : '';
  if (found === '') {
    throw newBadRequest(
      `${expected.kind} in version "${expected.version}" cannot be handled as a ${expected.kind}: Object 'Kind' is missing in '${stringifyJson(value)}'`,
    );
  }
  if (version !== wanted) {
    throw newBadRequest(`the API version in the data (${version}) does not match the expected API version (${wanted})`);
  }
  if (found === expected.kind) return;
  const { name } = (typeof metadata === 'object' && metadata !== null ? metadata : {}) as Record<string, unknown>;
  throw newInvalid({ group: expected.group, resource: found }, typeof name === 'string' ? name : '', [
    invalid('kind', found, `must be ${expected.kind}`),
  ]);
}
