import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dropDisabledPodFields } from '../../../../api/kinds/disabled-fields.ts';
import { applyPodDefaults } from '../../../../api/kinds/pod-defaults.ts';
import type { Pod, PodSpec } from '../../../../api/kinds/pod-types.ts';
import { podStatusUpdateErrors } from '../../../../api/kinds/pod-update-validation.ts';
import { validatePod } from '../../../../api/kinds/pod-validation.ts';
import { podWarnings } from '../../../../api/kinds/pod-warnings.ts';

function podOf(spec: PodSpec, annotations?: Record<string, string>): Pod {
  const metadata = { name: 'p', ...(annotations === undefined ? {} : { annotations }) };
  const pod: Pod = { metadata, spec: { containers: [{ name: 'c', image: 'app:1' }], ...spec } };
  applyPodDefaults(pod);
  return pod;
}

const errorsOf = (pod: Pod): string[] => validatePod(pod).map(String);
const container = (more: object): PodSpec => ({ containers: [{ name: 'c', image: 'app:1', ...more }] });

const REFUSED: readonly (readonly [string, Pod, readonly string[]])[] = [
  [
    'a pause before the end that is longer than the grace period',
    podOf({ terminationGracePeriodSeconds: 10, ...container({ lifecycle: { preStop: { sleep: { seconds: 11 } } } }) }),
    [
      'spec.containers[0].lifecycle.preStop.sleep: Invalid value: 11: must be non-negative and less than terminationGracePeriodSeconds (10)',
    ],
  ],
  [
    'a field reference of another version',
    podOf(
      container({ env: [{ name: 'A', valueFrom: { fieldRef: { apiVersion: 'v2', fieldPath: 'metadata.name' } } }] }),
    ),
    [
      'spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name": error converting fieldPath: unsupported pod version: v2',
    ],
  ],
  [
    'huge pages in parts',
    podOf(container({ resources: { limits: { cpu: '1', 'hugepages-2Mi': '3Mi' } } })),
    ['limits', 'requests'].map(
      (list) =>
        `spec.containers[0].resources.${list}[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi`,
    ),
  ],
  [
    'a container limit above the pod limit',
    podOf({
      resources: { limits: { cpu: '1' }, requests: { cpu: '1' } },
      ...container({ resources: { limits: { cpu: '2' }, requests: { cpu: '1' } } }),
    }),
    ['spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1'],
  ],
  [
    'pages of a size that no page has',
    podOf(container({ resources: { limits: { cpu: '1', 'hugepages-big': '2Mi' } } })),
    ['limits', 'requests'].map(
      (list) =>
        `spec.containers[0].resources.${list}[hugepages-big]: Invalid value: "2Mi": 2Mi is not positive integer multiple of hugepages-big`,
    ),
  ],
  [
    'pages in parts, after the comparison with the limit',
    podOf(
      container({
        resources: { limits: { cpu: '1', 'hugepages-2Mi': '4Mi' }, requests: { cpu: '1', 'hugepages-2Mi': '3Mi' } },
      }),
    ),
    [
      'spec.containers[0].resources.requests: Invalid value: "3Mi": must be equal to hugepages-2Mi limit of 4Mi',
      'spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi',
    ],
  ],
  [
    'requests of containers that are more than those of the pod, in their own format',
    podOf({
      resources: { requests: { memory: '100Mi' } },
      ...container({ resources: { requests: { memory: '200Mi' } } }),
    }),
    [
      'spec.resources.requests[memory]: Invalid value: "100Mi": must be greater than or equal to aggregate container requests of 200Mi',
    ],
  ],
  [
    'requests of a claim that are no label, or that stand twice',
    podOf({
      resourceClaims: [{ name: 'a', resourceClaimName: 'a' }],
      ...container({
        resources: {
          claims: [
            { name: 'a', request: 'No' },
            { name: 'a', request: 'x' },
            { name: 'a' },
            { name: 'a', request: 'y' },
          ],
        },
      }),
    }),
    [
      "spec.containers[0].resources.claims[0].request: Invalid value: \"No\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
      'spec.containers[0].resources.claims[2]: Duplicate value: "a"',
      'spec.containers[0].resources.claims[3]: Duplicate value: "a"',
    ],
  ],
  [
    'a divisor of a resource whose container is not named',
    podOf({
      volumes: [
        {
          name: 'v',
          downwardAPI: { items: [{ path: 'p', resourceFieldRef: { resource: 'limits.cpu', divisor: '2' } }] },
        },
      ],
    }),
    [
      'spec.volumes[0].downwardAPI.resourceFieldRef.containerName: Required value',
      'spec.volumes[0].downwardAPI.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor\'s values 1m and 1 are supported with the cpu resource',
    ],
  ],
  [
    'a key that is merged into the selector of a spread and stands there already',
    podOf({
      topologySpreadConstraints: [
        {
          maxSkew: 1,
          topologyKey: 'z',
          whenUnsatisfiable: 'DoNotSchedule',
          matchLabelKeys: ['other', 'app'],
          labelSelector: {
            matchLabels: { app: 'a' },
            matchExpressions: [{ key: 'app', operator: 'In', values: ['a'] }],
          },
        },
      ],
    }),
    ['spec.topologySpreadConstraints[0][1]: Invalid value: "app": exists in both matchLabelKeys and labelSelector'],
  ],
  [
    'the same spread twice, at the first of the two',
    podOf({
      topologySpreadConstraints: [
        { maxSkew: 1, topologyKey: 'z', whenUnsatisfiable: 'DoNotSchedule' },
        { maxSkew: 2, topologyKey: 'z', whenUnsatisfiable: 'DoNotSchedule' },
      ],
    }),
    ['spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{z, DoNotSchedule}"'],
  ],
  [
    'a confinement by annotation for a container that is not there',
    podOf({}, { 'container.apparmor.security.beta.kubernetes.io/missing': 'unconfined' }),
    [
      'metadata.annotations[container.apparmor.security.beta.kubernetes.io/missing]: Invalid value: "missing": container not found',
    ],
  ],
  [
    'a mirror pod without a node',
    podOf({}, { 'kubernetes.io/config.mirror': 'x' }),
    [
      'metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "x": must set spec.nodeName if mirror pod annotation is set',
    ],
  ],
  [
    'processes of the host without its network',
    podOf({ securityContext: { windowsOptions: { hostProcess: true } } }),
    ['spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers'],
  ],
];

