/** Builds the AdmissionReview that a webhook gets, and reads its response, with kube-apiserver's errors. */
import { errorMessage } from '../../../../api/meta/error-message.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import { randomUUID } from 'node:crypto';
import { JsonSyntaxError, parseJson, stringifyJson } from '../../../../api/codec/json.ts';
import { newStatusError, type StatusError, type StatusDetails } from '../../../../api/meta/status-error.ts';
import { isJsonObject } from '../../../../api/meta/json-object.ts';
import type { GroupVersionResource, KubeObject, GroupVersionKind } from '../../../../api/meta/object.ts';
import { INT32_MAX } from '../../../../api/meta/integers.ts';
import { userInfoJson } from '../../../model/user-info.ts';
import type { AdmissionAttributes } from '../admission.ts';
import { namespaceOf } from '../pod-attributes.ts';
import { jsonKind } from '../../../../api/schema/go-types.ts';
import { checkReviewKind, decodedReview } from './webhook-answer.ts';

const GROUP = 'admission.k8s.io';
/** The highest status code of HTTP. */
const MAX_STATUS_CODE = 999;
/** The versions of AdmissionReview that this server understands. */
export const REVIEW_VERSIONS = ['v1', 'v1beta1'] as const;
type ReviewVersion = (typeof REVIEW_VERSIONS)[number];

/** The request as a webhook gets it: unchanged, or converted to the version that it registered for. */
export interface ReviewView {
  readonly kind: GroupVersionKind;
  readonly resource: GroupVersionResource;
  readonly object: KubeObject | undefined;
  readonly oldObject: KubeObject | undefined;
}

/** The request of one call. `body` is the encoded AdmissionReview. In version `v1`, the response must repeat the uid. */
interface Review {
  readonly uid: string;
  readonly version: ReviewVersion;
  readonly body: string;
}

/** Encodes a review of this version, which contains the view, with a random uid. */
export function reviewOf(attributes: AdmissionAttributes, view: ReviewView, version: ReviewVersion): Review {
  const uid = randomUUID();
  const sub =
    attributes.subresource === ''
      ? {}
      : { subResource: attributes.subresource, requestSubResource: attributes.subresource };
  const isConnect = attributes.operation === 'CONNECT';
  const namespace = namespaceOf(attributes);
  const body = stringifyJson({
    kind: 'AdmissionReview',
    apiVersion: `${GROUP}/${version}`,
    request: {
      uid,
      kind: { group: view.kind.group, version: view.kind.version, kind: view.kind.kind },
      resource: { group: view.resource.group, version: view.resource.version, resource: view.resource.resource },
      requestKind: { group: attributes.kind.group, version: attributes.kind.version, kind: attributes.kind.kind },
      requestResource: {
        group: attributes.resource.group,
        version: attributes.resource.version,
        resource: attributes.resource.resource,
      },
      ...sub,
      ...(attributes.name === '' ? {} : { name: attributes.name }),
      ...(namespace === '' ? {} : { namespace }),
      operation: attributes.operation,
      userInfo: userInfoJson(attributes.user),
      object: isConnect ? withoutMetadata(view.object) : (view.object ?? null),
      oldObject: view.oldObject ?? null,
      dryRun: attributes.dryRun,
      options: isConnect && Object.keys(attributes.options).length === 0 ? null : attributes.options,
    },
  });
  return { uid, version, body };
}

/** Returns the options of a connect request without metadata, because they have no name. */
function withoutMetadata(options: KubeObject | undefined): object | null {
  if (options === undefined) return null;
  const { metadata: _, ...members } = options;
  return members;
}

/** A JSON patch (RFC 6902) whose operations are not validated yet. */
export type JsonPatch = readonly unknown[];

