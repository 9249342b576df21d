import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { goFieldName } from '../../../../api/schema/go-names.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';

const shown = (typeName: string, value: unknown): string => JSON.stringify(internalForm(typeName, value));

describe('the internal form of a struct', () => {
  it('has Go names and null for absent pointers and lists', () => {
    assert.equal(
      shown('io.k8s.api.core.v1.VolumeNodeAffinity', {
        required: { nodeSelectorTerms: [{ matchExpressions: [{ key: 'k', operator: 'Exists' }] }] },
      }),
      '{"Required":{"NodeSelectorTerms":[{"MatchExpressions":[{"Key":"k","Operator":"Exists","Values":null}],"MatchFields":null}]}}',
    );
  });

  it('has zero values for absent fields that are no pointers', () => {
    assert.equal(
      shown('io.k8s.api.rbac.v1.RoleRef', { kind: 'Role', name: 'r' }),
      '{"APIGroup":"","Kind":"Role","Name":"r"}',
    );
  });

  it('has no empty lists in the types that keep their wire form', () => {
    assert.equal(
      shown('io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector', {
        matchLabels: {},
        matchExpressions: [{ key: 'k', operator: 'Exists', values: [] }],
      }),
      '{"matchExpressions":[{"key":"k","operator":"Exists"}]}',
    );
  });

  it('has a struct for each type that a value of a schema may have', () => {
    const SCHEMA = 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps';
    const form = internalForm(SCHEMA, {
      items: { type: 'string' },
      additionalProperties: false,
      'x-kubernetes-int-or-string': true,
    });
    const { Items, AdditionalProperties, Ref, XIntOrString } = form as Record<string, Record<string, unknown>>;
    assert.match(JSON.stringify(Items), /^\{"Schema":\{.*"Type":"string"/);
    assert.deepEqual(AdditionalProperties, { Allows: false, Schema: null });
    assert.deepEqual([Ref, XIntOrString], [null, true]);
    assert.deepEqual(Object.keys(form ?? {}).slice(0, 6), ['ID', 'Schema', 'Ref', 'Description', 'Type', 'Nullable']);
  });

  it('has the other names that some internal types have', () => {
    const { RBD, AzureDisk, Glusterfs, ScaleIO } = internalForm('io.k8s.api.core.v1.PersistentVolumeSpec', {
      rbd: { monitors: ['m'], image: 'i', pool: 'p', user: 'u' },
      azureDisk: { diskName: 'd', diskURI: 'u' },
      glusterfs: { endpoints: 'e', path: 'p' },
      scaleIO: { sslEnabled: true },
    }) as Record<string, Record<string, unknown>>;
    assert.deepEqual(Object.keys(RBD ?? {}).slice(0, 2), ['CephMonitors', 'RBDImage']);
    assert.equal(RBD?.['RadosUser'], 'u');
    assert.equal(AzureDisk?.['DataDiskURI'], 'u');
    assert.equal(Glusterfs?.['EndpointsName'], 'e');
    assert.equal(ScaleIO?.['SSLEnabled'], true);
  });

  it('lists the version of an owner and the requests of a configuration first, and writes abbreviations in capital letters', () => {
    assert.equal(
      shown('io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference', {
        kind: 'Pod',
        name: 'p',
        uid: 'u',
        apiVersion: 'v1',
      }),
      '{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}',
    );
    assert.equal(
      shown('io.k8s.api.resource.v1.DeviceSelector', { cel: { expression: 'true' } }),
      '{"CEL":{"Expression":"true"}}',
    );
    assert.equal(
      shown('io.k8s.api.resource.v1.DeviceClaimConfiguration', { requests: ['r'] }),
      '{"Requests":["r"],"Opaque":null}',
    );
  });

  it('lists the source of a volume between its capacity and its access modes', () => {
    const names = Object.keys(internalForm('io.k8s.api.core.v1.PersistentVolumeSpec', {}) ?? {});
    assert.deepEqual(names.slice(0, 4), ['Capacity', 'GCEPersistentDisk', 'AWSElasticBlockStore', 'HostPath']);
    assert.deepEqual(names.slice(21, 25), ['StorageOS', 'CSI', 'AccessModes', 'ClaimRef']);
  });

  it('has the members of the metadata of a template beside its spec, and the namespaces of the host in its security context', () => {
    const { labels, ObjectMeta, Spec } = internalForm('io.k8s.api.core.v1.PodTemplateSpec', {
      metadata: { labels: { a: 'b' } },
      spec: { containers: [], hostNetwork: true },
    }) as Record<string, unknown>;
    assert.deepEqual(labels, { a: 'b' });
    assert.equal(ObjectMeta, undefined);
    const { SecurityContext, HostNetwork } = Spec as Record<string, Record<string, unknown>>;
    assert.equal(HostNetwork, undefined);
    assert.deepEqual(Object.entries(SecurityContext ?? {})[0], ['HostNetwork', true]);
  });

  it('keeps the wire form of label selectors', () => {
    assert.equal(
      shown('io.k8s.api.policy.v1.PodDisruptionBudgetSpec', {
        maxUnavailable: '25%',
        minAvailable: 2,
        selector: { matchLabels: { a: 'c' } },
      }),
      '{"MinAvailable":2,"Selector":{"matchLabels":{"a":"c"}},"MaxUnavailable":"25%","UnhealthyPodEvictionPolicy":null}',
    );
  });

  it('lists fields in the order of the Go type', () => {
    const form = internalForm('io.k8s.api.core.v1.SecurityContext', { privileged: true });
    assert.deepEqual(Object.keys(form ?? {}).slice(0, 5), [
      'Capabilities',
      'Privileged',
      'SELinuxOptions',
      'WindowsOptions',
      'RunAsUser',
    ]);
  });
});

describe('the form of a type of apimachinery', () => {
  it('has the JSON names, in the order of the type and with sorted labels', () => {
    const selector = { matchExpressions: [{ operator: 'Exists', key: 'k' }], matchLabels: { b: '1', a: '2' } };
    const form = internalForm('io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector', selector);
    assert.equal(
      JSON.stringify(form),
      '{"matchLabels":{"a":"2","b":"1"},"matchExpressions":[{"key":"k","operator":"Exists"}]}',
    );
  });
});

describe('a Go field name', () => {
  for (const [name, goName] of [
    ['apiGroup', 'APIGroup'],
    ['uid', 'UID'],
    ['cidrs', 'CIDRs'],
    ['fsType', 'FSType'],
    ['hostPath', 'HostPath'],
    ['idle', 'Idle'],
    ['awsElasticBlockStore', 'AWSElasticBlockStore'],
    ['cephfs', 'CephFS'],
    ['iqn', 'IQN'],
    ['gmsaCredentialSpec', 'GMSACredentialSpec'],
    ['chapAuthSession', 'SessionCHAPAuth'],
  ] as const)
    it(`is ${goName} for ${name}`, () => assert.equal(goFieldName(name), goName));
});
