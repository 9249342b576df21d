/**
 * Builds the responses of `/statusz` and `/flagz`: the version and the flags of a program, as text, or as an object of
 * `config.k8s.io` if the Accept header requests the kind. The response to any other Accept header is 406. Agent and API server
 * serve both.
 */
import { stringifyJson } from '../codec/json.ts';
import { stringifyYaml } from '../codec/yaml.ts';
import { formatTime } from '../machinery/clock.ts';
import { TEXT_TYPE } from './media-types.ts';

/** What `/statusz` shows. */
export interface Statusz {
  readonly startedAtMs: number;
  readonly nowMs: number;
  /** `1.36.2`. */
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

/** Returns the response of `/statusz`. */
export function statuszResponse(accept: string | undefined, component: string, status: Statusz): ZpageResponse {
  return responseOf(accept, { kind: 'Statusz', component, text: statuszText(status), fields: statuszFields(status) });
}

/** Returns the response of `/flagz`. */
export function flagzResponse(accept: string | undefined, component: string, flags: Flagz): ZpageResponse {
  return responseOf(accept, { kind: 'Flagz', component, text: flagzText(flags), fields: { flags } });
}

function responseOf(accept: string | undefined, { kind, component, text, fields }: Page): ZpageResponse {
  const form = negotiate(accept ?? '', kind);
  if (form === undefined) return NOT_ACCEPTABLE;
  if (form.type === 'text') {
    const body = `\n${component} ${kind.toLowerCase()}\n${WARNING}\n${text}`;
    return { status: 200, type: TEXT_TYPE, body };
  }
  const { type, version } = form;
  const object = { kind, apiVersion: `${GROUP}/${version}`, metadata: { name: component }, ...fields };
  return {
    status: 200,
    type: `application/${type}`,
    parameters: `;g=${GROUP};v=${version};as=${kind}`,
    body: type === 'yaml' ? stringifyYaml(object) : `${stringifyJson(object)}\n`,
    ...(version === DEPRECATED
      ? {
          warning: `299 - "This version of the ${kind.toLowerCase()} endpoint is deprecated. Please use a newer version."`,
        }
      : {}),
  };
}

type ZpageForm = { readonly type: 'text' } | { readonly type: 'json' | 'yaml'; readonly version: string };

/** Returns the first clause of the header, by weight, that can be served. Pure. */
export function negotiate(accept: string, kind: string): ZpageForm | undefined {
  if (accept.trim() === '') return { type: 'text' };
  const clauses = accept
    .split(',')
    .map(parseClause)
    .toSorted((left, right) => right.weight - left.weight);
  for (const { type, subtype, parameters } of clauses) {
    const matches = (wanted: string): boolean => {
      const [major, minor] = wanted.split('/');
      return (type === '*' || type === major) && (subtype === '*' || subtype === minor);
    };
    const named = ['as', 'g', 'v'].some((name) => parameters.has(name));
    const version = parameters.get('v') ?? '';
    const isKind = parameters.get('as') === kind && parameters.get('g') === GROUP && VERSIONS.includes(version);
    if (isKind && matches('application/json')) return { type: 'json', version };
    if (isKind && matches('application/yaml')) return { type: 'yaml', version };
    if (!named && matches('text/plain')) return { type: 'text' };
  }
  return undefined;
}

function parseClause(text: string): {
  readonly type: string;
  readonly subtype: string;
  readonly weight: number;
  readonly parameters: ReadonlyMap<string, string>;
} {
  const [range = '', ...rest] = text.split(';').map((part) => part.trim());
  const [type = '', subtype = ''] = range.toLowerCase().split('/');
  const parameters = new Map(
    rest.map((part) => {
      const [name = '', value = ''] = part.split('=');
      return [name.trim(), value.trim().replace(/^"(.*)"$/, '$1')];
    }),
  );
  const weight = Number(parameters.get('q') ?? 1);
  return { type, subtype, weight: Number.isNaN(weight) ? 1 : weight, parameters };
}

const NOT_ACCEPTABLE: ZpageResponse = {
  status: 406,
  type: 'application/json',
  body: `${stringifyJson({
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: 'only the following media types are accepted: application/json, application/yaml, text/plain',
    reason: 'NotAcceptable',
    code: 406,
  })}\n`,
};

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
