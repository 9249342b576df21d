/** Measures authentication and authorization: the authorizer and the authenticators in this process, and audit on a server. */
import { generateKeyPairSync } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../api/machinery/clock.ts';
import { roleBindings, roles } from '../../api/client/resources.ts';
import { fixedListers } from '../fakes/fixed-listers.ts';
import type { TokenAuthenticator } from '../../controlplane/security/authentication/authentication.ts';
import { cachedTokens } from '../../controlplane/security/authentication/cached-token.ts';
import {
  serviceAccountTokenAuthenticator,
  verificationKey,
} from '../../controlplane/security/authentication/service-account.ts';
import { TokenIssuer } from '../../controlplane/security/authentication/token-issuer.ts';
import { RbacAuthorizer } from '../../controlplane/security/authorization/rbac.ts';
import type { Print } from './bench.ts';
import { h2load } from './load.ts';
import { configMap } from './objects.ts';
import type { Server, ServerOptions } from './server.ts';

/** Starts a server for one measurement. */
export type StartServer = (options: ServerOptions) => Promise<Server>;

const NAMESPACES = 100;
const ROLES = 1000;
const BINDINGS = 5000;
const ISSUER = 'https://kubernetes.default.svc';
const KEEP_MS = 600_000;

/** Creates roles and bindings in several namespaces. Each user has five of the bindings. */
export function authorization(print: Print): void {
  const namespaceOf = (at: number): string => `n${at % NAMESPACES}`;
  const allRoles = Array.from({ length: ROLES }, (_, at) => ({
    resource: roles,
    object: {
      metadata: { name: `r${at}`, namespace: namespaceOf(at) },
      rules: [
        { verbs: ['get', 'list', 'watch'], apiGroups: [''], resources: ['pods', 'services'] },
        { verbs: ['*'], apiGroups: ['apps'], resources: ['deployments', 'deployments/scale'] },
      ],
    },
  }));
  const allBindings = Array.from({ length: BINDINGS }, (_, at) => ({
    resource: roleBindings,
    object: {
      metadata: { name: `b${at}`, namespace: namespaceOf(at) },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: `r${at % ROLES}` },
      subjects: [{ kind: 'User', name: `u${at % ROLES}` }],
    },
  }));
  // A list would be searched at each call. An informer has maps, so this uses a map, too.
  const byName = new Map(
    allRoles.map(({ object }) => [`${object.metadata.namespace}/${object.metadata.name}`, object]),
  );
  const fixed = fixedListers(allBindings);
  const authorizer = new RbacAuthorizer({
    ...fixed,
    of: (resource) => {
      const lister = fixed.of(resource);
      if (resource.resource !== 'roles') return lister;
      return { ...lister, get: (namespace, name) => byName.get(`${namespace}/${name}`) as never };
    },
  });
  const ask = (at: number, verb: string): string =>
    authorizer.authorize({
      user: { name: `u${at % ROLES}`, groups: ['system:authenticated'] },
      verb,
      isResourceRequest: true,
      group: '',
      version: 'v1',
      resource: 'pods',
      subresource: '',
      namespace: namespaceOf(at),
      name: 'p',
      path: '',
    }).decision;
  for (const [what, verb, expected] of [
    ['allowed', 'get', 'allow'],
    ['not allowed', 'delete', 'no-opinion'],
  ] as const) {
    const figure = perSecond(500_000, (at) => {
      if (ask(at, verb) !== expected) throw new Error(`the decision is not ${expected}`);
    });
    print(`authorization, ${ROLES} roles and ${BINDINGS} bindings, ${what}`, figure, '1/s');
  }
}

