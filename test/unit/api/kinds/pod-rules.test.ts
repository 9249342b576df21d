import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applyPodDefaults, applyPodTemplateDefaults } from '../../../../api/kinds/pod-defaults.ts';
import type { Pod, PodSpec, PodStatus, Volume } from '../../../../api/kinds/pod-types.ts';
import { podStatusUpdateErrors, podUpdateErrors } from '../../../../api/kinds/pod-update-validation.ts';
import { podTemplateErrors, validatePod } from '../../../../api/kinds/pod-validation.ts';
import { podWarnings } from '../../../../api/kinds/pod-warnings.ts';

function podOf(spec: PodSpec, annotations?: Record<string, string>): Pod {
  const metadata = { name: 'p', ...(annotations === undefined ? {} : { annotations }) };
  const pod: Pod = { metadata, spec: { containers: [{ name: 'c', image: 'app:1' }], ...spec } };
  applyPodDefaults(pod);
  return pod;
}

const container = (more: object): PodSpec => ({ containers: [{ name: 'c', image: 'app:1', ...more }] });
const volume = (source: Omit<Volume, 'name'>): PodSpec => ({ volumes: [{ name: 'v', ...source }] });
const errorsOf = (spec: PodSpec, annotations?: Record<string, string>): string[] =>
  validatePod(podOf(spec, annotations)).map(String);
const portal = { targetPortal: '10.0.0.1:3260', lun: 0 };
const BAD_FORM = 'must be valid format';

const REFUSED: readonly (readonly [string, PodSpec, readonly string[]])[] = [
  [
    'an initiator of an unknown form',
    volume({ iscsi: { ...portal, iqn: 'abc', initiatorName: 'eui.short' } }),
    [
      `spec.volumes[0].iscsi.iqn: Invalid value: "abc": ${BAD_FORM} starting with iqn, eui, or naa`,
      `spec.volumes[0].iscsi.initiatorname: Invalid value: "eui.short": ${BAD_FORM}`,
    ],
  ],
  [
    'a file above the volume',
    volume({ configMap: { name: 'm', items: [{ key: 'k', path: '..' }] } }),
    [
      `spec.volumes[0].configMap.items[0].path: Invalid value: "..": must not contain '..'`,
      `spec.volumes[0].configMap.items[0].path: Invalid value: "..": must not start with '..'`,
    ],
  ],
  [
    'a partition that no disk has',
    volume({ gcePersistentDisk: { pdName: 'd', partition: 256 } }),
    ['spec.volumes[0].persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive'],
  ],
  [
    'fibre channel by both names and without a unit',
    volume({ fc: { targetWWNs: ['a'], wwids: ['b'] } }),
    [
      'spec.volumes[0].fc.targetWWNs: Invalid value: ["a"]: targetWWNs and wwids can not be specified simultaneously',
      'spec.volumes[0].fc.lun: Required value: lun is required if targetWWNs is specified',
    ],
  ],
  [
    'options in the name of the platform',
    volume({ flexVolume: { driver: 'd', options: { 'Kubernetes.io/x': 'y', plain: 'z' } } }),
    [
      'spec.volumes[0].flexVolume.options[Kubernetes.io/x]: Invalid value: "Kubernetes.io/x": kubernetes.io and k8s.io namespaces are reserved',
    ],
  ],
  [
    'a registry without a port',
    volume({ quobyte: { registry: 'a:1,b', volume: 'v' } }),
    [
      'spec.volumes[0].quobyte.registry: Invalid value: "a:1,b": must be a host:port pair or multiple pairs separated by commas',
    ],
  ],
  [
    'the claim of an ephemeral volume as that of another',
    {
      volumes: [
        {
          name: 'e',
          ephemeral: {
            volumeClaimTemplate: {
              spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1' } } },
            },
          },
        },
        { name: 'f', persistentVolumeClaim: { claimName: 'p-e' } },
      ],
    },
    [
      'spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "p-e": must not reference a PVC that gets created for an ephemeral volume',
    ],
  ],
  [
    'a second source, under the name that kube-apiserver gives it',
    volume({ emptyDir: {}, downwardAPI: {} }),
    ['spec.volumes[0].downwarAPI: Forbidden: may not specify more than 1 volume type'],
  ],
  [
    'a value that no label of a node has',
    {
      affinity: {
        nodeAffinity: {
          requiredDuringSchedulingIgnoredDuringExecution: {
            nodeSelectorTerms: [{ matchExpressions: [{ key: 'a', operator: 'In', values: ['x y'] }] }],
          },
        },
      },
    },
    [
      "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: \"x y\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    ],
  ],
  [
    'a restart by resize in a pod that never restarts',
    {
      restartPolicy: 'Never',
      ...container({ resizePolicy: [{ resourceName: 'cpu', restartPolicy: 'RestartContainer' }] }),
    },
    [
      "spec.containers[0].resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'",
    ],
  ],
  [
    'addresses with leading zeros',
    { hostAliases: [{ ip: '010.0.0.1', hostnames: ['h'] }] },
    ['spec.hostAliases[0].ip: Invalid value: "010.0.0.1": must not have leading 0s'],
  ],
  [
    'a profile of a file for another type',
    { securityContext: { seccompProfile: { type: 'Odd', localhostProfile: 'x' } } },
    [
      'spec.securityContext.seccompProfile.type: Unsupported value: "Odd": supported values: "Localhost", "RuntimeDefault", "Unconfined"',
      'spec.securityContext.seccompProfile.localhostProfile: Invalid value: {"Type":"Odd","LocalhostProfile":"x"}: can only be set when seccomp type is Localhost',
    ],
  ],
  [
    'a user of Windows with two domains',
    { securityContext: { windowsOptions: { runAsUserName: 'a\\b\\c' } } },
    [
      'spec.securityContext.windowsOptions.runAsUserName: Invalid value: "a\\\\b\\\\c": runAsUserName cannot contain more than one backslash',
    ],
  ],
];

for (const [name, spec, errors] of REFUSED) {
  test(`refused: ${name}`, () => {
    assert.deepEqual(errorsOf(spec), errors);
  });
}

test('an AppArmor or seccomp annotation must agree with its field', () => {
  const spec = container({ securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } });
  const key = 'container.apparmor.security.beta.kubernetes.io/c';
  assert.deepEqual(errorsOf(spec, { [key]: 'runtime/default' }), []);
  assert.deepEqual(errorsOf(spec, { [key]: 'unconfined' }), [
    'spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match',
  ]);
});

