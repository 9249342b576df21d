/**
 * Serves `/statusz` and `/flagz`: the version and the flags of this program, as text, or as an object of `config.k8s.io` if the
 * Accept header requests the kind. Responds 406 to any other Accept header.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { stringifyYaml } from '../../api/codec/yaml.ts';
import { formatTime } from '../../api/machinery/clock.ts';

interface Statusz {
  readonly startedAtMs: number;
  readonly nowMs: number;
  /** `1.36.2`. */
  readonly version: string;
}

/** The data of the enabled pages, computed for each request. */
export interface Zpages {
  /** Absent if the page is disabled. */
  readonly statusz?: () => Statusz;
  /** The values of the flags by name: those of the command line, else the defaults. */
  readonly flagz?: () => Readonly<Record<string, string>>;
}

const COMPONENT = 'kubelet';
const GROUP = 'config.k8s.io';
const VERSIONS = ['v1beta1', 'v1alpha1'];
const TEXT_TYPE = 'text/plain; charset=utf-8';
const WARNING =
  'Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.';

/** Adds the routes of the enabled pages. `paths` are those that `/statusz` lists. */
export function installZpages(app: FastifyInstance, zpages: Zpages, paths: readonly string[]): void {
  const { statusz, flagz } = zpages;
  if (flagz !== undefined) {
    install(app, '/flagz', 'Flagz', {
      text: () => flagzText(flagz()),
      fields: () => ({ flags: flagz() }),
    });
  }
  if (statusz !== undefined) {
    const listed = [...paths, ...(flagz === undefined ? [] : ['/flagz'])].toSorted();
    install(app, '/statusz', 'Statusz', {
      text: () => statuszText(statusz(), listed),
      fields: () => statuszFields(statusz(), listed),
    });
  }
}

interface Page {
  readonly text: () => string;
  readonly fields: () => object;
}

function install(app: FastifyInstance, path: string, kind: string, page: Page): void {
  app.all(path, (request: FastifyRequest, reply: FastifyReply) => {
    const form = negotiate(request.headers.accept ?? '', kind);
    if (form === undefined) return refuse(reply);
    if (form.type === 'text') return reply.type(TEXT_TYPE).send(page.text());
    const object = {
      kind,
      apiVersion: `${GROUP}/${form.version}`,
      metadata: { name: COMPONENT },
      ...page.fields(),
    };
    return form.type === 'yaml'
      ? reply.type('application/yaml').send(stringifyYaml(object))
      : reply.type('application/json').send(`${JSON.stringify(object)}\n`);
  });
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

function refuse(reply: FastifyReply): FastifyReply {
  return reply.code(406).type('application/json').send({
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: 'only the following media types are accepted: application/json, application/yaml, text/plain',
    reason: 'NotAcceptable',
    code: 406,
  });
}

function flagzText(flags: Readonly<Record<string, string>>): string {
  const lines = Object.keys(flags)
    .toSorted()
    .map((name) => `${name}=${flags[name]}\n`);
  return `\n${COMPONENT} flagz\n${WARNING}\n${lines.join('')}`;
}

function statuszText(status: Statusz, paths: readonly string[]): string {
  const upSeconds = upSecondsOf(status);
  const pad = (value: number): string => String(value % 60).padStart(2, '0');
  const up = `${Math.floor(upSeconds / 3600)} hr ${pad(Math.floor(upSeconds / 60))} min ${pad(upSeconds)} sec`;
  return `
${COMPONENT} statusz
${WARNING}

Started: ${unixDate(status.startedAtMs)}
Up: ${up}
Go version: none, Node.js ${process.version}
Binary version: ${status.version}
Emulation version: ${minorOf(status.version)}
Paths: ${paths.join(' ')}
`;
}

function statuszFields(status: Statusz, paths: readonly string[]): object {
  return {
    startTime: formatTime(status.startedAtMs),
    uptimeSeconds: upSecondsOf(status),
    goVersion: `none, Node.js ${process.version}`,
    binaryVersion: status.version,
    emulationVersion: minorOf(status.version),
    paths,
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
