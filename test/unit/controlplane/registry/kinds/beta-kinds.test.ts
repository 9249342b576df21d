/** Kinds that are off unless `--runtime-config` enables them: what they refuse, and what is immutable. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { certificatePem, createCertificate } from '../../../../../api/pki/certificate.ts';
import { createCsr } from '../../../../../api/pki/certificate-request.ts';
import { readPem } from '../../../../../api/pki/pem.ts';
import { generateKey } from '../../../../../api/pki/signing.ts';
import { certificateKinds } from '../../../../../controlplane/registry/kinds/certificates/certificates.ts';
import { coordinationKinds } from '../../../../../controlplane/registry/kinds/coordination/coordination.ts';
import {
  compareVersions,
  parseVersion,
} from '../../../../../controlplane/registry/kinds/coordination/semantic-version.ts';
import { storageMigrationKinds } from '../../../../../controlplane/registry/kinds/storagemigration/storage-migrations.ts';
import { deviceTaintRuleColumns } from '../../../../../controlplane/registry/kinds/resource/columns.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { KindRow, Strategy } from '../../../../../controlplane/registry/strategy.ts';
import { rulesOf, shown, strategyOf } from './strategy-fixture.ts';

const bundles = rulesOf(certificateKinds, 'certificates.k8s.io', 'clustertrustbundles');
const podRequests = rulesOf(certificateKinds, 'certificates.k8s.io', 'podcertificaterequests');
const candidates = rulesOf(coordinationKinds, 'coordination.k8s.io', 'leasecandidates');
const migrations = rulesOf(storageMigrationKinds, 'storagemigration.k8s.io', 'storageversionmigrations');

/** Returns the errors of an update of the status. */
function statusErrors(strategy: Strategy, old: object, now: object): readonly string[] {
  const whole = (status: object) => ({ metadata: { name: 'x' }, spec: {}, status });
  const context = { nowMs: 0 } as Parameters<NonNullable<Strategy['prepareForCreate']>>[1];
  const object = whole(structuredClone(now));
  strategy.status?.prepareForUpdate?.(object, whole(old), context);
  return shown(strategy.status?.validateUpdate?.(object, whole(old), context));
}

const condition = (type: string, status = 'True', reason = 'Because'): object => ({
  type,
  status,
  reason,
  message: '',
  lastTransitionTime: '2024-01-01T00:00:00Z',
});

async function authority(isCa = true): Promise<string> {
  const keys = await generateKey('ecdsa');
  const raw = createCertificate(
    {
      subject: { commonName: 'authority' },
      publicKey: keys.publicKey,
      notBeforeMs: Date.parse('2024-01-01'),
      notAfterMs: Date.parse('2034-01-01'),
      basicConstraints: { isCa },
    },
    { privateKey: keys.privateKey },
  );
  return certificatePem(raw);
}

test('a trust bundle is named after its signer', async () => {
  const trustBundle = await authority();
  const errorsOf = (name: string, signerName?: string): readonly string[] =>
    bundles.create({ metadata: { name }, spec: { trustBundle, ...(signerName === undefined ? {} : { signerName }) } })
      .errors;
  assert.deepEqual(errorsOf('plain'), []);
  assert.deepEqual(errorsOf('example.com:signer:a', 'example.com/signer'), []);
  assert.deepEqual(errorsOf('a:b'), [
    'metadata.name: Invalid value: "a:b": ClusterTrustBundle without signer name must not have ":" in its name',
  ]);
  assert.deepEqual(errorsOf('plain', 'example.com/signer'), [
    'metadata.name: Invalid value: "plain": ClusterTrustBundle for signerName example.com/signer must be named with prefix example.com:signer:',
  ]);
});

test('a trust bundle contains CAs, each once, and is read again only when it changes', async () => {
  const [one, two, leaf] = [await authority(), await authority(), await authority(false)];
  const errorsOf = (trustBundle: string): readonly string[] => bundles.create({ spec: { trustBundle } }).errors;
  const refused = (text: string): string => `spec.trustBundle: Invalid value: "<value omitted>": ${text}`;
  assert.deepEqual(errorsOf(`garbage\n${one}between\n${two}`), []);
  assert.deepEqual(errorsOf(''), [refused('at least one trust anchor must be provided')]);
  assert.deepEqual(errorsOf(one + two + one), [refused('duplicate trust anchor (indices [0 2])')]);
  assert.deepEqual(errorsOf(one + leaf), [refused('entry 1 does not have the CA bit set')]);
  const key = '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n';
  assert.deepEqual(errorsOf(one + key), [refused('entry 1 has bad block type: PRIVATE KEY')]);
  const broken = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
  assert.deepEqual(errorsOf(broken), [refused('entry 0 does not parse as X.509')]);
  assert.deepEqual(bundles.update({ spec: { trustBundle: broken } }, { spec: { trustBundle: broken } }).errors, []);
});

