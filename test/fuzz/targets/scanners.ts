/** Attacks parsers that scan text in chunks or without a grammar: pages, headers, templates and logs. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { parseDuration } from '../../../api/component/duration.ts';
import { systemClock } from '../../../api/machinery/clock.ts';
import { matchesImage } from '../../../agent/runtime/images/image-match.ts';
import { ImageReferenceError, parseImageReference } from '../../../api/kinds/image-reference.ts';
import { environmentFileValue } from '../../../agent/runtime/kuberuntime/environment-file.ts';
import { expand } from '../../../agent/runtime/kuberuntime/environment.ts';
import { LogError } from '../../../agent/runtime/logs/log-entry.ts';
import { readLog } from '../../../agent/runtime/logs/log-reader.ts';
import { EntryParser, lastPosition } from '../../../agent/runtime/docker/log-writer.ts';
import { readFrames } from '../../../agent/runtime/docker/stream-frames.ts';
import { parseLogQuery } from '../../../agent/server/log-query.ts';
import { StatusError } from '../../../api/meta/status-error.ts';
import { negotiateProtocol } from '../../../agent/server/streaming/spdy-command.ts';
import { bearerAuthenticator } from '../../../controlplane/security/authentication/bearer.ts';
import { unescapeKey } from '../../../controlplane/security/authentication/request-header.ts';
import { AuthenticationError } from '../../../controlplane/security/authentication/union.ts';
import { parseSchedule, ScheduleError } from '../../../controlplane/controllers/cron-job/schedule.ts';
import { readFieldPath } from '../../../controlplane/registry/schemas/field-path.ts';
import { fitsFormat } from '../../../controlplane/registry/schemas/formats.ts';
import { findAll, parseJsonPath } from '../../../controlplane/registry/schemas/json-path.ts';
import { acceptClauses } from '../../../api/http/accept.ts';
import { HtmlLinks, throughProxy } from '../../../controlplane/server/connect/html-links.ts';
import { acceptsGzip } from '../../../controlplane/server/media-type.ts';
import { law, outcome, type Target } from '../target.ts';

const PLACE = { prefix: '/api/v1/namespaces/a/pods/b/proxy', targetHost: '10.0.0.1:80', requestHost: 'k8s:6443' };

function rewritten(page: string, pieceLength: number): string {
  const links = new HtmlLinks((link) => throughProxy(link, PLACE));
  let out = '';
  for (let at = 0; at < page.length; at += pieceLength) out += links.push(page.slice(at, at + pieceLength));
  return out + links.end();
}

export const htmlLinks: Target = {
  seeds: [
    '<html><a href="/x">y</a><img src=/z><script src="/s">"</a>"</script><!-- <a href="/c"> --></html>',
    '<a href="/x" title="',
    '<a b=\'c\' HREF = //10.0.0.1:80/d ><base href="https://k8s:6443/e?f#g">',
  ],
  words: [
    '<',
    '>',
    '"',
    "'",
    '=',
    '/',
    ' ',
    '<a ',
    '<a href="/x"',
    '<!--',
    '-->',
    '<script>',
    '</script',
    '</',
    'href=/',
  ],
  execute(input) {
    const page = input.toString('latin1');
    const whole = rewritten(page, page.length + 1);
    law(rewritten(page, 1) === whole, 'the size of the pieces changes the page');
    return `${whole.length === page.length} ${whole.includes(PLACE.prefix)}`;
  },
};

const tokens = bearerAuthenticator({ authenticateToken: () => undefined });

/** An input is the value of each header that is parsed. */
export const headers: Target = {
  seeds: [
    'Bearer abc.def',
    'bearer  x',
    'a, base64url.bearer.authorization.k8s.io.YQ, v4.channel.k8s.io',
    'text/html;q=0.5;level=1,*/*',
    'gzip;q=1.0, identity',
    'exec%2ek8s.io%2Fa',
    '1h2m3.5s',
  ],
  words: [' ', '\t', ',', ';', '=', 'q=', '%2f', '%', 'Bearer ', '*/*', 'gzip', '.', '0', '1', 'h', 's', '"', '\\'],
  execute(input) {
    const text = input.toString('latin1').replaceAll(/[\r\n\0]/g, '');
    const request = { headers: { 'x-stream-protocol-version': text } } as never;
    const token = (name: string, more: Record<string, string> = {}): string =>
      outcome(() => tokens.authenticate({ headers: { [name]: text, ...more } } as never), [AuthenticationError]);
    return [
      acceptClauses(text).length > 1,
      acceptsGzip(text),
      outcome(() => negotiateProtocol(request, ['v4.channel.k8s.io']), [StatusError]),
      unescapeKey(text) === text,
      parseDuration(text) === undefined,
      Array.isArray(parseLogQuery(new URLSearchParams({ query: text, sinceTime: text, boot: text }))),
      token('authorization').slice(0, 8),
      token('sec-websocket-protocol', { upgrade: 'websocket' }).slice(0, 8),
    ].join(' ');
  },
};

