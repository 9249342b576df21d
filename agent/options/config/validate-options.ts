/** Validates combinations of options. Each error is one line with the names of the field and the flag. */
import type { AgentFlags } from '../agent-options.ts';
import { ConfigurationError } from '../../base/model/configuration-error.ts';
import { allowlistProblem } from '../../runtime/images/pull-verification.ts';
import type { FeatureGates } from './feature-gates.ts';

type Rule = (flags: AgentFlags, gates: FeatureGates) => string | undefined;

const rules: readonly Rule[] = [
  ({ imageGcHighThreshold: high, imageGcLowThreshold: low }) =>
    low >= high && high !== 100 && !(high === 0 && low === 0)
      ? `imageGCLowThresholdPercent (--image-gc-low-threshold) ${low} must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) ${high}`
      : undefined,
  ({ imageMaximumGcAge: most, minimumImageTtlDuration: least }) =>
    most > 0 && most <= least
      ? 'imageMaximumGCAge must be greater than imageMinimumGCAge (--minimum-image-ttl-duration)'
      : undefined,
  ({ enforceNodeAllocatable: list }) =>
    list.includes('none') && list.length > 1
      ? 'enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional enforcements when none is specified'
      : undefined,
  ({ enforceNodeAllocatable: list, cgroupsPerQos }) =>
    !cgroupsPerQos && list.some((name) => name !== 'none')
      ? 'enforceNodeAllocatable (--enforce-node-allocatable) is not supported unless cgroupsPerQOS (--cgroups-per-qos) is set to true'
      : undefined,
  ({ enforceNodeAllocatable: list, kubeReservedCgroup }) =>
    list.includes('kube-reserved') && kubeReservedCgroup === ''
      ? 'kubeReservedCgroup (--kube-reserved-cgroup) must be specified when "kube-reserved" contained in enforceNodeAllocatable (--enforce-node-allocatable)'
      : undefined,
  ({ enforceNodeAllocatable: list, systemReservedCgroup }) =>
    list.includes('system-reserved') && systemReservedCgroup === ''
      ? 'systemReservedCgroup (--system-reserved-cgroup) must be specified when "system-reserved" contained in enforceNodeAllocatable (--enforce-node-allocatable)'
      : undefined,
  ({ reservedCpus, kubeReservedCgroup, systemReservedCgroup }) =>
    reservedCpus !== '' && (kubeReservedCgroup !== '' || systemReservedCgroup !== '')
      ? 'cannot use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)'
      : undefined,
  ({ serializeImagePulls, maxParallelImagePulls }) =>
    serializeImagePulls && maxParallelImagePulls > 1
      ? `maxParallelImagePulls ${maxParallelImagePulls} must be 1 if serializeImagePulls (--serialize-image-pulls) is enabled`
      : undefined,
  ({ imagePullCredentialsVerificationPolicy: policy, preloadedImagesVerificationAllowlist: list }) =>
    list.length > 0 && policy !== 'NeverVerifyAllowlistedImages'
      ? 'can\'t set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVerificationPolicy` is not "NeverVerifyAllowlistedImages"'
      : undefined,
  ({ preloadedImagesVerificationAllowlist: list }) => {
    const problem = list.map(allowlistProblem).find((found) => found !== undefined);
    return problem === undefined ? undefined : `preloadedImagesVerificationAllowlist: ${problem}`;
  },
  ({ evictionSoft, evictionSoftGracePeriod }) => {
    const missing = Object.keys(evictionSoft).find((signal) => evictionSoftGracePeriod[signal] === undefined);
    return missing === undefined
      ? undefined
      : `grace period must be specified for the soft eviction threshold ${missing}`;
  },
  ({ shutdownGracePeriod, shutdownGracePeriodCriticalPods }) =>
    shutdownGracePeriodCriticalPods > shutdownGracePeriod
      ? 'shutdownGracePeriodCriticalPods must not be longer than shutdownGracePeriod'
      : undefined,
  ({ rotateServerCertificates }, gates) =>
    rotateServerCertificates && !gates.enabled('RotateKubeletServerCertificate')
      ? 'serverTLSBootstrap (--rotate-server-certificates) needs the feature gate RotateKubeletServerCertificate'
      : undefined,
  ({ lockFile, exitOnLockContention }) =>
    exitOnLockContention && lockFile === ''
      ? 'cannot exit on lock file contention: no lock file specified (--lock-file)'
      : undefined,
  ({ kubeconfig, runonce, authorizationMode, enableServer }) =>
    enableServer && authorizationMode === 'Webhook' && (kubeconfig === '' || runonce)
      ? 'authorization.mode (--authorization-mode) Webhook needs an API server to ask: give --kubeconfig, or AlwaysAllow'
      : undefined,
  ({ kubeconfig, runonce, authenticationTokenWebhook, enableServer }) =>
    enableServer && authenticationTokenWebhook && (kubeconfig === '' || runonce)
      ? 'authentication.webhook.enabled (--authentication-token-webhook) needs an API server to ask: give --kubeconfig, or false'
      : undefined,
  ({ bootstrapKubeconfig, kubeconfig }) =>
    bootstrapKubeconfig !== '' && kubeconfig === ''
      ? '--bootstrap-kubeconfig needs --kubeconfig: where the new credentials are written'
      : undefined,
];

/** Checks the options against each other. Throws `ConfigurationError` with all errors. */
export function validateOptions(flags: AgentFlags, gates: FeatureGates): void {
  const problems = rules.flatMap((rule) => rule(flags, gates) ?? []);
  if (problems.length > 0)
    throw new ConfigurationError(problems.map((problem) => `invalid configuration: ${problem}`).join('\n'));
}
