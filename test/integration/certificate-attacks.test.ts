/**
 * Sends certificate signing requests for more permissions than their author may have, and checks the responses of a running
 * control plane.
 */
import assert from 'node:assert/strict';
import { request as httpsRequest } from 'node:https';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { createCsr, type CertificateRequestTemplate } from '../../api/pki/certificate-request.ts';
import { certificatePem, createCertificate, parseCertificates } from '../../api/pki/certificate.ts';
import { basicConstraintsExtension, keyUsageExtension } from '../../api/pki/extensions.ts';
import { generateKey, privateKeyPem, type KeyPair } from '../../api/pki/signing.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const DAY = 86_400_000;
const CLIENT = 'kubernetes.io/kube-apiserver-client';
const NODE_CLIENT = 'kubernetes.io/kube-apiserver-client-kubelet';
const SERVING = 'kubernetes.io/kubelet-serving';
const REQUESTS = '/apis/certificates.k8s.io/v1/certificatesigningrequests';
const directory = temporaryFolder();
let plane: ControlPlane;
let keys: KeyPair;
let count = 0;

interface SigningRequest {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly username: string; readonly groups: readonly string[]; readonly uid?: string };
  readonly status: {
    readonly certificate?: string;
    readonly conditions?: readonly { readonly type: string; readonly reason?: string; readonly message?: string }[];
  };
}
interface Failure {
  readonly message: string;
}

before(async () => {
  keys = await generateKey('ecdsa');
  writeFileSync(
    join(directory, 'tokens.csv'),
    [
      'admin-token,admin,1,"system:masters"',
      'ann-token,ann,2,devs',
      'node-token,system:node:a,3,system:nodes',
      'approver-token,approver,4',
    ].join('\n'),
  );
  plane = await startControlPlane({
    memory: true,
    flags: {
      tokenAuthFile: join(directory, 'tokens.csv'),
      controllers: ['certificatesigningrequest-signing-controller', 'certificatesigningrequest-approving-controller'],
      scheduler: false,
    },
  });
  const rbac = '/apis/rbac.authorization.k8s.io/v1';
  const grant = async (name: string, user: string, rules: readonly object[]): Promise<void> => {
    const metadata = { name };
    const role = { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRole', metadata, rules };
    const binding = {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata,
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name },
      subjects: [{ kind: 'User', name: user, apiGroup: 'rbac.authorization.k8s.io' }],
    };
    assert.equal((await call('POST', `${rbac}/clusterroles`, 'admin', role)).status, 201);
    assert.equal((await call('POST', `${rbac}/clusterrolebindings`, 'admin', binding)).status, 201);
  };
  const group = 'certificates.k8s.io';
  await grant('requester', 'ann', [
    { apiGroups: [group], resources: ['certificatesigningrequests'], verbs: ['create', 'get'] },
  ]);
  await grant('half-approver', 'approver', [
    {
      apiGroups: [group],
      resources: [
        'certificatesigningrequests',
        'certificatesigningrequests/approval',
        'certificatesigningrequests/status',
      ],
      verbs: ['get', 'update', 'patch'],
    },
  ]);
});

