/** Tests admission webhooks for another version of a custom resource than the written one, with a real conversion webhook. */
import assert from 'node:assert/strict';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { certificatePem, createCertificate, parseCertificate } from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { startControlPlane } from '../../controlplane/main.ts';

const DAY = 86_400_000;
const GROUP = 'shop.example.com';

interface Thing {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: object;
  readonly spec: Readonly<Record<string, string>>;
}

async function servingIdentity(): Promise<{ readonly ca: string; readonly cert: string; readonly key: string }> {
  const [authority, server] = await Promise.all([generateKey('ecdsa'), generateKey('ecdsa')]);
  const times = { notBeforeMs: Date.now() - DAY, notAfterMs: Date.now() + DAY };
  const root = createCertificate(
    {
      subject: { commonName: 'webhooks' },
      publicKey: authority.publicKey,
      ...times,
      keyUsages: ['cert sign'],
      basicConstraints: { isCa: true },
    },
    { privateKey: authority.privateKey },
  );
  const leaf = createCertificate(
    {
      subject: { commonName: 'webhook' },
      publicKey: server.publicKey,
      ...times,
      extendedKeyUsages: ['server auth'],
      names: { ip: ['127.0.0.1'] },
    },
    { privateKey: authority.privateKey, certificate: parseCertificate(root) },
  );
  return { ca: certificatePem(root), cert: certificatePem(leaf), key: privateKeyPem(server.privateKey) };
}

/** Converts a thing: the field is `size` in v1 and `width` in v2. */
function convert(thing: Thing, apiVersion: string): Thing {
  if (thing.apiVersion === apiVersion) return thing;
  const { size, width, ...rest } = thing.spec;
  const spec = apiVersion.endsWith('/v1') ? { ...rest, size: width ?? '' } : { ...rest, width: size ?? '' };
  return { ...thing, apiVersion, spec };
}

test('a webhook for one version validates and mutates objects that are written in another, which are converted for it', async () => {
  const identity = await servingIdentity();
  const seen: { readonly path: string; readonly kind: unknown; readonly object: Thing }[] = [];
  const server = createServer(identity, (message, response) => {
    let text = '';
    message.on('data', (chunk: Buffer) => (text += chunk.toString()));
    message.on('end', () => {
      const { request, ...review } = JSON.parse(text) as { request: Record<string, never> };
      const uid: unknown = request['uid'];
      const path = new URL(message.url ?? '', 'https://webhook').pathname;
      let answer: object = { uid, allowed: true };
      if (path === '/convert') {
        const { objects, desiredAPIVersion } = request as unknown as { objects: Thing[]; desiredAPIVersion: string };
        const convertedObjects = objects.map((one) => convert(one, desiredAPIVersion));
        answer = { uid, result: { status: 'Success' }, convertedObjects };
      } else {
        seen.push({ path, kind: request['kind'], object: request['object'] as unknown as Thing });
        if (path === '/mutate') {
          const patch = Buffer.from('[{"op":"replace","path":"/spec/width","value":"9"}]').toString('base64');
          answer = { uid, allowed: true, patchType: 'JSONPatch', patch };
        }
      }
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ ...review, response: answer }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const base = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const clientConfig = (path: string) => ({
    url: `${base}${path}`,
    caBundle: Buffer.from(identity.ca).toString('base64'),
  });
  const plane = await startControlPlane({ memory: true, flags: { controllers: ['-*'], scheduler: false } });
  const create = (group: string, version: string, resource: string, object: object): Promise<KubeObject> => {
    const kind = 'kind' in object ? String(object.kind) : '';
    return plane.client.create({ group, version, resource, kind, namespaced: false }, '', {
      apiVersion: `${group}/${version}`,
      ...object,
    } as unknown as KubeObject);
  };
  try {
    const schema = (member: string, color: object = {}) => ({
      openAPIV3Schema: {
        type: 'object',
        properties: {
          spec: { type: 'object', properties: { [member]: { type: 'string' }, color: { type: 'string', ...color } } },
        },
      },
    });
    await create('apiextensions.k8s.io', 'v1', 'customresourcedefinitions', {
      kind: 'CustomResourceDefinition',
      metadata: { name: `things.${GROUP}` },
      spec: {
        group: GROUP,
        scope: 'Cluster',
        names: { plural: 'things', kind: 'Thing' },
        versions: [
          { name: 'v1', served: true, storage: true, schema: schema('size') },
          { name: 'v2', served: true, storage: false, schema: schema('width', { maxLength: 3 }) },
        ],
        conversion: {
          strategy: 'Webhook',
          webhook: { conversionReviewVersions: ['v1'], clientConfig: clientConfig('/convert') },
        },
      },
    });
    const webhook = (name: string, apiVersions: string[]) => ({
      name: `${name}.${GROUP}`,
      clientConfig: clientConfig(`/${name}`),
      sideEffects: 'None',
      admissionReviewVersions: ['v1'],
      matchPolicy: 'Equivalent',
      rules: [{ apiGroups: [GROUP], apiVersions, resources: ['things'], operations: ['CREATE'] }],
    });
    const registration = 'admissionregistration.k8s.io';
    await create(registration, 'v1', 'mutatingwebhookconfigurations', {
      kind: 'MutatingWebhookConfiguration',
      metadata: { name: 'm' },
      webhooks: [webhook('mutate', ['v2'])],
    });
    await create(registration, 'v1', 'validatingwebhookconfigurations', {
      kind: 'ValidatingWebhookConfiguration',
      metadata: { name: 'v' },
      webhooks: [webhook('validate', ['v1'])],
    });
    const createThing = (version: string, spec: object): Promise<KubeObject> =>
      create(GROUP, version, 'things', { kind: 'Thing', metadata: { generateName: 'thing-' }, spec });
    const deadline = Date.now() + 60_000;
    // The definition and the webhooks take effect shortly after they are written.
    while (new Set(seen.map(({ path }) => path)).size < 2) {
      assert.ok(Date.now() < deadline, 'the webhooks are never asked');
      await createThing('v1', { size: '1' }).catch((error: unknown) => {
        if (!isNotFound(error)) throw error;
      });
    }
    for (const [version, spec, answer] of [
      ['v1', { size: '1' }, { size: '9' }],
      ['v2', { width: '1' }, { width: '9' }],
    ] as const) {
      seen.length = 0;
      assert.deepEqual((await createThing(version, spec))['spec'], answer, version);
      assert.deepEqual(
        seen.map(({ path, kind, object }) => ({ path, kind, apiVersion: object.apiVersion, spec: object.spec })),
        [
          {
            path: '/mutate',
            kind: { group: GROUP, version: 'v2', kind: 'Thing' },
            apiVersion: `${GROUP}/v2`,
            spec: { width: '1' },
          },
          {
            path: '/validate',
            kind: { group: GROUP, version: 'v1', kind: 'Thing' },
            apiVersion: `${GROUP}/v1`,
            spec: { size: '9' },
          },
        ],
        version,
      );
    }
    // Each version validates objects by its own schema.
    await createThing('v1', { size: '1', color: 'green' });
    await assert.rejects(createThing('v2', { width: '1', color: 'green' }), /spec\.color: Too long/);
  } finally {
    await plane.close();
    server.closeAllConnections();
    server.close();
  }
});