test('a lease candidate names versions that can be compared', () => {
  const spec = {
    leaseName: 'l',
    binaryVersion: '1.36.0',
    emulationVersion: '1.35.0',
    strategy: 'OldestEmulationVersion',
  };
  const errorsOf = (change: object): readonly string[] => candidates.create({ spec: { ...spec, ...change } }).errors;
  assert.deepEqual(errorsOf({}), []);
  assert.deepEqual(errorsOf({ strategy: 'example.com/own', emulationVersion: undefined }), []);
  assert.deepEqual(errorsOf({ leaseName: '' }), ['spec.leaseName: Required value']);
  assert.deepEqual(errorsOf({ binaryVersion: 'v1' }), [
    'spec.binaryVersion: Invalid value: "v1": must be a valid semantic version',
    'spec.binaryVersion: Invalid value: "v1": must be greater than or equal to `emulationVersion`',
  ]);
  assert.deepEqual(errorsOf({ emulationVersion: '1.36.1' }), [
    'spec.binaryVersion: Invalid value: "1.36.0": must be greater than or equal to `emulationVersion`',
  ]);
  assert.deepEqual(errorsOf({ emulationVersion: undefined }), [
    "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'",
  ]);
  assert.match(errorsOf({ strategy: 'Newest' }).join(), /spec\.strategy\.strategy: Unsupported value: "Newest"/);
  assert.deepEqual(candidates.update({ spec }, { spec: { ...spec, leaseName: 'm' } }).errors, [
    'spec.leaseName: Invalid value: "m": field is immutable',
  ]);
});

test('versions are in the order of semver.org', () => {
  const ordered = ['1.0.0-1', '1.0.0-alpha', '1.0.0-alpha.1', '1.0.0-alpha.beta', '1.0.0-rc.2', '1.0.0-rc.11', '1.0.0'];
  const versions = [...ordered, '1.0.1', '1.2.0', '1.10.0'].map((text) => parseVersion(text));
  for (const [index, version] of versions.entries()) {
    assert.ok(version);
    const next = versions[index + 1];
    if (next !== undefined) assert.ok(compareVersions(version, next) < 0, String(index));
    assert.equal(compareVersions(version, version), 0);
  }
  for (const text of ['', '1', '1.2', 'v1.2.3', '01.2.3', '1.2.3-', '1.2.3-01'])
    assert.equal(parseVersion(text), undefined);
});

test('a migration names a resource for good, and ends once', () => {
  assert.deepEqual(migrations.create({ spec: { resource: { group: 'apps' } } }).errors, [
    'spec.resource.resource: Required value: resource is required to be set',
  ]);
  const spec = { resource: { group: 'apps', resource: 'deployments' } };
  assert.deepEqual(migrations.create({ spec, status: { resourceVersion: '1' } }).object['status'], undefined);
  assert.deepEqual(migrations.update({ spec }, { spec: { resource: { group: '', resource: 'deployments' } } }).errors, [
    'spec: Invalid value: {"Resource":{"group":"","resource":"deployments"}}: field is immutable',
  ]);
  for (const resource of [
    { group: 'Apps', resource: 'deployments' },
    { group: 'apps', resource: 'Deployments' },
  ])
    assert.equal(migrations.create({ spec: { resource } }).errors.length, 1);
  const strategy = strategyOf(storageMigrationKinds, 'storageversionmigrations');
  const conditions = (...types: string[]): object => ({ conditions: types.map((type) => condition(type)) });
  assert.deepEqual(statusErrors(strategy, {}, { resourceVersion: '12', ...conditions('Running') }), []);
  assert.match(statusErrors(strategy, {}, { resourceVersion: 'x' }).join(), /resource version is not well formed: x/);
  assert.match(statusErrors(strategy, { resourceVersion: '1' }, { resourceVersion: '2' }).join(), /field is immutable/);
  assert.match(statusErrors(strategy, {}, conditions('Succeeded', 'Failed')).join(), /Both success and failed/);
  assert.deepEqual(statusErrors(strategy, {}, conditions('Succeeded', 'Running')), []);
  assert.match(statusErrors(strategy, conditions('Failed'), {}).join(), /Failed condition cannot be set to false/);
});

