/** Presents the identities by which the control plane calls node agents and aggregated servers to its own API server. */
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { certificatePem, createCertificate, parseCertificates } from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import { subjectAccessReviews } from '../../api/client/resources.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { readAuthority } from '../../controlplane/security/pki/authority.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const DAY = 86_400_000;
const directory = temporaryFolder();
const flags = {
  dataDir: directory,
  securePort: 0,
  bindAddress: '127.0.0.1',
  controllers: ['-*'],
  scheduler: false,
} as const;
let plane: ControlPlane;

interface Identity {
  readonly cert: string;
  readonly key: string;
}

const pki = (name: string): string => join(directory, 'pki', name);
const kept = (name: string): Identity => ({
  cert: readFileSync(pki(`${name}.crt`), 'utf8'),
  key: readFileSync(pki(`${name}.key`), 'utf8'),
});

/** Returns a client certificate of the cluster CA in the group of administrators. */
async function administrator(commonName: string): Promise<Identity> {
  const ca = kept('ca');
  const authority = readAuthority(ca.cert, ca.key, 'ca.crt');
  const keys = await generateKey('ecdsa');
  const raw = createCertificate(
    {
      subject: { commonName, organizations: ['system:masters'] },
      publicKey: keys.publicKey,
      notBeforeMs: Date.now() - DAY,
      notAfterMs: Date.now() + 300 * DAY,
      extendedKeyUsages: ['client auth'],
    },
    authority,
  );
  return { cert: certificatePem(raw), key: privateKeyPem(keys.privateKey) };
}

function status(identity: Identity, path = '/api/v1/secrets'): Promise<number> {
  const { hostname, port } = new URL(plane.url);
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path, ca: plane.ca, agent: false, ...identity }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    sent.on('error', reject);
    sent.end();
  });
}

let old: Identity;
before(async () => {
  plane = await startControlPlane({ flags });
  old = await administrator('kube-apiserver-kubelet-client');
  await plane.close();
  writeFileSync(pki('apiserver-kubelet-client.crt'), old.cert);
  writeFileSync(pki('apiserver-kubelet-client.key'), old.key);
  plane = await startControlPlane({ flags });
});

after(async () => {
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

test('a data directory whose certificate for kubelets is an administrator’s gets a new one at the start', () => {
  const [made] = parseCertificates(kept('apiserver-kubelet-client').cert);
  assert.equal(made?.subject.commonName, 'kube-apiserver-kubelet-client');
  assert.deepEqual(made.subject.organizations, []);
});

test('no API server takes the identity for kubelets as a client, also not the certificate of before', async () => {
  assert.equal(await status(await administrator('somebody')), 200, 'the CA makes administrators');
  assert.equal(await status(kept('apiserver-kubelet-client')), 401);
  assert.equal(await status(old), 401);
});

test('no API server takes the identity of the front proxy as a client', async () => {
  assert.equal(await status(kept('front-proxy-client')), 401);
  assert.equal(await status(await administrator('front-proxy-client')), 401);
});

const RIGHTS: readonly (readonly [verb: string, resource: string, subresource: string, allowed: boolean])[] = [
  ['create', 'nodes', 'proxy', true],
  ['get', 'nodes', 'proxy', true],
  ['get', 'nodes', 'stats', true],
  ['get', 'nodes', 'log', true],
  ['get', 'nodes', 'metrics', true],
  ['create', 'nodes', 'checkpoint', true],
  ['patch', 'nodes', 'status', false],
  ['delete', 'nodes', '', false],
  ['list', 'secrets', '', false],
  ['create', 'pods', 'exec', false],
  ['get', 'configmaps', '', false],
];
for (const [verb, resource, subresource, allowed] of RIGHTS) {
  test(`the identity for kubelets may ${allowed ? '' : 'not '}${verb} ${resource}/${subresource}`, async () => {
    const answer = await plane.client.create(subjectAccessReviews, '', {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      metadata: {},
      spec: {
        user: 'kube-apiserver-kubelet-client',
        groups: ['system:authenticated'],
        resourceAttributes: { verb, resource, subresource, name: 'n1' },
      },
    });
    assert.equal((answer['status'] as { readonly allowed: boolean }).allowed, allowed);
  });
}
