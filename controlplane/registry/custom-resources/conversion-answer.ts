/** Reads what a conversion webhook answered: the review, and the objects in it. The messages are those of kube-apiserver. */
import { canonicalJson } from '../../../api/codec/structured-merge/path-element.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { type JsonObject, type JsonValue, type KubeObject, parseApiVersion } from '../../../api/meta/object.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { newErrorWithoutReason } from '../../../api/meta/status-error.ts';
import { jsonKind } from '../../../api/schema/go-types.ts';
import { checkReviewKind } from '../../security/admission/webhook/webhook-answer.ts';

const GROUP = 'apiextensions.k8s.io';
const KIND = 'ConversionReview';

interface Question {
  readonly uid: string;
  /** The version of the review that was sent. */
  readonly version: string;
}

/** Returns the converted objects as they were sent. Throws an error with the reason why there are none. */
export function convertedObjects(answer: unknown, { uid, version }: Question): readonly JsonValue[] {
  const review = isJsonObject(answer) ? answer : {};
  checkReviewKind(review, { group: GROUP, version, kind: KIND });
  const response = memberOf(review, 'ConversionReview.response', 'ConversionResponse', isJsonObject) ?? undefined;
  const inResponse = 'ConversionResponse.response';
  const answeredUid = memberOf(response, `${inResponse}.uid`, 'types.UID', isText) ?? '';
  const result = memberOf(response, `${inResponse}.result`, 'v1.Status', isJsonObject) ?? undefined;
  const objects = memberOf(response, `${inResponse}.convertedObjects`, '[]runtime.RawExtension', isList) ?? [];
  if (version === 'v1') checkIdentity(review, response, { uid, answeredUid });
  if (response === undefined) throw new Error('no response provided');
  const [status, message] = ['status', 'message'].map((name) => {
    const value = result?.[name];
    return typeof value === 'string' ? value : '';
  });
  if (status === 'Success') return objects;
  throw new Error(message === '' ? `response.result.status was '${status ?? ''}', not 'Success'` : message);
}

const isText = (value: JsonValue): value is string => typeof value === 'string';
const isList = (value: JsonValue): value is JsonValue[] => Array.isArray(value);

/** Returns the member that the last name of `path` names. Throws the error of Go's decoder for a value of another type. */
function memberOf<Value extends JsonValue>(
  struct: JsonObject | undefined,
  path: string,
  type: string,
  fits: (value: JsonValue) => value is Value,
): Value | null | undefined {
  const value = struct?.[path.slice(path.lastIndexOf('.') + 1)];
  if (value === undefined || value === null || fits(value)) return value;
  throw new Error(`json: cannot unmarshal ${jsonKind(value)} into Go struct field ${path} of type ${type}`);
}

/** Throws if a review in v1 does not have its kind, or not the UID of its request. Reviews in v1beta1 need neither. */
function checkIdentity(
  review: JsonObject,
  response: JsonObject | undefined,
  { uid, answeredUid }: { readonly uid: string; readonly answeredUid: string },
): void {
  const [apiVersion, kind] = ['apiVersion', 'kind'].map((name) => {
    const value = review[name];
    return typeof value === 'string' ? value : '';
  });
  if (apiVersion !== `${GROUP}/v1` || kind !== KIND) {
    const shown = apiVersion === '' ? '/' : apiVersion;
    throw new Error(`expected webhook response of ${GROUP}/v1, Kind=${KIND}, got ${shown}, Kind=${kind ?? ''}`);
  }
  if (response !== undefined && answeredUid !== uid)
    throw new Error(`expected response.uid=${quoteText(uid)}, got ${quoteText(answeredUid)}`);
}

/** Reads an object of a webhook's response. Throws a 500 for a value that is no object of the API. */
export function readObject(value: JsonValue | undefined): KubeObject {
  if (value === undefined || value === null) throw newErrorWithoutReason('unexpected end of JSON input');
  if (!isJsonObject(value)) {
    const why = `json: cannot unmarshal ${jsonKind(value)} into Go value of type map[string]interface {}`;
    throw newErrorWithoutReason(why);
  }
  const { apiVersion, kind } = value;
  const isReadable = typeof apiVersion !== 'string' || parseApiVersion(apiVersion) !== undefined;
  if (typeof kind === 'string' && kind !== '' && isReadable) return value as unknown as KubeObject;
  throw newErrorWithoutReason(`Object 'Kind' is missing in '${canonicalJson(value)}'`);
}
