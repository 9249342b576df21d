/** Evaluates a pod against a level of the Pod Security Standards. */
import * as baseline from './baseline.ts';
import type { Check, CheckInput, Violation } from './check.ts';
import type { LevelVersion } from './policy.ts';
import * as restricted from './restricted.ts';

interface Row {
  readonly check: Check;
  /** The minor version from which on the restricted level has a stricter form of the same check. */
  readonly overriddenFrom?: number;
}

const BASELINE: readonly Row[] = [
  { check: baseline.appArmorProfile },
  { check: baseline.baselineCapabilities, overriddenFrom: 22 },
  { check: baseline.hostNamespaces },
  { check: baseline.hostPathVolumes, overriddenFrom: 0 },
  { check: baseline.hostPorts },
  { check: baseline.probeAndLifecycleHosts },
  { check: baseline.privileged },
  { check: baseline.procMount, overriddenFrom: 35 },
  { check: baseline.seLinuxOptions },
  { check: baseline.baselineSeccomp, overriddenFrom: 19 },
  { check: baseline.sysctls },
  { check: baseline.windowsHostProcess },
];

const RESTRICTED: readonly Check[] = [
  restricted.allowPrivilegeEscalation,
  restricted.restrictedCapabilities,
  restricted.restrictedProcMount,
  restricted.restrictedVolumes,
  restricted.runAsNonRoot,
  restricted.runAsUser,
  restricted.restrictedSeccomp,
];

/** Lists every violation of a level, in the order of kube-apiserver. The list is empty for the privileged level. */
export function evaluatePod(pod: Omit<CheckInput, 'minor'>, { level, minor }: LevelVersion): Violation[] {
  if (level === 'privileged') return [];
  const input = { ...pod, minor };
  const isRestricted = level === 'restricted';
  const checks = BASELINE.filter(
    (row) => !isRestricted || row.overriddenFrom === undefined || minor < row.overriddenFrom,
  ).map((row) => row.check);
  if (isRestricted) checks.push(...RESTRICTED);
  return checks.flatMap((check) => check(input) ?? []);
}

/** Formats violations as in kube-apiserver's messages: `privileged (container "c" must not …), host namespaces (…)`. */
export function formatViolations(violations: readonly Violation[]): string {
  return violations.map(({ reason, detail }) => (detail === '' ? reason : `${reason} (${detail})`)).join(', ');
}