/** A valid response of a webhook, whichever version it had. */
export interface ReviewResult {
  readonly allowed: boolean;
  readonly status: Readonly<Record<string, unknown>> | undefined;
  /** A JSON patch with at least one operation. */
  readonly patch: JsonPatch | undefined;
  readonly warnings: readonly string[];
  readonly auditAnnotations: Readonly<Record<string, string>>;
}

/** The error of an invalid response. */
class ReviewError extends Error {
  override readonly name = 'ReviewError';
}

const callFailure = (why: string): ReviewError => new ReviewError(`failed to call webhook: ${why}`);
const invalidResponse = (why: string): ReviewError => new ReviewError(`received invalid webhook response: ${why}`);

/** Runs `work`, and throws its errors as failures of the call. */
function asCallFailure<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw callFailure(errorMessage(error));
  }
}

/**
 * Reads the AdmissionReview with which a webhook answers. Throws the errors of kube-apiserver for an answer of another form,
 * to which the failure policy applies.
 */
export function readAnswer(body: Buffer, review: Review, isMutating: boolean): ReviewResult {
  const value = asCallFailure(() => {
    const decoded = decodedReview(body);
    checkReviewKind(decoded, { group: GROUP, version: review.version, kind: 'AdmissionReview' });
    return decoded;
  });
  const apiVersion = typeof value['apiVersion'] === 'string' ? value['apiVersion'] : '';
  const kind = typeof value['kind'] === 'string' ? value['kind'] : '';
  const expected = `${GROUP}/${review.version}`;
  const { response } = value;
  if (!isJsonObject(response)) throw invalidResponse('webhook response was absent');
  const gvk = (version: string, name: string): string =>
    `${version.includes('/') ? version : `/${version}`}, Kind=${name}`;
  if (apiVersion !== expected || kind !== 'AdmissionReview') {
    throw invalidResponse(
      `expected webhook response of ${gvk(expected, 'AdmissionReview')}, got ${gvk(apiVersion, kind)}`,
    );
  }
  checkTypes(response);
  const uid = typeof response['uid'] === 'string' ? response['uid'] : '';
  if (review.version === 'v1' && uid !== review.uid) {
    throw invalidResponse(`expected response.uid=${quoteText(review.uid)}, got ${quoteText(uid)}`);
  }
  const patch = operationsOf(patchOf(response, review.version, isMutating));
  return {
    allowed: response['allowed'] === true,
    status: isJsonObject(response['status']) ? response['status'] : undefined,
    patch,
    warnings: Array.isArray(response['warnings'])
      ? response['warnings'].filter((one): one is string => typeof one === 'string')
      : [],
    auditAnnotations: isJsonObject(response['auditAnnotations'])
      ? Object.fromEntries(
          Object.entries(response['auditAnnotations']).filter(
            (pair): pair is [string, string] => typeof pair[1] === 'string',
          ),
        )
      : {},
  };
}

/** The members of a response that are not read leniently, with their types in JSON and in Go. */
const MEMBERS: readonly (readonly [name: string, type: string, goType: string])[] = [
  ['uid', 'string', 'types.UID'],
  ['allowed', 'bool', 'bool'],
  ['patch', 'string', '[]uint8'],
  ['patchType', 'string', 'v1.PatchType'],
];

/** Throws for a member of another type: `allowed: "yes"` is a failed call and not a refusal. */
function checkTypes(response: Readonly<Record<string, unknown>>): void {
  for (const [name, type, goType] of MEMBERS) {
    const value = response[name] ?? undefined;
    if (value === undefined || jsonKind(value) === type) continue;
    const field = `AdmissionResponse.response.${name}`;
    throw callFailure(`json: cannot unmarshal ${jsonKind(value)} into Go struct field ${field} of type ${goType}`);
  }
  const { patch } = response;
  const stray = typeof patch === 'string' ? /[^A-Za-z0-9+/=\r\n]/.exec(patch) : null;
  if (stray !== null) throw callFailure(`illegal base64 data at input byte ${stray.index}`);
}

