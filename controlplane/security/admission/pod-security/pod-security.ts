/**
 * PodSecurity: refuses pods that violate the level that their namespace enforces, and adds warnings and audit annotations by
 * its other levels. Workloads only get warnings and audit annotations about their pod templates. The labels of namespaces are
 * validated, and tightening a namespace returns warnings about existing pods that violate the new level.
 */
import { quoteText } from '../../../../api/meta/quote.ts';
import type { Namespace, Pod } from '../../../../api/kinds/kinds.ts';
import { namespaces, pods } from '../../../../api/client/resources.ts';
import type { FieldError } from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { newInvalid } from '../../../../api/meta/status-error.ts';
import { isPod, nameOf, refusal, type PodSpec } from '../pod-attributes.ts';
import type { AdmissionAttributes, AdmissionPlugin } from '../admission.ts';
import type { Listers } from '../../../model/listers.ts';
import { evaluatePod, formatViolations } from './evaluate.ts';
import { formatLevel, levelRank, policyOf, type LevelVersion, type Mode, type Policy } from './policy.ts';
import { isResource } from '../../../../api/meta/group-resource.ts';

const ANNOTATION = 'pod-security.kubernetes.io/';
/** The maximum number of existing pods that are checked when a namespace is tightened. */
const MAX_PODS = 3000;

interface PodLike {
  readonly metadata: Pod['metadata'];
  readonly spec: PodSpec;
}

/** The levels of namespaces without labels (`enforce`, `enforce-version`, …), and the exemptions. */
export interface PodSecurityConfiguration {
  readonly defaults: Readonly<Record<string, string>>;
  readonly exemptUsers: ReadonlySet<string>;
  readonly exemptNamespaces: ReadonlySet<string>;
  readonly exemptRuntimeClasses: ReadonlySet<string>;
}

/** `pod_security_evaluations_total` and `pod_security_exemptions_total`. */
export interface PodSecurityMetrics {
  evaluated(decision: 'allow' | 'deny', level: LevelVersion, mode: Mode, attributes: AdmissionAttributes): void;
  exempted(attributes: AdmissionAttributes): void;
}

const NO_CONFIGURATION: PodSecurityConfiguration = {
  defaults: {},
  exemptUsers: new Set(),
  exemptNamespaces: new Set(),
  exemptRuntimeClasses: new Set(),
};

/** Builds the plugin from the `PodSecurityConfiguration` of the admission configuration file, or from its defaults. */
export function podSecurity(
  listers: Listers,
  configuration: PodSecurityConfiguration = NO_CONFIGURATION,
  metrics?: PodSecurityMetrics,
): AdmissionPlugin {
  const defaults = Object.fromEntries(
    Object.entries(configuration.defaults).map(([mode, level]) => [ANNOTATION + mode, level]),
  );
  /** Returns the kind of exemption that applies, for the audit annotation. */
  const exemptionOf = (attributes: AdmissionAttributes, { spec }: PodLike): string | undefined => {
    if (configuration.exemptNamespaces.has(attributes.namespace)) return 'namespace';
    if (configuration.exemptUsers.has(attributes.user.name)) return 'user';
    return configuration.exemptRuntimeClasses.has(spec.runtimeClassName ?? '') ? 'runtimeClass' : undefined;
  };
  const namespaceLister = listers.of(namespaces);
  const podLister = listers.of(pods);
  /** The policies of namespaces, each of which is read once from the labels of an object that does not change. */
  const policies = new WeakMap<Namespace, ReturnType<typeof policyOf>>();
  const policyIn = (namespace: Namespace | undefined): ReturnType<typeof policyOf> => {
    let found = namespace === undefined ? undefined : policies.get(namespace);
    if (found !== undefined) return found;
    found = policyOf(namespace?.metadata.labels, defaults);
    if (namespace !== undefined) policies.set(namespace, found);
    return found;
  };
  /** Returns the existing pods of a namespace that are not exempt. */
  const checkedPods = (namespace: string): readonly Pod[] =>
    configuration.exemptNamespaces.has(namespace)
      ? []
      : podLister
          .list(namespace)
          .filter(({ spec }) => !configuration.exemptRuntimeClasses.has(spec?.runtimeClassName ?? ''));
  return {
    name: 'PodSecurity',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    async validate(attributes) {
      if (isResource(attributes.resource, namespaces)) {
        if (attributes.subresource === '')
          validateNamespace(attributes, defaults, () => checkedPods(nameOf(attributes)));
        return;
      }
      const target = isPod(attributes) ? podTarget(attributes) : templateOf(attributes);
      if (target === undefined) return;
      const exemption = exemptionOf(attributes, target);
      if (exemption !== undefined) {
        attributes.annotate(`${ANNOTATION}exempt`, exemption);
        metrics?.exempted(attributes);
        return;
      }
      const { namespace: name } = attributes;
      const namespace: Namespace | undefined = namespaceLister.get('', name) ?? (await namespaceLister.live('', name));
      const { policy, errors } = policyIn(namespace);
      if (errors.length > 0)
        attributes.annotate(`${ANNOTATION}error`, `Failed to parse policy: ${errors.map(String).join(', ')}`);
      judge(attributes, target, policy, metrics?.evaluated);
    },
  };
}