const FORMATS = (
  'bsonobjectid uuid uuid3 uuid4 uuid5 hexcolor rgbcolor ssn mac password duration isbn isbn10 isbn13 creditcard ' +
  'k8s-short-name k8s-long-name date date-time datetime ipv4 ipv6 cidr email hostname uri byte'
).split(' ');
const SCHEMA = { type: 'object', properties: { a: { type: 'object', additionalProperties: { type: 'string' } } } };
const OBJECT = { items: [{ type: 'Ready', a: { b: 1 } }, { type: 'Other' }] };

/** Attacks texts of objects that are templates or references: `$(VAR)`, paths, patterns, schedules and formats. */
export const templates: Target = {
  seeds: [
    'a $(B) $$(C) $(D',
    '.items[?(@.type=="Ready")].a.b',
    "['a.b'].c[0][1:3][*]..d\\.e",
    "A='b'\n# c\n\nD='e\nf'\n",
    'example.com:5000/a/b:c@sha256:' + '0'.repeat(64),
    '*.e[a-c]?.com',
    '*/5 1-3,7 * jan-mar mon',
    '@every 1h30m',
    '4111 1111 1111 1111',
    '2024-01-02T03:04:05Z',
    'rgb(1,2,3)',
  ],
  words: [
    '$(',
    '$',
    ')',
    '(',
    '.',
    '..',
    '[',
    ']',
    "['",
    '[?(@.',
    '==',
    '*',
    '?',
    '/',
    '-',
    ',',
    '\\',
    "'",
    '"',
    ' ',
    '0',
    'a',
    'a.',
    ':',
    '\n',
    "='",
    '@every ',
    'm',
  ],
  execute(input) {
    const text = input.toString();
    const path = parseJsonPath(text);
    if (path !== undefined && text.length < 100) findAll(OBJECT, path);
    return [
      expand(text, (name) => (name === 'B' ? 'b' : undefined)) === text,
      path?.length,
      'error' in readFieldPath(text, SCHEMA, { brackets: true }),
      FORMATS.filter((format) => fitsFormat(format, text)).join('+'),
      matchesImage(text, 'a.example.com/b'),
      matchesImage('*a*b*', text),
      outcome(() => parseImageReference(text), [ImageReferenceError]),
      outcome(() => typeof parseSchedule(text), [ScheduleError]),
      outcome(() => environmentFileValue(text, 'A'), [Error]).slice(0, 20),
    ].join(' ');
  },
};

const TIME = '2024-01-02T03:04:05.000000006Z';

async function* pieces(input: Buffer, length: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < input.length; at += length) yield input.subarray(at, at + length);
}

async function framesIn(input: Buffer): Promise<number> {
  const parser = new EntryParser(lastPosition(''));
  let bytes = 0;
  for await (const frame of readFrames(pieces(input, 7))) bytes += parser.frame(frame).length;
  return bytes + parser.flush().length;
}

async function rawIn(input: Buffer): Promise<number> {
  const parser = new EntryParser(lastPosition(''));
  let bytes = 0;
  for await (const piece of pieces(input, 7)) bytes += parser.raw(piece).length;
  return bytes + parser.flush().length;
}

/** Attacks the parsers of logs of the runtime and of log files. */
export function logs(): Target {
  const folder = mkdtempSync(join(tmpdir(), 'orchlet-fuzz-logs-'));
  const path = join(folder, 'log');
  const deps = { clock: systemClock, isRunning: () => Promise.resolve(false) };
  return {
    seeds: [
      `${TIME} stdout F hello\n${TIME} stderr P par`,
      `${TIME} stdout P a\n${TIME} stdout F b\n\n\nx\n`,
      Buffer.concat([Buffer.from([1, 0, 0, 0, 0, 0, 0, 36]), Buffer.from(`${TIME} hello`)]),
      Buffer.from([2, 0, 0, 0, 0, 255, 255, 255, 97]),
    ],
    words: [
      '\n',
      ' ',
      TIME,
      `${TIME} stdout F `,
      `${TIME} stdout P `,
      'Z',
      '0',
      '.',
      '\r',
      '\0',
      '\x01\0\0\0\0\0\0\x01a',
    ],
    async execute(input) {
      writeFileSync(path, input);
      let bytes = 0;
      const out = new Writable({
        write(chunk: Buffer, _encoding, done) {
          bytes += chunk.length;
          done();
        },
      });
      const options = { follow: false, previous: false, timestamps: true, tailLines: 1000, sinceTime: TIME };
      const reading = readLog(path, options, { out, signal: new AbortController().signal }, deps);
      const isReadable = await reading.then(
        () => true,
        (error: unknown) => {
          if (!(error instanceof LogError)) throw error;
          return false;
        },
      );
      const [raw, framed] = [await rawIn(input), await framesIn(input)];
      return `${isReadable} ${bytes > 0} ${lastPosition(input.toString('latin1')).count > 1} ${raw > 0} ${framed > 0}`;
    },
    close: () => Promise.resolve(rmSync(folder, { recursive: true, force: true })),
  };
}