test('an environment may name a source with a trailing dash', () =>
  assert.deepEqual(errorsOf(podOf(container({ envFrom: [{ configMapRef: { name: 'app-' } }] }))), []));

for (const [what, pod, errors] of REFUSED) {
  test(`refused: ${what}`, () => assert.deepEqual(errorsOf(pod), errors));
}

test('a comparison operator of a toleration is rejected, and the message lists all operators', () => {
  const refusal = (operator: string): string[] =>
    errorsOf(podOf({ tolerations: [{ key: 'a', operator, value: '1' }] }));
  assert.match(refusal('Gt')[0] ?? '', /"Equal", "Exists", "Lt", "Gt"$/);
  assert.match(refusal('Near')[0] ?? '', /"Equal", "Exists"$/);
});

test("pod-level requests default to the containers' requests, or to the pod-level limit", () => {
  const { spec } = podOf({
    resources: { limits: { cpu: '2' } },
    ...container({ resources: { requests: { memory: '1Mi' } } }),
  });
  assert.deepEqual(spec?.resources?.requests, { cpu: '2', memory: '1Mi' });
});

test('pod-level requests default to the most that the containers request at one time', () => {
  const requesting = (name: string, cpu: string, more: object = {}): object => ({
    name,
    image: 'busybox',
    resources: { requests: { cpu } },
    ...more,
  });
  const requestOf = (initContainers: readonly object[], containers: readonly object[]): unknown =>
    podOf({ resources: { limits: { cpu: '2' } }, initContainers, containers } as object).spec?.resources?.requests;
  const sidecar = requesting('s', '100m', { restartPolicy: 'Always' });
  const later = requesting('t', '100m', { restartPolicy: 'Always' });
  const init = requesting('i', '500m');
  assert.deepEqual(requestOf([sidecar, init], [requesting('c', '200m')]), { cpu: '600m' });
  assert.deepEqual(requestOf([init, later], [requesting('c', '200m')]), { cpu: '500m' });
  assert.deepEqual(requestOf([sidecar], [requesting('c', '200m')]), { cpu: '300m' });
  assert.deepEqual(requestOf([init], [{ name: 'c', image: 'busybox' }]), { cpu: '500m' });
});

test('fields of disabled features are dropped unless the stored pod has them', () => {
  const spec = container({ lifecycle: { stopSignal: 'SIGUSR1' } });
  dropDisabledPodFields(spec, structuredClone(spec));
  assert.equal(spec.containers?.[0]?.lifecycle?.stopSignal, 'SIGUSR1');
  dropDisabledPodFields(spec, undefined);
  assert.equal(spec.containers?.[0]?.lifecycle, undefined);
});

test('duplicate ports in another container cause a warning', () => {
  const ports = [{ containerPort: 80, name: 'web', protocol: 'TCP' }];
  const texts = podWarnings(
    {},
    {
      initContainers: [{ name: 'i', restartPolicy: 'Always', ports }],
      containers: [{ name: 'c', ports }],
    },
  );
  assert.deepEqual(texts, [
    'spec.containers[0].ports[0]: duplicate port definition with spec.initContainers[0].ports[0]',
    'spec.containers[0].ports[0]: duplicate port name "web" with spec.initContainers[0].ports[0], services and probes that select ports by name will use spec.initContainers[0].ports[0]',
  ]);
});

test('a finally terminated container does not run again', () => {
  const state = (one: object): Pod => ({
    metadata: { name: 'p' },
    spec: { restartPolicy: 'Never', ...container({}) },
    status: { containerStatuses: [{ name: 'c', state: one }] },
  });
  const errors = podStatusUpdateErrors(state({ running: {} }), state({ terminated: { exitCode: 0 } }));
  assert.deepEqual(errors.map(String), [
    'status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state',
  ]);
});