test('the node name can be read by its former field name', () => {
  const env = [{ name: 'A', valueFrom: { fieldRef: { fieldPath: 'spec.host' } } }];
  assert.deepEqual(errorsOf(container({ env })), []);
});

test('a template may omit host ports and images', () => {
  const spec = podOf(container({ ports: [{ containerPort: 80 }] })).spec ?? {};
  const template = { spec: { ...spec, hostNetwork: true, volumes: [{ name: 'v', image: { pullPolicy: 'Always' } }] } };
  assert.deepEqual(podTemplateErrors(template, 'spec.template'), []);
});

test('a container can mount a part of an image volume', () => {
  const mounts = container({
    volumeMounts: [
      { name: 'v', mountPath: '/a', subPath: 'a' },
      { name: 'v', mountPath: '/b', subPathExpr: '$(B)' },
    ],
  });
  assert.deepEqual(errorsOf({ ...volume({ image: { reference: 'i' } }), ...mounts }), []);
});

test('the mirror annotation of a pod is immutable', () => {
  const old = podOf({ nodeName: 'n' }, { 'kubernetes.io/config.mirror': 'x' });
  const pod = podOf({ nodeName: 'n' }, { 'kubernetes.io/config.mirror': 'y' });
  assert.deepEqual(podUpdateErrors(pod, old).map(String), [
    'metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation',
  ]);
});

function reported(status: PodStatus): string[] {
  const pod = podOf({});
  return podStatusUpdateErrors({ ...pod, status }, pod).map(String);
}

test('a pod has one address of each family', () => {
  assert.deepEqual(reported({ podIPs: [{ ip: '10.0.0.1' }, { ip: '10.0.0.2' }] }), [
    'status.podIPs: Invalid value: [{"IP":"10.0.0.1"},{"IP":"10.0.0.2"}]: may specify no more than one IP for each IP family',
  ]);
  assert.deepEqual(reported({ podIPs: [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }] }), []);
  assert.deepEqual(reported({ hostIP: '10.0.0.1', hostIPs: [{ ip: '10.0.0.2' }] }), [
    'status.hostIPs[0].ip: Invalid value: "10.0.0.2": must be equal to `hostIP`',
  ]);
});

test('empty selectors and paths that hide a token cause warnings', () => {
  const spec: PodSpec = {
    affinity: { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [{ topologyKey: 'z' }] } },
    volumes: [
      {
        name: 'v',
        projected: {
          sources: [
            { serviceAccountToken: { path: 't' } },
            { secret: { name: 's', items: [{ key: 'k', path: 't' }] } },
          ],
        },
      },
    ],
    hostAliases: [{ ip: 'FD00::1', hostnames: ['h'] }],
  };
  assert.deepEqual(podWarnings({}, spec), [
    'volume "v" (Projected): overlapping paths: "t" (Secret "s") with "t" (ServiceAccountToken)',
    'spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod',
    'spec.hostAliases[0].ip: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")',
  ]);
});

test('annotations that once held init containers are dropped from pods and templates', () => {
  const old = 'pod.beta.kubernetes.io/init-containers';
  const pod = { metadata: { name: 'p', annotations: { [old]: '[]', a: 'b' } } };
  applyPodDefaults(pod);
  assert.deepEqual(pod.metadata.annotations, { a: 'b' });
  const template = { metadata: { annotations: { [old]: '[]' } } };
  applyPodTemplateDefaults(template);
  assert.deepEqual(template.metadata, {});
});

test('the deletion cost of a pod is a 32-bit integer as Go parses it, without leading zeros unless it is negative', () => {
  const cost = 'controller.kubernetes.io/pod-deletion-cost';
  for (const value of ['0', '12', '2147483647', '-2147483648', '-0', '-05'])
    assert.deepEqual(errorsOf({}, { [cost]: value }), [], value);
  for (const value of ['', '-', '+1', '01', '2147483648', '-2147483649', '1.5'])
    assert.deepEqual(errorsOf({}, { [cost]: value }), [
      `metadata.annotations[${cost}]: Invalid value: ${JSON.stringify(value)}: must be a 32bit integer`,
    ]);
});