function judge(
  attributes: AdmissionAttributes,
  target: PodLike,
  policy: Policy,
  evaluated: PodSecurityMetrics['evaluated'] = () => undefined,
): void {
  const violationsOf = (mode: Mode): string | undefined => {
    const level = policy[mode];
    const violations = evaluatePod(target, level);
    evaluated(violations.length === 0 ? 'allow' : 'deny', level, mode, attributes);
    if (violations.length === 0) return undefined;
    return `violate${mode === 'enforce' ? 's' : ''} PodSecurity ${quoteText(formatLevel(level))}: ${formatViolations(violations)}`;
  };
  // Workloads get warnings and audit annotations only.
  const isEnforced = isPod(attributes);
  const enforced = isEnforced ? violationsOf('enforce') : undefined;
  if (isEnforced) attributes.annotate(`${ANNOTATION}enforce-policy`, formatLevel(policy.enforce));
  // A refused request gets the audit annotation as well, but no warning.
  const audit = violationsOf('audit');
  if (audit !== undefined) attributes.annotate(`${ANNOTATION}audit-violations`, `would ${audit}`);
  if (enforced !== undefined) throw refusal(attributes, enforced);
  const warning = violationsOf('warn');
  if (warning !== undefined) attributes.warn(`would ${warning}`);
}

/** Returns the pod to evaluate, and `undefined` if the request changes no relevant field. */
function podTarget(attributes: AdmissionAttributes): PodLike | undefined {
  if (!['', 'ephemeralcontainers', 'resize'].includes(attributes.subresource)) return undefined;
  const pod = attributes.object as Pod | undefined;
  if (pod?.spec === undefined) return undefined;
  if (attributes.operation === 'UPDATE') {
    const old = attributes.oldObject as Pod | undefined;
    if (old?.spec !== undefined && !isSignificant(pod, pod.spec, old, old.spec)) return undefined;
  }
  return { metadata: pod.metadata, spec: pod.spec };
}

/**
 * Whether an update may change the evaluation: the set of containers, an image, or an annotation about AppArmor or seccomp. All
 * other fields that the policy evaluates are immutable in a pod.
 */
function isSignificant(pod: Pod, spec: PodSpec, old: Pod, oldSpec: PodSpec): boolean {
  const judged = (one: PodSpec): object =>
    CONTAINER_LISTS.map((list) => (one[list] ?? []).map(({ name, image }) => ({ name, image })));
  const annotations = (one: Pod): [string, string][] =>
    Object.entries(one.metadata.annotations ?? {}).filter(
      ([key]) => key.startsWith('container.apparmor.security') || key.startsWith('seccomp.security'),
    );
  return !jsonEqual(judged(spec), judged(oldSpec)) || !jsonEqual(annotations(pod), annotations(old));
}

