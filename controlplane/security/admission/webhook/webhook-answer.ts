/**
 * Reads the answers of webhooks up to the review that they contain, with the reasons of client-go for an answer that contains
 * none.
 */
import { isJsonObject } from '../../../../api/meta/json-object.ts';
import { type JsonLimits, JsonSyntaxError, parseJson } from '../../../../api/codec/json.ts';
import { parseYaml } from '../../../../api/codec/yaml.ts';
import { notAnObject } from '../../../../api/meta/go-text.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import type { WebhookAnswer } from '../../webhooks/webhook-client.ts';
import { jsonKind } from '../../../../api/schema/go-types.ts';

const OPENING_BRACE = 0x7b;
const MAX_YAML_BYTES = 64 * 1024;
/** The versions of both kinds of reviews. */
const VERSIONS: ReadonlySet<string> = new Set(['v1', 'v1beta1']);

/** Returns why a response has no review, or `undefined` if its body must be read. */
export function answerFault({ status, contentType, body }: WebhookAnswer): string | undefined {
  if (status < 200 || status >= 300)
    return statusMessage(body) ?? statusText(status, isText(contentType) ? textOf(body) : 'unknown');
  return body.length > 0 ? undefined : `0-length response with status code: ${status} and content type: ${contentType}`;
}

/** Returns the message of a Status, which client-go takes for the error. */
function statusMessage(body: Buffer): string | undefined {
  if (body[0] !== OPENING_BRACE) return undefined;
  try {
    const { value } = parseJson(body);
    const { kind, apiVersion, message } = isJsonObject(value) ? value : {};
    return kind === 'Status' && apiVersion === 'v1' && typeof message === 'string' ? message : undefined;
  } catch (error) {
    if (error instanceof JsonSyntaxError) return undefined;
    throw error;
  }
}

/** Whether the content type is a text. A response without a type counts as text. */
const isText = (contentType: string): boolean => contentType === '' || /^\s*text\//i.test(contentType);

/** The maximum size of a response's text in an error, as in client-go. */
const MAX_TEXT_BYTES = 2048;
const textOf = (body: Buffer): string => body.subarray(0, MAX_TEXT_BYTES).toString('utf8').trim();

/** The messages of client-go for a response that is no Status. */
const STATUS_TEXTS: ReadonlyMap<number, string> = new Map([
  [400, 'the server rejected our request for an unknown reason'],
  [401, 'the server has asked for the client to provide credentials'],
  [404, 'the server could not find the requested resource'],
  [405, 'the server does not allow this method on the requested resource'],
  [409, 'the server reported a conflict'],
  [422, 'the server rejected our request due to an error in our request'],
  [429, 'the server has received too many requests and has asked us to try again later'],
  [503, 'the server is currently unable to handle the request'],
  [504, 'the server was unable to return a response in the time allotted, but may still be processing the request'],
]);

/** The HTTP statuses whose message is the text of the response. */
const OWN_TEXT: ReadonlySet<number> = new Set([403, 406, 415]);

/** Returns the message of an HTTP error. `body` is the text of the response, or `unknown` if the response is no text. */
function statusText(status: number, body: string): string {
  const message = STATUS_TEXTS.get(status);
  if (message !== undefined) return message;
  if (status === 406 && (body === '' || body === 'unknown'))
    return 'the server was unable to respond with a content type that the client supports';
  if (OWN_TEXT.has(status)) return body;
  if (status >= 500) return `an error on the server (${quoteText(body)}) has prevented the request from succeeding`;
  return `the server responded with the status code ${status} but did not return more information`;
}

/**
 * Returns the value of a body of YAML, which kube-apiserver reads as well as JSON, and `undefined` for one that is empty or
 * begins as JSON. Long YAML is not read, because it would hold up the other requests. Throws `YamlSyntaxError`.
 */
function yamlOf(body: Buffer): unknown {
  return body[0] === OPENING_BRACE || body.length === 0 || body.length > MAX_YAML_BYTES
    ? undefined
    : parseYaml(body).value;
}

/** Parses the body of a webhook's response. Throws an error with the reason for a body that is neither an object nor null. */
export function decodedReview(body: Buffer, limits?: JsonLimits): Record<string, unknown> {
  let value: unknown;
  try {
    ({ value } = parseJson(body, limits));
  } catch (error) {
    if (!(error instanceof JsonSyntaxError)) throw error;
    value = yamlOf(body);
    if (value === undefined)
      throw new Error(`couldn't get version/kind; json parse error: ${error.message}`, { cause: error });
  }
  if (value === null) return {};
  if (isJsonObject(value)) return value;
  throw new Error(`couldn't get version/kind; json parse error: ${notAnObject(jsonKind(value))}`);
}

interface ReviewKind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
}

/** Kinds that every group's scheme has in version v1. */
const UNVERSIONED_KINDS = new Set(['Status', 'APIVersions', 'APIGroupList', 'APIGroup', 'APIResourceList']);

/** Throws an error with the reason for a review of another kind. A review may have no kind and version. */
export function checkReviewKind(value: Readonly<Record<string, unknown>>, expected: ReviewKind): void {
  const text = (name: string): string => (typeof value[name] === 'string' ? value[name] : '');
  const [apiVersion, kind] = [text('apiVersion'), text('kind')];
  if (apiVersion === '' && kind === '') return;
  const [group = '', version = ''] = apiVersion.split('/');
  const isKind = kind === '' || kind === expected.kind;
  if (isKind && (apiVersion === '' || (group === expected.group && version === expected.version))) return;
  if (isKind && group === expected.group && VERSIONS.has(version)) {
    const [from, to] = [version, expected.version].map((one) => `(${one}.${expected.kind})`);
    throw new Error(`converting ${from} to ${to}: unknown conversion`);
  }
  if (apiVersion === 'v1' && UNVERSIONED_KINDS.has(kind))
    throw new Error(`converting (v1.${kind}) to (${expected.version}.${expected.kind}): unknown conversion`);
  const scheme = 'in scheme "pkg/runtime/scheme.go:111"';
  throw new Error(`no kind ${quoteText(kind)} is registered for version ${quoteText(apiVersion)} ${scheme}`);
}
