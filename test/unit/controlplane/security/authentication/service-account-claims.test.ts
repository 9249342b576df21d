/** Each claim of a service-account token, and each object that it names, can make it invalid. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { test } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { signJwt } from '../../../../../controlplane/security/authentication/jwt.ts';
import {
  LEGACY_ISSUER,
  serviceAccountTokenAuthenticator,
  verificationKey,
} from '../../../../../controlplane/security/authentication/service-account.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const ISSUER = 'https://kubernetes.default.svc';
const clock = new FakeClock();
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const pem = privateKey.export({ type: 'pkcs1', format: 'pem' }).toString();

const legacyClaims = {
  iss: LEGACY_ISSUER,
  sub: 'system:serviceaccount:ns:sa',
  'kubernetes.io/serviceaccount/namespace': 'ns',
  'kubernetes.io/serviceaccount/secret.name': 's',
  'kubernetes.io/serviceaccount/service-account.name': 'sa',
  'kubernetes.io/serviceaccount/service-account.uid': 'u1',
};
const privateClaims = { namespace: 'ns', serviceaccount: { name: 'sa', uid: 'u1' }, pod: { name: 'p', uid: 'u2' } };
const boundClaims = {
  ...{ iss: ISSUER, aud: [ISSUER], sub: 'system:serviceaccount:ns:sa' },
  ...{ exp: clock.now() / 1000 + 3600, 'kubernetes.io': privateClaims },
};

const account: KubeObject = { metadata: { name: 'sa', namespace: 'ns', uid: 'u1' } };
const pod: KubeObject = { metadata: { name: 'p', namespace: 'ns', uid: 'u2' } };
const long = new Date(clock.now() - 3_600_000).toISOString();
const deleted = (object: KubeObject): KubeObject => ({
  ...object,
  metadata: { ...object.metadata, deletionTimestamp: long },
});

interface Found {
  readonly account?: KubeObject;
  readonly pod?: KubeObject;
  /** The metadata of the Secret that has the token. */
  readonly secret?: object;
  readonly audiences?: readonly string[];
}

async function userOf(claims: object, found: Found = {}): Promise<string | undefined> {
  const token = signJwt(claims, privateKey, { alg: 'RS256' });
  const data = { token: Buffer.from(token).toString('base64') };
  const authenticator = serviceAccountTokenAuthenticator({
    issuers: [ISSUER],
    keys: [verificationKey(pem)],
    apiAudiences: [ISSUER],
    lookup: true,
    clock,
    lookups: {
      serviceAccount: () => (found.account ?? account) as never,
      secret: () => ({ metadata: { name: 's', namespace: 'ns', ...found.secret }, data }) as never,
      pod: () => (found.pod ?? pod) as never,
      node: () => undefined,
    },
  });
  return (await authenticator.authenticateToken(token, [...(found.audiences ?? [])]))?.user.name;
}

test('a token whose claims and objects are valid is that of its account', async () => {
  for (const claims of [legacyClaims, boundClaims]) assert.equal(await userOf(claims), 'system:serviceaccount:ns:sa');
});

for (const [what, claims, found, reason] of [
  ['without a namespace', { ...legacyClaims, 'kubernetes.io/serviceaccount/namespace': '' }, {}, /namespace claim/],
  ['without a Secret', { ...legacyClaims, 'kubernetes.io/serviceaccount/secret.name': 1 }, {}, /secretName claim/],
  [
    'without an account',
    { ...legacyClaims, 'kubernetes.io/serviceaccount/service-account.name': '' },
    {},
    /serviceAccountName claim/,
  ],
  [
    'without the UID of its account',
    { ...legacyClaims, 'kubernetes.io/serviceaccount/service-account.uid': '' },
    {},
    /serviceAccountUID claim/,
  ],
  [
    'of another subject',
    { ...legacyClaims, sub: 'system:serviceaccount:kube-system:sa' },
    {},
    /the subject of the token is not its service account/,
  ],
  ['for another audience', legacyClaims, { audiences: ['vault'] }, /token audiences \[\] is invalid/],
  ['of a Secret that is being deleted', legacyClaims, { secret: { deletionTimestamp: long } }, /has been invalidated/],
  ['of an account that is being deleted', legacyClaims, { account: deleted(account) }, /has been deleted/],
  [
    'that was invalidated because nobody used it',
    legacyClaims,
    { secret: { labels: { 'kubernetes.io/legacy-token-invalid-since': '2026-01-01' } } },
    /is invalidated/,
  ],
] as const)
  test(`a token of a Secret ${what} is refused`, async () => assert.rejects(userOf(claims, found), reason));

for (const [what, claims, found, reason] of [
  ['without private claims', { ...boundClaims, 'kubernetes.io': 'ns' }, {}, /no private claims/],
  ['without an account', { ...boundClaims, 'kubernetes.io': { namespace: 'ns' } }, {}, /no service account/],
  ['of an account that was deleted a while ago', boundClaims, { account: deleted(account) }, /has been invalidated/],
  ['of a pod that was deleted a while ago', boundClaims, { pod: deleted(pod) }, /has been invalidated/],
  [
    'of an earlier pod of the name',
    boundClaims,
    { pod: { metadata: { ...pod.metadata, uid: 'u9' } } },
    /has been invalidated/,
  ],
] as const)
  test(`a bound token ${what} is refused`, async () => assert.rejects(userOf(claims, found), reason));
