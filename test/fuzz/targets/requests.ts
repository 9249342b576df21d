/** Attacks the parsers of a request without its body: path, query, negotiation headers, continue tokens and bearer tokens. */
import { parseJwt } from '../../../controlplane/security/authentication/jwt.ts';
import { decodeContinue, encodeContinue } from '../../../controlplane/registry/continue-token.ts';
import { inputFormat, negotiateError, negotiateOutput } from '../../../controlplane/server/media-type.ts';
import {
  parseDeleteOptions,
  parseListOptions,
  parseWriteOptions,
  validateListOptions,
} from '../../../controlplane/server/options.ts';
import { parseRequestPath, RequestPathError } from '../../../api/http/request-path.ts';
import { parseRequestInfo, RequestInfoError } from '../../../controlplane/server/request-info.ts';
import { StatusError } from '../../../api/meta/status-error.ts';
import type { Random } from '../random.ts';
import { law, outcome, type Target } from '../target.ts';

const PARTS = [
  'api',
  'apis',
  'v1',
  'apps',
  'watch',
  'proxy',
  'namespaces',
  'default',
  'pods',
  'a',
  'status',
  'log',
  '',
];

function path(random: Random): Buffer {
  const parts = Array.from({ length: random.below(random.pick([8, 8, 8, 5000])) }, () => random.pick(PARTS) ?? '');
  return Buffer.from(
    `/${parts.join('/')}?${random.chance(2) ? 'watch=1&limit=1' : 'labelSelector=a,b&fieldSelector=a=b'}`,
  );
}

/** An input is a path with a query, and an Accept header in the second line. */
export const paths: Target = {
  seeds: [
    '/api/v1/namespaces/default/pods/a/log?container=c&tailLines=5\napplication/json;as=Table;g=meta.k8s.io;v=v1',
    '/apis/apps/v1/watch/namespaces/default/deployments/a?resourceVersion=7&watch=true\n*/*;q=0.5,application/yaml',
    '/api/v1/pods?labelSelector=a%20in%20(b,c)&fieldSelector=spec.nodeName%3Dn&limit=500&continue=abc\ntext/html',
    '/api/v1/namespaces?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&watch=1&timeoutSeconds=9\n',
    '/api/v1/namespaces/a/pods/b?dryRun=All&fieldManager=m&fieldValidation=Strict&gracePeriodSeconds=0\n;;=,q=',
    '//api//v1/%2e%2e/%00/__proto__?__proto__=1&constructor=%ff\n,,,',
  ],
  words: [
    ...PARTS,
    '/',
    '?',
    '&',
    '=',
    '%2F',
    '%00',
    '%ff',
    ';',
    ',',
    'q=0',
    'as=Table',
    'watch=1',
    'limit=',
    '-1',
    'true',
  ],
  generate: path,
  execute(input) {
    const [target = '', accept = ''] = input.toString('latin1').split('\n');
    const mark = target.indexOf('?');
    const rawPath = mark < 0 ? target : target.slice(0, mark);
    const query = new URLSearchParams(mark < 0 ? '' : target.slice(mark + 1));
    const scope = {
      protobuf: true,
      table: true,
      watch: 'possible',
      routeCheck: rawPath.length % 2 === 0,
    } as const;
    return (
      [
        outcome(() => {
          const info = parseRequestInfo('GET', parseRequestPath(rawPath), () => query);
          law(info.isResource || info.resource === '', 'what is no resource has none');
          return `${info.isResource} ${info.verb} ${info.parts.length > 3}`;
        }, [StatusError, RequestPathError, RequestInfoError]),
        outcome(() => {
          const options = parseListOptions(query);
          validateListOptions(options);
          return `list ${options.limit > 0}`;
        }, [StatusError]),
        outcome(() => `write ${parseWriteOptions(query, 'PatchOptions', true).dryRun}`, [StatusError]),
        outcome(() => `delete ${Object.keys(parseDeleteOptions(query, undefined)).length}`, [StatusError]),
        outcome(() => `out ${negotiateOutput(accept, scope).format}`, [StatusError]),
        outcome(() => `in ${inputFormat(accept, { protobuf: true })} ${negotiateError(accept)}`, [StatusError]),
      ]
        // Messages contain parts of the input, so only their beginning identifies the outcome.
        .map((text) => Buffer.from(text.slice(0, 24)).toString())
        .join('; ')
    );
  },
};

const jwt = (header: object, claims: object): string =>
  [header, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.') + '.c2ln';

export const tokens: Target = {
  seeds: [
    encodeContinue({ revision: 7, after: 'default/a' }),
    encodeContinue({ revision: -1, after: '../x' }),
    Buffer.from('{"v":"meta.k8s.io/v1","rv":1e400,"start":"a"}').toString('base64url'),
    jwt({ alg: 'RS256', kid: 'a' }, { iss: 'i', sub: 's', aud: ['a'], exp: 1 }),
    jwt({ alg: 'none', crit: [] }, { iss: null, exp: 'x', ['__proto__']: {} }),
    '..',
  ],
  words: ['.', '-', '_', '=', 'eyJ', 'e30', 'bnVsbA', 'W10', 'Ilx1MDAwMCI', '__proto__'],
  generate: (random) => {
    const start = random.pick(['a', '..', '\0', 'a/../b', '\ud800', '']) ?? '';
    const text = JSON.stringify({
      v: 'meta.k8s.io/v1',
      rv: random.below(5) - 2,
      start: start.repeat(random.below(2000)),
    });
    return Buffer.from(Buffer.from(text).toString('base64url'));
  },
  execute(input) {
    const text = input.toString('latin1');
    const page = outcome(() => {
      const token = decodeContinue(text);
      law(!token.after.split('/').includes('..'), 'a token leads out of what is listed');
      const again = decodeContinue(encodeContinue(token));
      law(again.after === token.after && again.revision === token.revision, 'a token changes in writing');
      return `page ${token.revision > 0}`;
    }, [StatusError]);
    const bearer = outcome(() => (parseJwt(text) === undefined ? 'none' : 'jwt'), []);
    return `${page}; ${bearer}`;
  },
};