test('a pod certificate request does not change, and ends once', async () => {
  const [stub] = readPem(createCsr({ subject: {} }, await generateKey('ecdsa')));
  const spec = {
    signerName: 'example.com/signer',
    podName: 'p',
    podUID: 'u1',
    serviceAccountName: 'default',
    serviceAccountUID: 'u2',
    nodeName: 'n',
    nodeUID: 'u3',
    maxExpirationSeconds: 86_400,
    stubPKCS10Request: stub?.der.toString('base64'),
  };
  const errorsOf = (change: object): readonly string[] => podRequests.create({ spec: { ...spec, ...change } }).errors;
  assert.deepEqual(errorsOf({}), []);
  const annotated = (...keys: string[]): readonly string[] =>
    errorsOf({ unverifiedUserAnnotations: Object.fromEntries(keys.map((key) => [key, 'v'])) });
  assert.deepEqual(annotated('Example.com/Key'), []);
  assert.deepEqual(annotated('', 'Key'), [
    'spec.unverifiedUserAnnotations: Required value',
    'spec.unverifiedUserAnnotations: Invalid value: "key": must be a domain-prefixed key (such as "acme.io/foo")',
  ]);
  assert.equal(annotated('a b/c').length, 1);
  assert.match(
    errorsOf({ unverifiedUserAnnotations: { 'example.com/key': 'x'.repeat(256 * 1024) } }).join(),
    /Too long/,
  );
  assert.deepEqual(errorsOf({ podUID: '' }), ['spec.podUID: Invalid value: "": must not be empty']);
  assert.deepEqual(errorsOf({ maxExpirationSeconds: 60 }), [
    'spec.maxExpirationSeconds: Invalid value: 60: must be in the range [3600, 7862400]',
  ]);
  assert.deepEqual(errorsOf({ signerName: 'kubernetes.io/own', maxExpirationSeconds: 90_000 }), [
    'spec.maxExpirationSeconds: Invalid value: 90000: must be in the range [3600, 86400]',
  ]);
  assert.deepEqual(podRequests.create({ spec: { ...spec, nodeUID: 'é'.repeat(65) } }).errors, [
    'spec.nodeUID: Too long: may not be more than 128 bytes',
  ]);
  assert.match(podRequests.update({ spec }, { spec: { ...spec, podName: 'q' } }).errors.join(), /field is immutable/);
  const strategy = strategyOf(certificateKinds, 'podcertificaterequests');
  const denied = { conditions: [condition('Denied')] };
  assert.deepEqual(statusErrors(strategy, {}, denied), []);
  assert.match(statusErrors(strategy, {}, { conditions: [condition('Other')] }).join(), /Unsupported value: "Other"/);
  assert.match(statusErrors(strategy, {}, { conditions: [condition('Denied', 'False')] }).join(), /"False"/);
  assert.match(statusErrors(strategy, denied, { conditions: [condition('Issued')] }).join(), /immutable after/);
  assert.match(statusErrors(strategy, {}, { ...denied, certificateChain: 'x' }).join(), /must be empty when denying/);
});

test('tables of these kinds have the columns of kube-apiserver', () => {
  const cellsOf = (rows: readonly KindRow[], resource: string, object: object): readonly unknown[] => {
    const { columns } = strategyOf(rows, resource);
    const cells = columns?.cells({ metadata: { name: 'x' }, ...object } as unknown as KubeObject) ?? [];
    assert.equal(cells.length, columns?.columns.length, resource);
    return cells;
  };
  const unknown = '<unknown>';
  assert.deepEqual(
    cellsOf(coordinationKinds, 'leasecandidates', {
      spec: { leaseName: 'l', binaryVersion: '1.2.3', emulationVersion: '1.2.0' },
    }),
    ['x', 'l', '1.2.3', '1.2.0', unknown],
  );
  assert.deepEqual(cellsOf(certificateKinds, 'clustertrustbundles', { spec: {} }), ['x', '<none>']);
  assert.deepEqual(
    cellsOf(certificateKinds, 'podcertificaterequests', {
      spec: { podName: 'p', serviceAccountName: 's', nodeName: 'n', signerName: 'a.b/c' },
      status: { conditions: [condition('Denied')] },
    }),
    ['x', 'p', 's', 'n', 'a.b/c', 'Denied', '<none>'],
  );
  const resource = { group: 'apps', resource: 'deployments' };
  const status = { conditions: [condition('Running', 'False'), condition('Succeeded')] };
  assert.deepEqual(cellsOf(storageMigrationKinds, 'storageversionmigrations', { spec: { resource }, status }), [
    'x',
    'deployments.apps',
    'Succeeded',
  ]);
  assert.deepEqual(deviceTaintRuleColumns.cells({ metadata: { name: 'x' } } as KubeObject), [
    'x',
    '',
    '',
    '',
    '',
    unknown,
  ]);
});
