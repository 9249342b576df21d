/** Tests the Pod Security levels: one row for each control, with the message of the violation. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { namespaces, pods } from '../../../../../api/client/resources.ts';
import type { AdmissionAttributes } from '../../../../../controlplane/security/admission/admission.ts';
import { podSecurityMetrics } from '../../../../../controlplane/security/admission/admission-metrics.ts';
import { podSecurity } from '../../../../../controlplane/security/admission/pod-security/pod-security.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';
import { evaluatePod, formatViolations } from '../../../../../controlplane/security/admission/pod-security/evaluate.ts';
import {
  formatLevel,
  type Level,
  policyOf,
} from '../../../../../controlplane/security/admission/pod-security/policy.ts';

type Pod = Parameters<typeof evaluatePod>[0];

const GOOD = {
  allowPrivilegeEscalation: false,
  capabilities: { drop: ['ALL'] },
  runAsNonRoot: true,
  seccompProfile: { type: 'RuntimeDefault' },
};

function violations(
  level: Level,
  container: object,
  spec: object = {},
  { minor = Number.POSITIVE_INFINITY, annotations = {} }: { minor?: number; annotations?: Record<string, string> } = {},
): string {
  const pod = {
    metadata: { annotations },
    spec: { containers: [{ name: 'c', image: 'i', ...container }], ...spec },
  } as unknown as Pod;
  return formatViolations(evaluatePod(pod, { level, version: 'latest', minor }));
}

const table: readonly (readonly [string, Level, object, object, string])[] = [
  ['anything', 'privileged', { securityContext: { privileged: true } }, { hostNetwork: true }, ''],
  ['an ordinary pod', 'baseline', {}, {}, ''],
  [
    'a privileged container',
    'baseline',
    { securityContext: { privileged: true } },
    {},
    'privileged (container "c" must not set securityContext.privileged=true)',
  ],
  [
    'the host’s network and processes',
    'baseline',
    {},
    { hostNetwork: true, hostPID: true },
    'host namespaces (hostNetwork=true, hostPID=true)',
  ],
  [
    'a directory of the host',
    'baseline',
    {},
    { volumes: [{ name: 'v', hostPath: { path: '/' } }] },
    'hostPath volumes (volume "v")',
  ],
  [
    'a port of the host',
    'baseline',
    { ports: [{ containerPort: 80, hostPort: 80 }] },
    {},
    'hostPort (container "c" uses hostPort 80)',
  ],
  [
    'a capability',
    'baseline',
    { securityContext: { capabilities: { add: ['SYS_ADMIN'] } } },
    {},
    'non-default capabilities (container "c" must not include "SYS_ADMIN" in securityContext.capabilities.add)',
  ],
  [
    'an unconfined system-call profile',
    'baseline',
    { securityContext: { seccompProfile: { type: 'Unconfined' } } },
    {},
    'seccompProfile (container "c" must not set securityContext.seccompProfile.type to "Unconfined")',
  ],
  ['a pod that does it right', 'restricted', { securityContext: GOOD }, {}, ''],
  [
    'a pod that may be root',
    'restricted',
    { securityContext: { ...GOOD, runAsNonRoot: undefined } },
    {},
    'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)',
  ],
  [
    'a pod that is root',
    'restricted',
    { securityContext: { ...GOOD, runAsUser: 0 } },
    {},
    'runAsUser=0 (container "c" must not set runAsUser=0)',
  ],
];
for (const [name, level, container, spec, expected] of table) {
  test(`${level}: ${name}`, () => assert.equal(violations(level, container, spec), expected));
}

test('baseline names AppArmor annotations with the values that they set', () => {
  const annotations = {
    'container.apparmor.security.beta.kubernetes.io/b': 'unconfined',
    'container.apparmor.security.beta.kubernetes.io/a': 'localhost/ok',
  };
  const shown = `"container.apparmor.security.beta.kubernetes.io/b="unconfined""`;
  assert.equal(
    violations('baseline', {}, { securityContext: { appArmorProfile: { type: 'Unconfined' } } }, { annotations }),
    `forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to "Unconfined", ${shown})`,
  );
});

test('restricted forbids an unmasked /proc also to pods with a user namespace of their own', () => {
  const containers = [{ name: 'c', image: 'i', securityContext: { procMount: 'Unmasked' } }];
  const text = 'procMount (container "c" must not set securityContext.procMount to "Unmasked")';
  assert.ok(!violations('baseline', {}, { hostUsers: false, containers }).includes(text));
  assert.ok(violations('restricted', {}, { hostUsers: false, containers }).includes(text));
});

test('baseline sorts the containers whose probes name a host', () => {
  const livenessProbe = { tcpSocket: { host: 'h', port: 80 } };
  const containers = ['z', 'a'].map((name) => ({ name, image: 'i', livenessProbe }));
  assert.equal(
    violations('baseline', {}, { containers }),
    'probe or lifecycle host (containers "a", "z" use probe or lifecycle host "h")',
  );
});

test('restricted names everything that an ordinary pod lacks', () => {
  assert.deepEqual(
    violations('restricted', {})
      .split(/\), /)
      .map((text) => text.split(' (')[0]),
    ['allowPrivilegeEscalation != false', 'unrestricted capabilities', 'runAsNonRoot != true', 'seccompProfile'],
  );
});

interface Versioned {
  readonly level: Level;
  readonly container?: object;
  readonly spec?: object;
  readonly annotations?: Record<string, string>;
  /** The last version of the standard with the first result. The next version has the second one. */
  readonly until: number;
  readonly before: string;
  readonly after: string;
}