const CONTAINER_LISTS = ['containers', 'initContainers', 'ephemeralContainers'] as const;

interface Template {
  readonly metadata?: Pod['metadata'];
  readonly spec?: PodSpec;
}

/** Returns the pod that a workload's template describes. */
function templateOf(attributes: AdmissionAttributes): PodLike | undefined {
  if (attributes.subresource !== '' || attributes.object === undefined) return undefined;
  const template = findTemplate(`${attributes.resource.group}/${attributes.resource.resource}`, attributes.object);
  if (template?.spec?.containers === undefined) return undefined;
  return { metadata: template.metadata ?? {}, spec: template.spec };
}

function findTemplate(resource: string, object: KubeObject): Template | undefined {
  const spec = object['spec'] as { template?: Template; jobTemplate?: { spec?: { template?: Template } } } | undefined;
  switch (resource) {
    case '/podtemplates':
      return object['template'] as Template | undefined;
    case '/replicationcontrollers':
    case 'apps/deployments':
    case 'apps/replicasets':
    case 'apps/statefulsets':
    case 'apps/daemonsets':
    case 'batch/jobs':
      return spec?.template;
    case 'batch/cronjobs':
      return spec?.jobTemplate?.spec?.template;
    default:
      return undefined;
  }
}

function validateNamespace(
  attributes: AdmissionAttributes,
  defaults: PodSecurityConfiguration['defaults'],
  existing: () => readonly Pod[],
): void {
  const current = policyOf(attributes.object?.metadata.labels, defaults);
  const before =
    attributes.operation === 'UPDATE' ? policyOf(attributes.oldObject?.metadata.labels, defaults) : undefined;
  // An invalid label that did not change is accepted.
  const isNew =
    before === undefined || current.errors.some((error) => !before.errors.some((old) => String(old) === String(error)));
  if (current.errors.length > 0 && isNew) {
    const label = ({ field }: FieldError): string => field.slice(0, -']'.length);
    const errors = [...current.errors].sort((a, b) => (label(a) < label(b) ? -1 : 1));
    throw newInvalid({ group: '', resource: 'Namespace' }, nameOf(attributes), errors);
  }
  if (before === undefined) return;
  const now = current.policy.enforce;
  const old = before.policy.enforce;
  if (now.level === 'privileged' || jsonEqual(now, old)) return;
  if (levelRank(now.level) < levelRank(old.level) && now.version === old.version) return;
  warnOfPods(attributes, now, existing().slice(0, MAX_PODS));
}

function warnOfPods(attributes: AdmissionAttributes, level: LevelVersion, existing: readonly Pod[]): void {
  const byReasons = new Map<string, string[]>();
  for (const pod of existing) {
    if (pod.spec === undefined || pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed') continue;
    const violations = evaluatePod({ metadata: pod.metadata, spec: pod.spec }, level);
    if (violations.length === 0) continue;
    const reasons = violations.map((violation) => violation.reason).join(', ');
    const names = byReasons.get(reasons) ?? [];
    names.push(pod.metadata.name ?? '');
    byReasons.set(reasons, names);
  }
  if (byReasons.size === 0) return;
  attributes.warn(
    `existing pods in namespace ${quoteText(nameOf(attributes))} violate the new PodSecurity enforce level ${quoteText(formatLevel(level))}`,
  );
  const lines = [...byReasons].map(([reasons, names]) => {
    const [first = '', ...others] = names.sort();
    const more = others.length === 0 ? '' : ` (and ${others.length} other ${others.length === 1 ? 'pod' : 'pods'})`;
    return `${first}${more}: ${reasons}`;
  });
  for (const line of lines.sort()) attributes.warn(line);
}
