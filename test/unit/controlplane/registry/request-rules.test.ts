/** Tests responses to requests apart from validation: warnings, selectors, and patches without a kind. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import { openFixture, type Fixture } from './registry-fixture.ts';

let fixture: Fixture;
before(async () => {
  fixture = await openFixture();
});
after(() => fixture.close());

const configMap = (name: string): object => ({ metadata: { name }, data: { k: 'v' } });

test('a DELETE of a job that does not say what becomes of its pods is warned of', async () => {
  const template = { spec: { restartPolicy: 'Never', containers: [{ name: 'c', image: 'i' }] } };
  const warningsOf = async (options: object): Promise<readonly string[]> => {
    await fixture.create('batch/v1/jobs', { metadata: { name: 'j' }, spec: { template } });
    fixture.warnings.length = 0;
    await fixture.delete('batch/v1/jobs', 'j', options);
    return [...fixture.warnings];
  };
  assert.deepEqual(await warningsOf({ propagationPolicy: 'Background' }), []);
  const [text] = await warningsOf({});
  assert.match(text ?? '', /^child pods are preserved by default when jobs are deleted; /);
});

test('replica sets cannot be selected by their number of replicas', async () => {
  await assert.rejects(fixture.list('apps/v1/replicasets', { fields: 'status.replicas=0' }), {
    code: 400,
    message: '"status.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"',
  });
  await fixture.list('v1/replicationcontrollers', { fields: 'status.replicas=0' });
});

test('objects cannot be selected by fields that every JavaScript object inherits', async () => {
  for (const field of ['toString', 'constructor', '__proto__'])
    await assert.rejects(fixture.list('v1/pods', { fields: `${field}=x` }), {
      code: 400,
      message: `field label not supported: ${field}`,
    });
});

test('a patch may take the kind away, as the path implies it', async () => {
  await fixture.create('v1/configmaps', configMap('patched'));
  const body = { kind: null, data: { z: '1' } };
  const patched = await fixture.patch('v1/configmaps', 'patched', { type: 'merge', body, duplicates: [] });
  assert.deepEqual(patched['data'], { k: 'v', z: '1' });
  assert.equal(patched.kind, 'ConfigMap');
});

test('a patch may not take the version away or replace kind and version by values that are none', async () => {
  await fixture.create('v1/configmaps', configMap('versioned'));
  const refusalOf = async (body: object): Promise<string> => {
    const patching = fixture.patch('v1/configmaps', 'versioned', { type: 'merge', body, duplicates: [] });
    const error: unknown = await patching.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof Error);
    return error.message;
  };
  fixture.warnings.length = 0;
  assert.match(
    await refusalOf({ apiVersion: null }),
    /^the name of the object \(versioned based on URL\) was undeterminable/,
  );
  assert.deepEqual(fixture.warnings, ['unknown field "data"', 'unknown field "metadata"']);
  const fault = (type: string, name: string): string =>
    `couldn't get version/kind; json parse error: json: cannot unmarshal ${type} into Go struct field .${name} of type string`;
  const ends = async (body: object, end: string): Promise<void> => {
    const message = await refusalOf(body);
    assert.ok(message.endsWith(end), message);
  };
  await ends({ kind: 5, apiVersion: [] }, fault('array', 'apiVersion'));
  await ends({ kind: {} }, fault('object', 'kind'));
  await ends({ apiVersion: 'a/b/c' }, ': unexpected GroupVersion string: a/b/c');
  const scheme = 'in scheme "pkg/api/legacyscheme/scheme.go:30"';
  await ends({ apiVersion: 'x' }, `: no kind "ConfigMap" is registered for version "x" ${scheme}`);
});

test('a limit range without a name gets a UUID as its name', async () => {
  const made = await fixture.create('v1/limitranges', { metadata: {}, spec: { limits: [] } });
  assert.match(made.metadata.name ?? '', /^[0-9a-f]{8}-[0-9a-f]{4}-4/);
});

test('an update lists an error of the metadata once for each time that kube-apiserver validates it', async () => {
  const causesOf = async (path: string, object: object): Promise<number> => {
    const { metadata, ...rest } = (await fixture.create(path, object)) as { metadata: object };
    const changed = { ...rest, metadata: { ...metadata, labels: { 'bad key': 'x' } } };
    const error: unknown = await fixture.update(path, changed).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    assert.ok(isStatusError(error, 'Invalid'));
    const causes = error.status.details?.causes ?? [];
    assert.ok(causes.every(({ field }) => field === 'metadata.labels'));
    return causes.length;
  };
  assert.equal(await causesOf('v1/configmaps', configMap('labelled')), 4);
  assert.equal(await causesOf('v1/limitranges', { metadata: { name: 'l' }, spec: { limits: [] } }), 3);
  assert.equal(await causesOf('v1/resourcequotas', { metadata: { name: 'q' }, spec: {} }), 3);
  assert.equal(await causesOf('v1/services', { metadata: { name: 'x' }, spec: { ports: [{ port: 80 }] } }), 3);
  const budget = { metadata: { name: 'Any_Name' }, spec: { selector: {}, minAvailable: 1 } };
  assert.equal(await causesOf('policy/v1/poddisruptionbudgets', budget), 2);
});

test('finalizers of webhook configurations need no domain, others do', async () => {
  const metadata = { name: 'f', finalizers: ['x'] };
  await fixture.create('admissionregistration.k8s.io/v1/validatingwebhookconfigurations', { metadata }, '');
  await assert.rejects(fixture.create('v1/configmaps', { metadata }), { code: 422 });
});

test('a namespace whose prefix of a generated name is wrong cannot be updated', async () => {
  const made = await fixture.create('v1/namespaces', { metadata: { name: 'prefixed' } }, '');
  const metadata = { ...made.metadata, generateName: 'Bad_' };
  await assert.rejects(
    fixture.update('v1/namespaces', { ...made, metadata }, ''),
    /metadata\.generateName: Invalid value/,
  );
});

test('required references that are absent are null', async () => {
  const spec = { capacity: { storage: '1Gi' }, accessModes: ['ReadWriteOnce'] };
  const volume = { metadata: { name: 'file' }, spec: { ...spec, azureFile: { secretName: 's', shareName: 'h' } } };
  const made = await fixture.create('v1/persistentvolumes', volume, '');
  assert.deepEqual((made['spec'] as Record<string, unknown>)['azureFile'], {
    secretName: 's',
    shareName: 'h',
    secretNamespace: null,
  });
});

test('a claim keeps a data source that its reference contradicts, and is refused', async () => {
  const spec = { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } };
  const sources = {
    dataSource: { kind: 'Odd', name: 'a' },
    dataSourceRef: { kind: 'PersistentVolumeClaim', name: 'a' },
  };
  const claim = { metadata: { name: 'c' }, spec: { ...spec, ...sources } };
  await assert.rejects(fixture.create('v1/persistentvolumeclaims', claim), /spec\.dataSource: Invalid value: "Odd"/);
});

test('a service whose one address changes while the list of addresses is absent is refused at that list', async () => {
  const made = await fixture.create('v1/services', { metadata: { name: 's' }, spec: { ports: [{ port: 80 }] } });
  const { clusterIPs: _, ...spec } = made['spec'] as Record<string, unknown>;
  await assert.rejects(fixture.update('v1/services', { ...made, spec: { ...spec, clusterIP: '10.96.9.9' } }), {
    code: 422,
    message: 'Service "s" is invalid: spec.clusterIPs[0]: Invalid value: ["10.96.9.9"]: may not change once set',
  });
});
