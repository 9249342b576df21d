/** CA bundles of conversion webhooks: a definition with an invalid bundle is not served. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { certificatePem, createCertificate } from '../../../../../../api/pki/certificate.ts';
import { writePem } from '../../../../../../api/pki/pem.ts';
import { generateKey } from '../../../../../../api/pki/signing.ts';
import { namedStatus, takenBy } from '../../../../../../controlplane/registry/custom-resources/accepted-names.ts';
import { validateCaBundle } from '../../../../../../controlplane/registry/kinds/apiextensions/ca-bundle.ts';
import type {
  Definition,
  DefinitionStatus,
} from '../../../../../../controlplane/registry/kinds/apiextensions/definition.ts';

const NOW = Date.parse('2026-06-01T00:00:00Z');

async function authorityPem(): Promise<string> {
  const { publicKey, privateKey } = await generateKey('ecdsa');
  const template = {
    subject: { commonName: 'authority' },
    publicKey,
    notBeforeMs: NOW,
    notAfterMs: NOW + 1000,
    keyUsages: ['cert sign'],
    basicConstraints: { isCa: true },
  } as const;
  return certificatePem(createCertificate(template, { privateKey }));
}

function definitionWith(pem: string | undefined, status?: DefinitionStatus): Definition {
  const caBundle = pem === undefined ? {} : { caBundle: Buffer.from(pem).toString('base64') };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'things.example.com' },
    spec: {
      group: 'example.com',
      scope: 'Namespaced',
      names: { plural: 'things', singular: 'thing', kind: 'Thing', listKind: 'ThingList' },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }],
      conversion: {
        strategy: 'Webhook',
        webhook: { conversionReviewVersions: ['v1'], clientConfig: { url: 'https://x.example.com/', ...caBundle } },
      },
    },
    ...(status === undefined ? {} : { status }),
  };
}

function established(definition: Definition): (string | undefined)[] {
  const { conditions } = namedStatus(definition, takenBy([]), NOW);
  const condition = conditions?.find(({ type }) => type === 'Established');
  return [condition?.status, condition?.reason, condition?.message];
}

const accepted = 'the initial names have been accepted';
const FIRST = ['False', 'Installing', accepted];
const YES = ['True', 'InitialNamesAccepted', accepted];

test('a definition is established once the bundle of its webhook can be read', async () => {
  const refused = ['False', 'InvalidCABundle', 'The conversion webhook CABundle is invalid'];
  assert.deepEqual(established(definitionWith('\n')), refused);
  assert.deepEqual(established(definitionWith(writePem('CERTIFICATE', Buffer.from('none')))), refused);
  assert.deepEqual(established(definitionWith(undefined)), FIRST);
  const pem = await authorityPem();
  assert.deepEqual(established(definitionWith(pem)), FIRST);
  const installing = namedStatus(definitionWith(pem), takenBy([]), NOW);
  assert.deepEqual(established(definitionWith(pem, installing)), YES);
  // A refused definition is accepted when its bundle is corrected.
  const status = namedStatus(definitionWith('\n'), takenBy([]), NOW);
  assert.deepEqual(established(definitionWith(pem, status)), FIRST);
});

test('a definition that is served keeps a bundle that can be read', async () => {
  const pem = await authorityPem();
  const installing = namedStatus(definitionWith(pem), takenBy([]), NOW);
  const served = (text: string | undefined): Definition =>
    definitionWith(text, namedStatus(definitionWith(pem, installing), takenBy([]), NOW));
  const errors = (text: string, old: Definition): string[] => validateCaBundle(definitionWith(text), old).map(String);
  const at = 'spec.conversion.webhookClientConfig.caBundle: Invalid value: ';
  const why = 'unable to load root certificates: ';
  assert.deepEqual(errors('\n', served(pem)), [`${at}"Cg==": ${why}unable to parse bytes as PEM block`]);
  const key = writePem('PRIVATE KEY', Buffer.from('none'));
  const shown = Buffer.from(key).toString('base64');
  assert.deepEqual(errors(key, served(undefined)), [`${at}"${shown}": ${why}no valid certificate authority data seen`]);
  assert.deepEqual(errors(`${key}${pem}`, served(pem)), []);
  // A bundle that was already invalid, or is not served, may stay unchanged.
  assert.deepEqual(errors('\n', served('\n')), []);
  assert.deepEqual(errors('\n', definitionWith(pem)), []);
});