function patchOf(response: Record<string, unknown>, version: ReviewVersion, isMutating: boolean): Buffer | undefined {
  const { patch, patchType } = response;
  const bytes = typeof patch === 'string' ? Buffer.from(patch, 'base64') : Buffer.alloc(0);
  const has = bytes.length > 0;
  const type = typeof patchType === 'string' ? patchType : '';
  if (version === 'v1beta1') return isMutating && has ? bytes : undefined;
  if (!isMutating) {
    if (has) throw invalidResponse('validating webhook may not return response.patch');
    if (type !== '') throw invalidResponse('validating webhook may not return response.patchType');
    return undefined;
  }
  if (has && type === '') throw invalidResponse('webhook returned response.patch but not response.patchType');
  if (type !== '' && !has) throw invalidResponse('webhook returned response.patchType but not response.patch');
  if (!has) return undefined;
  if (type === 'JSONPatch') return bytes;
  // An empty patch of an unknown type changes nothing.
  if (bytes.toString().trim() === '[]') return undefined;
  // As in kube-apiserver, a patch that cannot be decoded is reported before its type.
  operationsOf(bytes);
  throw invalidResponse(`webhook returned invalid response.patchType of ${quoteText(type)}`);
}

function operationsOf(bytes: Buffer | undefined): JsonPatch | undefined {
  if (bytes === undefined) return undefined;
  const undecodable = (why: string, cause?: unknown): ReviewError =>
    new ReviewError(`received undecodable patch in webhook response: ${why}`, { cause });
  let patch: unknown;
  try {
    patch = parseJson(bytes).value;
  } catch (error) {
    if (!(error instanceof JsonSyntaxError)) throw error;
    throw undecodable(error.message, error);
  }
  if (patch === null) return undefined;
  if (!Array.isArray(patch))
    throw undecodable(`json: cannot unmarshal ${typeof patch} into Go value of type jsonpatch.Patch`);
  return patch.length === 0 ? undefined : patch;
}

/** Returns the error for the client when a webhook refuses the request. */
export function deniedError(name: string, status: Readonly<Record<string, unknown>> | undefined): StatusError {
  const text = (field: string): string => (typeof status?.[field] === 'string' ? (status[field] as string) : '');
  const denied = `admission webhook ${quoteText(name)} denied the request`;
  const message = text('message');
  const reason = text('reason');
  const why = message !== '' ? `: ${message}` : reason !== '' ? `: ${reason}` : ' without explanation';
  const sentCode = status?.['code'];
  const code = isErrorCode(sentCode) ? sentCode : 400;
  const details = isJsonObject(status?.['details']) ? { details: detailsOf(status['details']) } : {};
  return newStatusError(code, reason, denied + why, details);
}

/** Whether the number can be sent as an HTTP status code of an error. */
function isErrorCode(code: unknown): code is number {
  return typeof code === 'number' && Number.isInteger(code) && code >= 400 && code <= MAX_STATUS_CODE;
}

/** Keeps the members of a Status' details that have the type of the API. */
function detailsOf(given: Readonly<Record<string, unknown>>): StatusDetails {
  const texts = (from: Readonly<Record<string, unknown>>, names: readonly string[]): Record<string, string> =>
    Object.fromEntries(names.flatMap((name) => (typeof from[name] === 'string' ? [[name, from[name]]] : [])));
  const { causes, retryAfterSeconds } = given;
  const isDelay = Number.isInteger(retryAfterSeconds) && Math.abs(Number(retryAfterSeconds)) <= INT32_MAX;
  return {
    ...texts(given, ['name', 'group', 'kind', 'uid']),
    ...(Array.isArray(causes)
      ? { causes: causes.filter(isJsonObject).map((cause) => texts(cause, ['reason', 'message', 'field'])) }
      : {}),
    ...(isDelay ? { retryAfterSeconds: Number(retryAfterSeconds) } : {}),
  };
}
