import assert from 'node:assert/strict';
import { test } from 'node:test';
import { coreObjectKinds } from '../../../../../../controlplane/registry/kinds/core/core-objects.ts';
import { limitKinds } from '../../../../../../controlplane/registry/kinds/core/limits.ts';
import { volumeKinds } from '../../../../../../controlplane/registry/kinds/core/persistent-volumes.ts';
import { rulesOf } from '../strategy-fixture.ts';

const quotas = rulesOf(limitKinds, '', 'resourcequotas');
const ranges = rulesOf(limitKinds, '', 'limitranges');
const secrets = rulesOf(coreObjectKinds, '', 'secrets');
const volumes = rulesOf(volumeKinds, '', 'persistentvolumes');
const base64 = (text: string): string => Buffer.from(text).toString('base64');

test('a quota counts what can be counted', () => {
  assert.deepEqual(quotas.create({ spec: { hard: { storage: '1Gi', 'requests.hugepages-2Mi': '4Mi' } } }).errors, [
    'spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota',
  ]);
});

test('scopes of pods do not fit local storage', () => {
  assert.deepEqual(
    quotas.create({ spec: { hard: { 'requests.ephemeral-storage': '1' }, scopes: ['Terminating'] } }).errors,
    ['spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource'],
  );
});

test('selectors of scopes that exclude each other are refused with the other list', () => {
  const matchExpressions = ['BestEffort', 'NotBestEffort'].map((scopeName) => ({ scopeName, operator: 'Exists' }));
  assert.deepEqual(quotas.create({ spec: { hard: { pods: '1' }, scopeSelector: { matchExpressions } } }).errors, [
    'spec.scopeSelector.matchExpressions: Invalid value: null: conflicting scopes',
  ]);
});

test('a limit of a resource that has the name of an inherited member is refused like any other', () => {
  for (const name of ['constructor', '__proto__']) {
    const max = JSON.parse(`{"${name}": "1"}`) as object;
    const { errors } = ranges.create({ spec: { limits: [{ type: 'Pod', max, min: { cpu: '1' } }] } });
    assert.match(errors.join(), /must be a standard resource for containers|name part must consist of/, name);
    assert.doesNotThrow(() => ranges.create({ spec: { limits: [{ type: 'Container', max, min: { cpu: '1' } }] } }));
  }
});

test('a limit is of a known type, and devices are requested as they are limited', () => {
  const { errors } = ranges.create({
    spec: {
      limits: [
        { type: 'Galaxy' },
        { type: 'Container', default: { 'hugepages-2Mi': '4Mi' }, defaultRequest: { 'hugepages-2Mi': '2Mi' } },
      ],
    },
  });
  assert.deepEqual(errors, [
    'spec.limits[0].type: Invalid value: "Galaxy": must be a standard limit type or fully qualified',
    'spec.limits[1].defaultRequest[hugepages-2Mi]: Invalid value: "2Mi": default value 4Mi must equal to defaultRequest value 2Mi in hugepages-2Mi',
  ]);
});

test('secrets of a type have the required keys', () => {
  assert.deepEqual(secrets.create({ type: 'kubernetes.io/ssh-auth', data: { 'ssh-privatekey': '' } }).errors, [
    'data[ssh-privatekey]: Required value',
  ]);
  const data = { '.dockerconfigjson': base64('[]') };
  assert.deepEqual(secrets.create({ type: 'kubernetes.io/dockerconfigjson', data }).errors, [
    'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": json: cannot unmarshal array into Go value of type map[string]interface {}',
  ]);
});

const volume = (source: object): readonly string[] =>
  volumes.create({ spec: { capacity: { storage: '1' }, accessModes: ['ReadWriteOnce'], ...source } }).errors;

test('sources of volumes of the cluster name the namespaces of their secrets', () => {
  assert.deepEqual(volume({ cinder: { volumeID: 'v', secretRef: { name: 's' } } }), [
    'spec.cinder.secretRef.namespace: Required value',
  ]);
  assert.deepEqual(volume({ storageos: { volumeName: 'Bad_V' } }), [
    "spec.storageos.volumeName: Invalid value: \"Bad_V\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
  ]);
  assert.deepEqual(volume({ azureDisk: { diskName: 'd', diskURI: 'x', kind: 'Managed' } }), [
    'spec.azureDisk.diskURI: Unsupported value: "x": supported values: "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"',
  ]);
});

test('attributes of volumes need a driver', () => {
  assert.deepEqual(volume({ hostPath: { path: '/x' }, volumeAttributesClassName: 'gold' }), [
    'spec.csi: Required value: has to be specified when using volumeAttributesClassName',
  ]);
});

test('a changed source is shown as a difference of the internal fields', () => {
  const at = (path: string) => ({
    spec: { capacity: { storage: '1' }, accessModes: ['ReadWriteOnce'], local: { path } },
  });
  const { errors } = volumes.update(at('/dev/sdb'), at('/dev/vdb'));
  assert.equal(
    errors.find((error) => error.startsWith('spec.persistentvolumesource')),
    'spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n' +
      '@@ -19,7 +19,7 @@\n  "PortworxVolume": null,\n  "ScaleIO": null,\n  "Local": {\n' +
      '-  "Path": "/dev/sdb",\n+  "Path": "/dev/vdb",\n   "FSType": null\n  },\n  "StorageOS": null,\n',
  );
});
