/**
 * Tests misbehaving admission webhooks with a running server and real TLS. The failure policy applies to every fault, no
 * webhook blocks or harms the server, and none makes it connect to an address that the webhook's author could not reach.
 */
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:https';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import {
  configMaps,
  endpointSlices,
  namespaces,
  pods,
  services,
  validatingWebhookConfigurations,
  mutatingWebhookConfigurations,
} from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { Pod } from '../../api/kinds/kinds.ts';
import { isStatusError, type StatusError } from '../../api/meta/status-error.ts';
import { certificatePem, createCertificate, parseCertificate } from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';

const DAY = 86_400_000;
let plane: ControlPlane;
let server: Server;
let ca = '';
let identity: { cert: string; key: string };
/** The requests to the path that only a redirect leads to. */
const followed: string[] = [];

type Behaviour = (review: Review, response: ServerResponse, message: IncomingMessage) => void;
interface Review {
  readonly apiVersion: string;
  readonly kind: string;
  readonly request: { readonly uid: string; readonly name?: string; readonly object?: KubeObject };
}

const answer = (response: ServerResponse, review: Review, more: object): void => {
  const { apiVersion, kind, request } = review;
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ apiVersion, kind, response: { uid: request.uid, allowed: true, ...more } }));
};
const patchOf = (operations: unknown): object => ({
  patchType: 'JSONPatch',
  patch: Buffer.from(typeof operations === 'string' ? operations : JSON.stringify(operations)).toString('base64'),
});

const behaviours: Record<string, Behaviour> = {
  good: (review, response) => answer(response, review, {}),
  hangs: () => undefined,
  drips: (_review, response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    const drip = setInterval(() => response.write(' '), 100);
    response.on('close', () => clearInterval(drip));
  },
  huge: (_review, response) => {
    response.on('error', () => undefined);
    response.end(Buffer.alloc(10 * 1024 * 1024, ' '));
  },
  cut: (_review, response) => {
    response.writeHead(200, { 'content-length': '1000' });
    response.write('{"kind":"Admission', () => response.destroy());
  },
  closed: (_review, _response, message) => void message.socket.destroy(),
  redirects: (_review, response) => response.writeHead(307, { location: '/followed' }).end(),
  followed: (review, response) => {
    followed.push(review.request.uid);
    answer(response, review, {});
  },
  garbage: (_review, response) => response.end('\u0000not json'),
  another: (review, response) => answer(response, { ...review, request: { uid: 'another' } }, {}),
  forbidden: (_review, response) => response.writeHead(403).end(),
  undecodable: (review, response) => answer(response, review, patchOf('{')),
};