/** Measures the authentication of service account tokens that are signed with RSA and with ECDSA. */
export async function tokens(print: Print): Promise<void> {
  for (const [name, key] of [
    ['RS256', generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey],
    ['ES256', generateKeyPairSync('ec', { namedCurve: 'prime256v1' }).privateKey],
  ] as const) {
    const privateKeyPem = key.export({ type: 'pkcs8', format: 'pem' }).toString();
    const issuer = new TokenIssuer({
      privateKeyPem,
      verificationKeys: [],
      issuer: ISSUER,
      jwksUri: '',
      clock: systemClock,
    });
    const account = { metadata: { name: 'sa', namespace: 'ns', uid: 'u' } };
    const own = serviceAccountTokenAuthenticator({
      issuers: [ISSUER],
      keys: [verificationKey(privateKeyPem)],
      apiAudiences: [ISSUER],
      lookup: true,
      clock: systemClock,
      lookups: {
        serviceAccount: () => account,
        secret: () => undefined,
        pod: () => undefined,
        node: () => undefined,
      },
    });
    const cached = cachedTokens(own, { clock: systemClock, successTtlMs: KEEP_MS, failureTtlMs: 0 });
    const { token } = issuer.issue({
      namespace: 'ns',
      account: { name: 'sa', uid: 'u' },
      audiences: [ISSUER],
      expirationSeconds: 3600,
    });
    const signature = token.lastIndexOf('.') + 1;
    /** Returns a well-formed token without a valid signature. */
    const forged = (at: number): string =>
      token.slice(0, signature) +
      Buffer.from(token.slice(signature), 'base64url')
        .fill(at & 0xff, 0, 8)
        .toString('base64url');
    print(`token (${name}) not cached`, await answered(own, () => token, 5000), '1/s');
    print(`token (${name}) cached`, await answered(cached, () => token, 200_000), '1/s');
    print(`token (${name}) forged`, await refused(cached, forged, 5000), '1/s');
    print(`token (${name}) no JWT at all`, await refused(cached, (at) => `wrong-${at}`, 100_000), '1/s');
  }
}

/** Measures creates without audit and at several levels of it, each on a server of its own. */
export async function audit(print: Print, startServer: StartServer): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'orchlet-bench-audit-'));
  const policy = join(directory, 'policy.yaml');
  const on = ['--audit-policy-file', policy, '--audit-log-path', join(directory, 'audit.log')];
  try {
    for (const [what, level, flags] of [
      ['audit off', '', []],
      ['audit at Metadata', 'Metadata', on],
      ['audit at Metadata, batched', 'Metadata', [...on, '--audit-log-mode=batch', '--audit-log-batch-max-size=100']],
      ['audit at RequestResponse', 'RequestResponse', on],
    ] as const) {
      if (level !== '') {
        await writeFile(policy, `apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: ${level}}]\n`);
      }
      const server = await startServer({ flags });
      try {
        const url = `${server.origin}/api/v1/namespaces/default/configmaps`;
        await h2load(url, { requests: 1000, clients: 20, body: configMap() });
        const create = await h2load(url, { requests: 4000, clients: 20, body: configMap() });
        const read = `${server.origin}/version`;
        await h2load(read, { requests: 3000, clients: 20 });
        const get = await h2load(read, { requests: 20_000, clients: 20 });
        print(`create, 20 in flight, ${what}`, create.perSecond, '1/s');
        print(`get of /version, 20 in flight, ${what}`, get.perSecond, '1/s');
      } finally {
        await server.stop();
      }
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

function perSecond(count: number, one: (at: number) => void): number {
  for (let at = 0; at < count / 10; at += 1) one(at);
  const started = performance.now();
  for (let at = 0; at < count; at += 1) one(at);
  return count / ((performance.now() - started) / 1000);
}

async function answered(tokens: TokenAuthenticator, token: (at: number) => string, count: number): Promise<number> {
  return timed(count, async (at) => {
    if ((await tokens.authenticateToken(token(at), [])) === undefined) throw new Error('a good token was refused');
  });
}

async function refused(tokens: TokenAuthenticator, token: (at: number) => string, count: number): Promise<number> {
  return timed(count, async (at) => {
    const known = await Promise.resolve()
      .then(() => tokens.authenticateToken(token(at), []))
      .catch(() => undefined);
    if (known !== undefined) throw new Error('a wrong token was taken');
  });
}

async function timed(count: number, one: (at: number) => Promise<void>): Promise<number> {
  for (let at = 0; at < count / 10; at += 1) await one(at);
  const started = performance.now();
  for (let at = 0; at < count; at += 1) await one(at);
  return count / ((performance.now() - started) / 1000);
}