const windows = { os: { name: 'windows' } };
const sysctl = (name: string): object => ({ securityContext: { sysctls: [{ name, value: '1' }] } });
const versions: Readonly<Record<string, Versioned>> = {
  'annotations for system calls': {
    level: 'baseline',
    annotations: {
      'seccomp.security.alpha.kubernetes.io/pod': 'unconfined',
      'container.seccomp.security.alpha.kubernetes.io/c': 'localhost/mine',
    },
    until: 18,
    before: 'seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")',
    after: '',
  },
  'fields for system calls': {
    level: 'baseline',
    container: { securityContext: { seccompProfile: { type: 'Unconfined' } } },
    until: 18,
    before: '',
    after: 'seccompProfile (container "c" must not set securityContext.seccompProfile.type to "Unconfined")',
  },
  'gaining privileges': {
    level: 'restricted',
    container: { securityContext: { ...GOOD, allowPrivilegeEscalation: undefined } },
    until: 7,
    before: '',
    after: 'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)',
  },
  'dropping capabilities': {
    level: 'restricted',
    container: { securityContext: { ...GOOD, capabilities: {} } },
    until: 21,
    before: '',
    after: 'unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"])',
  },
  'being root': {
    level: 'restricted',
    container: { securityContext: { ...GOOD, runAsUser: 0 } },
    until: 22,
    before: '',
    after: 'runAsUser=0 (container "c" must not set runAsUser=0)',
  },
  'what Windows does not have': {
    level: 'restricted',
    container: { securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } } },
    spec: windows,
    until: 24,
    before:
      'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"])',
    after: '',
  },
  'reserved ports': {
    level: 'baseline',
    spec: sysctl('net.ipv4.ip_local_reserved_ports'),
    until: 26,
    before: 'forbidden sysctls (net.ipv4.ip_local_reserved_ports)',
    after: '',
  },
  'keeping connections alive': {
    level: 'baseline',
    spec: sysctl('net.ipv4.tcp_keepalive_time'),
    until: 28,
    before: 'forbidden sysctls (net.ipv4.tcp_keepalive_time)',
    after: '',
  },
  'the SELinux type of engines': {
    level: 'baseline',
    spec: { securityContext: { seLinuxOptions: { type: 'container_engine_t' } } },
    until: 30,
    before: 'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "container_engine_t")',
    after: '',
  },
  'buffers of connections': {
    level: 'baseline',
    spec: sysctl('net.ipv4.tcp_wmem'),
    until: 31,
    before: 'forbidden sysctls (net.ipv4.tcp_wmem)',
    after: '',
  },
  'hosts of probes': {
    level: 'baseline',
    container: { livenessProbe: { httpGet: { host: '169.254.169.254', port: 80 } } },
    until: 33,
    before: '',
    after: 'probe or lifecycle host (container "c" uses probe or lifecycle host "169.254.169.254")',
  },
  'root in a user namespace of its own': {
    level: 'restricted',
    container: { securityContext: { ...GOOD, runAsNonRoot: undefined } },
    spec: { hostUsers: false },
    until: 34,
    before: 'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)',
    after: '',
  },
};
for (const [name, { level, container = {}, spec = {}, annotations = {}, until, before, after }] of Object.entries(
  versions,
)) {
  test(`the standard changes its mind about ${name} after v1.${until}`, () => {
    assert.equal(violations(level, container, spec, { minor: until, annotations }), before);
    assert.equal(violations(level, container, spec, { minor: until + 1, annotations }), after);
  });
}

test('a refused pod gets an audit annotation of its other level, and no warning', async () => {
  const labels = {
    'pod-security.kubernetes.io/enforce': 'baseline',
    'pod-security.kubernetes.io/audit': 'restricted',
    'pod-security.kubernetes.io/audit-version': 'v1.20',
    'pod-security.kubernetes.io/warn': 'restricted',
  };
  const metrics = new MetricsRegistry();
  const plugin = podSecurity(
    fixedListers([{ resource: namespaces, object: { metadata: { name: 'n', labels } } }]),
    undefined,
    podSecurityMetrics(metrics),
  );
  const annotations: Record<string, string> = {};
  const warnings: string[] = [];
  const object = {
    metadata: { name: 'p' },
    spec: { containers: [{ name: 'c', securityContext: { ...GOOD, privileged: true } }] },
  };
  const attributes = {
    operation: 'CREATE',
    resource: { group: '', version: 'v1', resource: 'pods' },
    subresource: '',
    namespace: 'n',
    name: 'p',
    object,
    user: { name: 'ann', groups: [] },
    warn: (text: string) => warnings.push(text),
    annotate: (key: string, value: string) => (annotations[key] = value),
  } as unknown as AdmissionAttributes;
  const why = 'privileged (container "c" must not set securityContext.privileged=true)';
  await assert.rejects(async () => plugin.validate?.(attributes, new AbortController().signal), {
    message: `pods "p" is forbidden: violates PodSecurity "baseline:latest": ${why}`,
  });
  assert.deepEqual(warnings, []);
  assert.deepEqual(annotations, {
    'pod-security.kubernetes.io/enforce-policy': 'baseline:latest',
    'pod-security.kubernetes.io/audit-violations': `would violate PodSecurity "restricted:v1.20": ${why}`,
  });
  assert.match(
    metrics.text(),
    /pod_security_evaluations_total\{decision="deny",mode="audit",policy_level="restricted",policy_version="v1.20",request_operation="create",resource="pod",subresource=""\} 1/,
  );
});