async function start(): Promise<void> {
  const authority = await generateKey('ecdsa');
  const window = { notBeforeMs: Date.now() - DAY, notAfterMs: Date.now() + DAY };
  const root = createCertificate(
    {
      subject: { commonName: 'webhooks' },
      publicKey: authority.publicKey,
      ...window,
      keyUsages: ['cert sign'],
      basicConstraints: { isCa: true },
    },
    { privateKey: authority.privateKey },
  );
  ca = certificatePem(root);
  const keys = await generateKey('ecdsa');
  const leaf = createCertificate(
    {
      subject: { commonName: 'webhook' },
      publicKey: keys.publicKey,
      ...window,
      extendedKeyUsages: ['server auth'],
      names: { ip: ['127.0.0.1'] },
    },
    { privateKey: authority.privateKey, certificate: parseCertificate(root) },
  );
  identity = { cert: certificatePem(leaf), key: privateKeyPem(keys.privateKey) };
  server = createServer(identity, (message, response) => {
    let text = '';
    message.on('data', (chunk: Buffer) => (text += chunk.toString()));
    message.on('end', () => {
      const name = new URL(message.url ?? '/', 'https://webhook').pathname.slice(1);
      behaviours[name]?.(JSON.parse(text) as Review, response, message);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
}

before(async () => {
  await start();
  plane = await startControlPlane({ memory: true, flags: { controllers: ['-*'], scheduler: false } });
});

after(async () => {
  await plane.close();
  server.closeAllConnections();
  server.close();
});

const urlOf = (name: string): string => `https://127.0.0.1:${(server.address() as AddressInfo).port}/${name}`;
const caBundle = (): string => Buffer.from(ca).toString('base64');

interface HookOptions {
  readonly clientConfig: object;
  readonly failurePolicy: 'Fail' | 'Ignore';
  readonly kind?: 'Validating' | 'Mutating';
  readonly resources?: readonly string[];
  readonly timeoutSeconds?: number;
}

/** Creates a namespace with one webhook for the objects in it. */
async function inNamespace(name: string, hooks: readonly HookOptions[], use: () => Promise<void>): Promise<void> {
  const selector = { matchLabels: { 'kubernetes.io/metadata.name': name } };
  await plane.client.create(namespaces, '', { apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
  const made: (() => Promise<unknown>)[] = [];
  for (const [index, hook] of hooks.entries()) {
    const kind = hook.kind ?? 'Validating';
    const resource = kind === 'Mutating' ? mutatingWebhookConfigurations : validatingWebhookConfigurations;
    const configuration = {
      apiVersion: 'admissionregistration.k8s.io/v1',
      kind: `${kind}WebhookConfiguration`,
      metadata: { name: `${name}-${index}` },
      webhooks: [
        {
          name: `hook${index}.example.com`,
          clientConfig: hook.clientConfig,
          rules: [
            {
              apiGroups: [''],
              apiVersions: ['v1'],
              operations: ['CREATE'],
              resources: hook.resources ?? ['configmaps'],
            },
          ],
          namespaceSelector: selector,
          failurePolicy: hook.failurePolicy,
          sideEffects: 'None',
          admissionReviewVersions: ['v1'],
          timeoutSeconds: hook.timeoutSeconds ?? 10,
        },
      ],
    };
    await plane.client.create(resource as typeof validatingWebhookConfigurations, '', configuration as never);
    made.push(() => plane.client.delete(resource as typeof validatingWebhookConfigurations, '', `${name}-${index}`));
  }
  try {
    await use();
  } finally {
    for (const remove of made) await remove();
  }
}

const configMap = (namespace: string, name: string) =>
  plane.client.create(configMaps, namespace, { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } });

async function refusal(write: Promise<unknown>): Promise<StatusError> {
  const error: unknown = await write.then(
    () => assert.fail('it was let through'),
    (reason: unknown) => reason,
  );
  assert.ok(isStatusError(error), String(error));
  return error;
}

/** Repeats a write until it is refused, because the server applies a new configuration a moment after it was created. */
async function untilRefused(write: () => Promise<unknown>): Promise<StatusError> {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const error: unknown = await write().then(
      () => undefined,
      (reason: unknown) => reason,
    );
    if (isStatusError(error)) return error;
    assert.ok(error === undefined && Date.now() < deadline, String(error));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const faults: readonly (readonly [string, string, RegExp, number?])[] = [
  ['that hangs', 'hangs', /context deadline exceeded/, 1],
  ['that answers a byte at a time for ever', 'drips', /context deadline exceeded/, 1],
  ['that answers ten megabytes', 'huge', /the answer is larger than \d+ bytes/],
  [
    'that closes in the middle of its answer',
    'cut',
    /failed to call webhook: Post "https:\/\/127.0.0.1:\d+\/cut\?timeout=10s": /,
  ],
  ['that closes the connection', 'closed', /failed to call webhook: Post /],
  ['that redirects', 'redirects', /the server responded with the status code 307/],
  ['that answers with no JSON', 'garbage', /failed to call webhook: yaml: control characters are not allowed$/],
  ['that answers another request', 'another', /expected response.uid=/],
  ['that refuses the server without a word', 'forbidden', /failed to call webhook: $/],
  ['whose path nobody serves', 'nothing?', /context deadline exceeded|could not find/, 1],
];

for (const [what, path, message, timeoutSeconds = 10] of faults) {
  test(`a webhook ${what} stops the request under Fail and not under Ignore`, async () => {
    const clientConfig = { url: urlOf(path.replace('?', '')), caBundle: caBundle() };
    const namespace = `w-${path.replace('?', '')}`;
    await inNamespace(`${namespace}-fail`, [{ clientConfig, failurePolicy: 'Fail', timeoutSeconds }], async () => {
      const error = await untilRefused(() => configMap(`${namespace}-fail`, `a${Math.random().toString(36).slice(2)}`));
      assert.equal(error.code, 500);
      assert.match(error.message, /^Internal error occurred: failed calling webhook "hook0.example.com": /);
      assert.match(error.message, message);
    });
    await inNamespace(`${namespace}-ignore`, [{ clientConfig, failurePolicy: 'Ignore', timeoutSeconds }], async () => {
      assert.equal((await configMap(`${namespace}-ignore`, 'a')).metadata.name, 'a');
    });
  });
}

test('an object that a webhook delayed is not created in a namespace that has begun to terminate', async () => {
  let release: () => void = () => undefined;
  behaviours['held'] = (review, response) => {
    release = () => answer(response, review, {});
  };
  await inNamespace(
    'held',
    [{ clientConfig: { url: urlOf('held'), caBundle: caBundle() }, failurePolicy: 'Fail' }],
    async () => {
      const creations: Promise<unknown>[] = [];
      // The server applies a new configuration a moment after it was created.
      for (let at = 0; at < 2000; at += 1) {
        const creation = configMap('held', `c${at}`);
        creation.catch(() => undefined);
        creations.push(creation);
        const isHeld = await Promise.race([
          creation.then(() => false),
          new Promise<boolean>((resolve) => setTimeout(() => resolve(true), 500)),
        ]);
        if (isHeld) break;
      }
      const held = creations.at(-1) ?? assert.fail();
      await plane.client.delete(namespaces, '', 'held');
      release();
      assert.match((await refusal(held)).message, /because it is being terminated|namespaces "held" not found/);
    },
  );
});

test('no redirect was followed', () => assert.deepEqual(followed, []));

test('a webhook with a certificate of another CA does not receive the object', async () => {
  const other = await generateKey('ecdsa');
  const stranger = createCertificate(
    {
      subject: { commonName: 'stranger' },
      publicKey: other.publicKey,
      notBeforeMs: Date.now() - DAY,
      notAfterMs: Date.now() + DAY,
      keyUsages: ['cert sign'],
      basicConstraints: { isCa: true },
    },
    { privateKey: other.privateKey },
  );
  const bundle = Buffer.from(certificatePem(stranger)).toString('base64');
  const clientConfig = { url: urlOf('followed'), caBundle: bundle };
  await inNamespace('w-stranger', [{ clientConfig, failurePolicy: 'Fail' }], async () => {
    const error = await untilRefused(() => configMap('w-stranger', `a${Math.random().toString(36).slice(2)}`));
    assert.match(error.message, /failed calling webhook/);
  });
  assert.deepEqual(followed, []);
});

const serviceCases: readonly (readonly [string, object | undefined, readonly string[], RegExp])[] = [
  [
    'a service that leads to the metadata address',
    { type: 'ExternalName', externalName: '169.254.169.254' },
    [],
    /address not allowed/,
  ],
  [
    'a service that leads to this host by its name',
    { type: 'ExternalName', externalName: 'localhost' },
    [],
    /address not allowed/,
  ],
  [
    'a service that is not there',
    undefined,
    [],
    /Post "https:\/\/s.w-service3.svc:443\/\?timeout=10s": service "s" not found/,
  ],
  ['a service without endpoints', { ports: [{ port: 443 }] }, [], /no endpoints available for service "s"/],
];
for (const [index, [what, spec, , message]] of serviceCases.entries()) {
  test(`${what} is not called`, async () => {
    const namespace = `w-service${index + 1}`;
    const clientConfig = { service: { namespace, name: 's' }, caBundle: caBundle() };
    await inNamespace(namespace, [{ clientConfig, failurePolicy: 'Fail' }], async () => {
      if (spec !== undefined)
        await plane.client.create(services, namespace, {
          apiVersion: 'v1',
          kind: 'Service',
          metadata: { name: 's' },
          spec,
        });
      const deadline = Date.now() + 60_000;
      let error = await untilRefused(() => configMap(namespace, `a${Math.random().toString(36).slice(2)}`));
      // The server uses the service a moment after it was created.
      while (!message.test(error.message) && Date.now() < deadline)
        error = await refusal(configMap(namespace, `a${Math.random().toString(36).slice(2)}`));
      assert.match(error.message, message);
    });
  });
}

test('no slice may name an endpoint of the control plane’s own host', async () => {
  for (const address of ['127.0.0.1', '169.254.169.254', '0.0.0.0']) {
    const slice = {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name: 'evil', labels: { 'kubernetes.io/service-name': 's' } },
      addressType: 'IPv4' as const,
      endpoints: [{ addresses: [address] }],
      ports: [{ port: 443 }],
    };
    assert.equal((await refusal(plane.client.create(endpointSlices, 'default', slice))).code, 422, address);
  }
});

test('an invalid patch counts as a failed call, which the failure policy may ignore', async () => {
  const clientConfig = { url: urlOf('undecodable'), caBundle: caBundle() };
  const kind = 'Mutating' as const;
  await inNamespace('w-patch-ignore', [{ clientConfig, kind, failurePolicy: 'Ignore' }], async () => {
    assert.equal((await configMap('w-patch-ignore', 'a')).metadata.name, 'a');
  });
  await inNamespace('w-patch-fail', [{ clientConfig, kind, failurePolicy: 'Fail' }], async () => {
    const error = await untilRefused(() => configMap('w-patch-fail', `a${Math.random().toString(36).slice(2)}`));
    assert.match(error.message, /received undecodable patch in webhook response/);
  });
});

test('fields that a webhook adds get their defaults', async () => {
  const added = { name: 'side', image: 'side:1', ports: [{ containerPort: 80 }] };
  const path = 'adds';
  Object.assign(behaviours, {
    [path]: (review: Review, response: ServerResponse) =>
      answer(response, review, patchOf([{ op: 'add', path: '/spec/containers/-', value: added }])),
  } satisfies Record<string, Behaviour>);
  const clientConfig = { url: urlOf(path), caBundle: caBundle() };
  await inNamespace(
    'w-adds',
    [{ clientConfig, kind: 'Mutating', failurePolicy: 'Fail', resources: ['pods'] }],
    async () => {
      await plane.client.create(
        { ...pods, resource: 'serviceaccounts', kind: 'ServiceAccount' } as typeof pods,
        'w-adds',
        { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default' } },
      );
      const deadline = Date.now() + 60_000;
      let found: { imagePullPolicy?: string; ports?: { protocol?: string }[] } | undefined;
      for (let i = 0; found === undefined && Date.now() < deadline; i++) {
        const { spec } = await plane.client.create(pods, 'w-adds', {
          apiVersion: 'v1',
          kind: 'Pod',
          metadata: { name: `p${i}` },
          spec: { containers: [{ name: 'c', image: 'c:1' }] },
        });
        found = (spec as Pod['spec'])?.containers.find(({ name }) => name === 'side');
      }
      assert.equal(found?.imagePullPolicy, 'IfNotPresent');
      assert.equal(found?.ports?.[0]?.protocol, 'TCP');
    },
  );
});

test('the server still works after all faults', async () => {
  assert.equal((await configMap('default', 'after')).metadata.name, 'after');
});
