/** The Pod Security levels: one row a control, with the words of the violation. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { evaluatePod, formatViolations } from '../../../../controlplane/admission/pod-security/evaluate.ts';
import type { Level } from '../../../../controlplane/admission/pod-security/policy.ts';

type Pod = Parameters<typeof evaluatePod>[0];

const GOOD = {
  allowPrivilegeEscalation: false,
  capabilities: { drop: ['ALL'] },
  runAsNonRoot: true,
  seccompProfile: { type: 'RuntimeDefault' },
};

function violations(level: Level, container: object, spec: object = {}): string {
  const pod = {
    metadata: {},
    spec: { containers: [{ name: 'c', image: 'i', ...container }], ...spec },
  } as unknown as Pod;
  return formatViolations(evaluatePod(pod, { level, version: 'latest', minor: Number.POSITIVE_INFINITY }));
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

test('restricted names everything that an ordinary pod lacks', () => {
  assert.deepEqual(
    violations('restricted', {})
      .split(/\), /)
      .map((text) => text.split(' (')[0]),
    ['allowPrivilegeEscalation != false', 'unrestricted capabilities', 'runAsNonRoot != true', 'seccompProfile'],
  );
});