test('a namespace that enforces a level warns of it as well, unless it has a level for warnings', () => {
  const label = (mode: string): string => `pod-security.kubernetes.io/${mode}`;
  const warns = (own: Readonly<Record<string, string>>, defaults: Readonly<Record<string, string>> = {}): string => {
    const named = (labels: Readonly<Record<string, string>>): Record<string, string> =>
      Object.fromEntries(Object.entries(labels).map(([mode, value]) => [label(mode), value]));
    return formatLevel(policyOf(named(own), named(defaults)).policy.warn);
  };
  assert.equal(warns({ enforce: 'restricted' }), 'restricted:latest');
  assert.equal(warns({ enforce: 'baseline', 'enforce-version': 'v1.25' }), 'baseline:v1.25');
  assert.equal(warns({ enforce: 'baseline', 'enforce-version': 'v1.25', 'warn-version': 'v1.30' }), 'baseline:v1.30');
  assert.equal(warns({ enforce: 'restricted', warn: 'privileged' }), 'privileged:latest');
  assert.equal(warns({ enforce: 'unknown' }), 'privileged:latest');
  assert.equal(warns({ warn: 'unknown' }), 'privileged:latest');
  assert.equal(warns({ enforce: 'baseline' }, { warn: 'restricted' }), 'restricted:latest');
  assert.equal(warns({ enforce: 'restricted' }, { warn: 'baseline' }), 'restricted:latest');
  assert.equal(warns({}, { enforce: 'restricted' }), 'privileged:latest');
});

/** Returns the warnings about existing pods when the label `enforce` of a namespace changes. */
async function namespaceWarnings(
  [before, after]: readonly [string | undefined, string | undefined],
  configuration: { readonly defaults?: object; readonly namespaces?: string; readonly runtimeClasses?: string },
): Promise<string[]> {
  const spec = { containers: [{ name: 'c', securityContext: { privileged: true } }] };
  const plugin = podSecurity(
    fixedListers([
      { resource: pods, object: { metadata: { name: 'a', namespace: 'n' }, spec } as never },
      {
        resource: pods,
        object: { metadata: { name: 'b', namespace: 'n' }, spec: { ...spec, runtimeClassName: 'kata' } } as never,
      },
    ]),
    {
      defaults: { ...configuration.defaults },
      exemptUsers: new Set(),
      exemptNamespaces: new Set([configuration.namespaces ?? '']),
      exemptRuntimeClasses: new Set([configuration.runtimeClasses ?? '-']),
    },
  );
  const warnings: string[] = [];
  const namespaceWith = (level: string | undefined): object => ({
    metadata: { name: 'n', labels: level === undefined ? {} : { 'pod-security.kubernetes.io/enforce': level } },
  });
  const attributes = {
    operation: 'UPDATE',
    resource: { group: '', version: 'v1', resource: 'namespaces' },
    ...{ subresource: '', namespace: 'n', name: 'n', user: { name: 'ann', groups: [] } },
    ...{ object: namespaceWith(after), oldObject: namespaceWith(before) },
    warn: (text: string) => warnings.push(text),
    annotate: () => undefined,
  } as unknown as AdmissionAttributes;
  await plugin.validate?.(attributes, new AbortController().signal);
  return warnings;
}

test('a namespace that is tightened warns of existing pods, except exempt ones', async () => {
  const tightened = ['privileged', 'baseline'] as const;
  const header = 'existing pods in namespace "n" violate the new PodSecurity enforce level "baseline:latest"';
  assert.deepEqual(await namespaceWarnings(tightened, {}), [header, 'a (and 1 other pod): privileged']);
  assert.deepEqual(await namespaceWarnings(tightened, { runtimeClasses: 'kata' }), [header, 'a: privileged']);
  assert.deepEqual(await namespaceWarnings(tightened, { namespaces: 'n' }), []);
});

test('a namespace without the label has the default level before and after a change', async () => {
  const defaults = { enforce: 'baseline' };
  assert.deepEqual(await namespaceWarnings([undefined, 'baseline'], { defaults }), []);
  assert.equal((await namespaceWarnings(['privileged', undefined], { defaults })).length, 2);
});