after(async () => {
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

function call<T = Failure>(
  method: string,
  path: string,
  who: string | { readonly cert: string; readonly key: string },
  body?: object,
): Promise<{ readonly status: number; readonly body: T }> {
  const { hostname, port } = new URL(plane.url);
  return new Promise((resolve, reject) => {
    const sent = httpsRequest(
      {
        hostname,
        port,
        path,
        method,
        ca: plane.ca,
        agent: false,
        headers: {
          ...(typeof who === 'string' ? { authorization: `Bearer ${who}-token` } : {}),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(typeof who === 'string' ? {} : who),
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body: JSON.parse(text) as T }));
        response.on('error', reject);
      },
    );
    sent.on('error', reject);
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

interface Asked {
  readonly signerName?: string;
  readonly usages?: readonly string[];
  readonly spec?: object;
  readonly who?: string;
}

const NODE = { commonName: 'system:node:a', organizations: ['system:nodes'] };

async function ask(
  template: CertificateRequestTemplate,
  { signerName = CLIENT, usages, spec, who = 'ann' }: Asked = {},
) {
  const name = `request-${count++}`;
  const body = {
    apiVersion: 'certificates.k8s.io/v1',
    kind: 'CertificateSigningRequest',
    metadata: { name },
    spec: {
      request: Buffer.from(createCsr(template, keys)).toString('base64'),
      signerName,
      usages: usages ?? ['client auth'],
      ...spec,
    },
  };
  const answer = await call<SigningRequest & Failure>('POST', REQUESTS, who, body);
  return { name, ...answer };
}

/** Approves the request as the administrator, and returns the decision of the signer. */
async function decide(name: string): Promise<SigningRequest['status']> {
  const { body } = await call<SigningRequest>('GET', `${REQUESTS}/${name}`, 'admin');
  const condition = { type: 'Approved', status: 'True', reason: 'Test', message: 'approved' };
  const approved = { ...body, status: { ...body.status, conditions: [condition] } };
  assert.equal((await call('PUT', `${REQUESTS}/${name}/approval`, 'admin', approved)).status, 200);
  return until(`the decision about ${name}`, async () => {
    const { status } = (await call<SigningRequest>('GET', `${REQUESTS}/${name}`, 'admin')).body;
    return status.certificate !== undefined || status.conditions?.some(({ type }) => type === 'Failed') === true
      ? status
      : undefined;
  });
}

const failureOf = (status: SigningRequest['status']): string => {
  assert.equal(status.certificate, undefined);
  const failed = status.conditions?.find(({ type }) => type === 'Failed');
  assert.equal(failed?.reason, 'SignerValidationFailure');
  return failed?.message ?? '';
};

test('a request for a CA certificate gets a client certificate, which cannot sign others', async () => {
  const extensions = [basicConstraintsExtension({ isCa: true }), keyUsageExtension(['cert sign'])];
  const { name, status } = await ask({ subject: { commonName: 'ann' }, extensions });
  assert.equal(status, 201);
  const pem = Buffer.from((await decide(name)).certificate ?? '', 'base64').toString();
  const [certificate] = parseCertificates(pem);
  assert.ok(certificate);
  assert.notEqual(certificate.basicConstraints?.isCa, true);
  assert.ok(!certificate.keyUsages?.includes('cert sign'));
  // The certificate is valid for a client…
  const own = { cert: pem, key: privateKeyPem(keys.privateKey) };
  assert.equal((await call('GET', '/apis', own)).status, 200);
  // A certificate of another CA is refused, even with its chain.
  const forgedKeys = await generateKey('ecdsa');
  const forged = createCertificate(
    {
      subject: { commonName: 'root', organizations: ['system:masters'] },
      publicKey: forgedKeys.publicKey,
      notBeforeMs: Date.now() - DAY / 24,
      notAfterMs: Date.now() + DAY / 24,
      extendedKeyUsages: ['client auth'],
    },
    { privateKey: keys.privateKey, certificate },
  );
  const chain = { cert: `${certificatePem(forged)}${pem}`, key: privateKeyPem(forgedKeys.privateKey) };
  assert.equal((await call('GET', '/api/v1/secrets', chain)).status, 401);
});

test('a request with a usage to sign certificates is denied', async () => {
  const { name } = await ask({ subject: { commonName: 'ann' } }, { usages: ['client auth', 'cert sign'] });
  assert.equal(failureOf(await decide(name)), 'invalid usage for client certificate: cert sign');
});

test('a request for a client certificate of system:masters is refused, also from an administrator', async () => {
  for (const who of ['ann', 'admin']) {
    const subject = { commonName: 'root', organizations: ['devs', 'system:masters'] };
    const { name, status, body } = await ask({ subject }, { who });
    assert.equal(status, 403);
    assert.equal(
      body.message,
      `certificatesigningrequests.certificates.k8s.io "${name}" is forbidden: use of ${CLIENT} signer with system:masters group is not allowed`,
    );
  }
});

test('a node’s request with the additional group system:masters is denied', async () => {
  const subject = { ...NODE, organizations: ['system:nodes', 'system:masters'] };
  const { name } = await ask({ subject }, { signerName: NODE_CLIENT, who: 'node' });
  assert.equal(failureOf(await decide(name)), 'subject organization is not system:nodes');
});

for (const [what, names, message] of [
  ['a name of a server', { dns: ['kubernetes.default.svc'] }, 'DNS subjectAltNames are not allowed'],
  ['an address', { ip: ['10.96.0.1'] }, 'IP subjectAltNames are not allowed'],
  ['a mail address', { email: ['root@example.com'] }, 'Email subjectAltNames are not allowed'],
  ['a URI', { uri: ['spiffe://cluster/root'] }, 'URI subjectAltNames are not allowed'],
] as const) {
  test(`a node’s client with ${what} beside its own is refused for good`, async () => {
    const { name } = await ask({ subject: NODE, names }, { signerName: NODE_CLIENT, who: 'node' });
    assert.equal(failureOf(await decide(name)), message);
  });
}

test('a node that wants to serve with a mail address or a URI is refused for good', async () => {
  const usages = ['server auth', 'digital signature'];
  for (const [names, message] of [
    [{ dns: ['a'], email: ['root@example.com'] }, 'Email subjectAltNames are not allowed'],
    [{ dns: ['a'], uri: ['spiffe://cluster/root'] }, 'URI subjectAltNames are not allowed'],
    [{}, 'DNS or IP subjectAltName is required'],
  ] as const) {
    const { name } = await ask({ subject: NODE, names }, { signerName: SERVING, usages, who: 'node' });
    assert.equal(failureOf(await decide(name)), message);
  }
});

test('the user of a review is the authenticated one, whatever the request contains', async () => {
  const spec = { username: 'system:node:a', groups: ['system:masters'], uid: '0', extra: { a: ['b'] } };
  const { status, body } = await ask({ subject: { commonName: 'x' } }, { spec });
  assert.equal(status, 201);
  assert.deepEqual(
    [body.spec.username, body.spec.groups, body.spec.uid],
    ['ann', ['devs', 'system:authenticated'], '2'],
  );
});

test('approving and signing require the permission for the signer in addition to that for the request', async () => {
  const { name } = await ask({ subject: { commonName: 'ann' } });
  const { body } = await call<SigningRequest>('GET', `${REQUESTS}/${name}`, 'approver');
  const conditions = [{ type: 'Approved', status: 'True', reason: 'Me', message: 'me' }];
  const approval = await call('PUT', `${REQUESTS}/${name}/approval`, 'approver', { ...body, status: { conditions } });
  assert.equal(approval.status, 403);
  assert.match(approval.body.message, new RegExp(`user not permitted to approve requests with signerName "${CLIENT}"`));
  const certificate = Buffer.from(plane.ca).toString('base64');
  const signing = await call('PUT', `${REQUESTS}/${name}/status`, 'approver', { ...body, status: { certificate } });
  assert.equal(signing.status, 403);
  assert.match(signing.body.message, new RegExp(`user not permitted to sign requests with signerName "${CLIENT}"`));
});

test('a node cannot request a certificate of another node, and its own one is approved automatically', async () => {
  const usages = ['client auth', 'digital signature'];
  const other = { ...NODE, commonName: 'system:node:b' };
  const theirs = await ask({ subject: other }, { signerName: NODE_CLIENT, usages, who: 'node' });
  assert.equal(theirs.status, 403, theirs.body.message);
  const { name } = await ask({ subject: NODE }, { signerName: NODE_CLIENT, usages, who: 'node' });
  await until(
    'the certificate of the node',
    async () => (await call<SigningRequest>('GET', `${REQUESTS}/${name}`, 'admin')).body.status.certificate,
  );
});
