/**
 * Builds the responses of `/statusz` and `/flagz`: the version and the flags of a program, as text, or as an object of
 * `config.k8s.io` if the Accept header requests the kind.
 */
import { stringifyYaml } from '../codec/yaml.ts';
import { formatTime } from '../machinery/clock.ts';
import { type AcceptClause, acceptClauses } from './accept.ts';
import { JSON_TYPE, TEXT_TYPE, YAML_TYPE } from './media-types.ts';
import { type PrettyRequest, responseJson, wantsPretty } from './pretty.ts';

/** What `/statusz` shows. */
export interface Statusz {
  readonly startedAtMs: number;
  readonly nowMs: number;
  /** The version of Kubernetes, such as `1.36.2`. */
  readonly version: string;
  /** The paths for debugging, sorted. */
  readonly paths: readonly string[];
}

/** The values of the flags by name. */
export type Flagz = Readonly<Record<string, string>>;

/** A whole response. `warning` is the value of the header of that name. */
export interface ZpageResponse {
  readonly status: number;
  readonly type: string;
  /** The parameters of the type (`;g=config.k8s.io;v=v1beta1;as=Statusz`), which name the kind of an object. */
  readonly parameters?: string;
  readonly body: string;
  readonly warning?: string;
}

interface Page {
  readonly kind: 'Statusz' | 'Flagz';
  /** The name of the component in Kubernetes, which the page begins with. */
  readonly component: string;
  readonly text: string;
  readonly fields: object;
}

const GROUP = 'config.k8s.io';
const VERSIONS = ['v1beta1', 'v1alpha1'];
const DEPRECATED = 'v1alpha1';
const WARNING =
  'Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.';

/** What a request says about the form of its response. */
export interface ZpageRequest extends PrettyRequest {
  readonly accept: string | undefined;
}

/** Returns the response of `/statusz`. */
export function statuszResponse(request: ZpageRequest, component: string, status: Statusz): ZpageResponse {
  return responseOf(request, { kind: 'Statusz', component, text: statuszText(status), fields: statuszFields(status) });
}

/** Returns the response of `/flagz`. */
export function flagzResponse(request: ZpageRequest, component: string, flags: Flagz): ZpageResponse {
  return responseOf(request, { kind: 'Flagz', component, text: flagzText(flags), fields: { flags } });
}

function responseOf(request: ZpageRequest, { kind, component, text, fields }: Page): ZpageResponse {
  const form = negotiate(request.accept ?? '', kind);
  if (form === undefined) return notAcceptable(request);
  if (form.type === 'text') {
    const body = `\n${component} ${kind.toLowerCase()}\n${WARNING}\n${text}`;
    return { status: 200, type: TEXT_TYPE, body };
  }
  const { type, version, pretty } = form;
  const object = { kind, apiVersion: `${GROUP}/${version}`, metadata: { name: component }, ...fields };
  return {
    status: 200,
    type: `application/${type}`,
    parameters: `;g=${GROUP};v=${version};as=${kind}`,
    body: type === 'yaml' ? stringifyYaml(object) : responseJson(object, { pretty: pretty || wantsPretty(request) }),
    ...(version === DEPRECATED
      ? {
          warning: `299 - "This version of the ${kind.toLowerCase()} endpoint is deprecated. Please use a newer version."`,
        }
      : {}),
  };
}

type ZpageForm =
  | { readonly type: 'text' }
  | { readonly type: 'json' | 'yaml'; readonly pretty: boolean; readonly version: string };

/**
 * Returns the form of the first clause of the header, in the order of kube-apiserver, that can be served, or `undefined` if
 * none can. An empty header means text.
 */
export function negotiate(accept: string, kind: string): ZpageForm | undefined {
  if (accept.trim() === '') return { type: 'text' };
  for (const clause of acceptClauses(accept)) {
    const { params } = clause;
    if (asksFor(clause, 'stream') || asksFor(clause, 'sv')) continue;
    const version = params.get('v') ?? '';
    const isKind = params.get('as') === kind && params.get('g') === GROUP && VERSIONS.includes(version);
    const pretty = params.get('pretty') === '1';
    if (isKind && matches(clause, JSON_TYPE)) return { type: 'json', pretty, version };
    if (isKind && matches(clause, YAML_TYPE)) return { type: 'yaml', pretty, version };
    if (!asksForKind(clause) && matches(clause, 'text/plain')) return { type: 'text' };
  }
  return undefined;
}

function matches({ type }: AcceptClause, served: string): boolean {
  return type === '*/*' || type === served || type === `${served.split('/')[0]}/*`;
}

const asksFor = ({ params }: AcceptClause, parameter: string): boolean => (params.get(parameter) ?? '') !== '';

const asksForKind = ({ params }: AcceptClause): boolean => ['as', 'g', 'v'].some((name) => params.has(name));

/** Returns the error for an `Accept` header that names none of the page's types, in the form that kube-apiserver chooses. */
function notAcceptable(request: ZpageRequest): ZpageResponse {
  const status = {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: `only the following media types are accepted: ${JSON_TYPE}, ${YAML_TYPE}, text/plain`,
    reason: 'NotAcceptable',
    code: 406,
  };
  const json = (pretty: boolean): ZpageResponse => ({
    status: 406,
    type: JSON_TYPE,
    body: responseJson(status, { pretty }),
  });
  for (const clause of acceptClauses(request.accept)) {
    if (asksForKind(clause) || asksFor(clause, 'sv')) continue;
    const pretty = clause.params.get('pretty') === '1';
    const stream = clause.params.get('stream') ?? '';
    if (matches(clause, JSON_TYPE) && (stream === '' || stream === 'watch'))
      return json(pretty || wantsPretty(request));
    if (matches(clause, YAML_TYPE) && stream === '')
      return { status: 406, type: YAML_TYPE, body: stringifyYaml(status) };
  }
  return json(true);
}

function flagzText(flags: Flagz): string {
  return Object.keys(flags)
    .toSorted()
    .map((name) => `${name}=${flags[name]}\n`)
    .join('');
}

function statuszText(status: Statusz): string {
  const upSeconds = upSecondsOf(status);
  const pad = (value: number): string => String(value % 60).padStart(2, '0');
  const up = `${Math.floor(upSeconds / 3600)} hr ${pad(Math.floor(upSeconds / 60))} min ${pad(upSeconds)} sec`;
  return `
Started: ${unixDate(status.startedAtMs)}
Up: ${up}
Go version: none, Node.js ${process.version}
Binary version: ${status.version}
Emulation version: ${minorOf(status.version)}
Paths: ${status.paths.join(' ')}
`;
}

function statuszFields(status: Statusz): object {
  return {
    startTime: formatTime(status.startedAtMs),
    uptimeSeconds: upSecondsOf(status),
    goVersion: `none, Node.js ${process.version}`,
    binaryVersion: status.version,
    emulationVersion: minorOf(status.version),
    paths: status.paths,
  };
}

function upSecondsOf({ startedAtMs, nowMs }: Statusz): number {
  return Math.max(0, Math.floor((nowMs - startedAtMs) / 1000));
}

/** Returns the minor version, such as `1.36` for `1.36.2`. */
function minorOf(version: string): string {
  return version.split('.').slice(0, 2).join('.');
}

/** Formats a time as `Mon Jan  2 15:04:05 UTC 2006`. */
function unixDate(ms: number): string {
  const [weekday = '', day = '', month = '', year = '', time = ''] = new Date(ms).toUTCString().split(/,? /);
  return `${weekday} ${month} ${String(Number(day)).padStart(2)} ${time} UTC ${year}`;
}
